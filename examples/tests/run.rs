//! Every example runs, and shows what its first line says.

mod example;

use std::{fs, path::Path};

use example::{Example, output};
use ratelimit_tests::redis::TestRedis;

fn ten_at_once(example: &Example) {
    assert_eq!(example.times(10, "GET /", ""), [200; 10]);
    // A slow machine earns one or two more meanwhile.
    assert!(example.times(20, "GET /", "").contains(&429));
}

#[test]
fn axum_basic() {
    ten_at_once(&Example::start(env!("CARGO_BIN_EXE_axum_basic"), &[]));
}

#[test]
fn actix_basic() {
    ten_at_once(&Example::start(env!("CARGO_BIN_EXE_actix_basic"), &[]));
}

#[test]
fn per_route() {
    for binary in [
        env!("CARGO_BIN_EXE_axum_per_route"),
        env!("CARGO_BIN_EXE_actix_per_route"),
    ] {
        let example = Example::start(binary, &[]);
        assert_eq!(example.times(3, "GET /login", ""), [200, 200, 429]);
        assert_eq!(example.times(2, "GET /users/1", ""), [200, 200]);
        assert_eq!(example.times(2, "GET /users/2", ""), [200, 429]);
        assert_eq!(example.ask("GET /", ""), 200);
    }
}

#[tokio::test]
async fn axum_redis() {
    let redis = TestRedis::start().await;
    let binary = env!("CARGO_BIN_EXE_axum_redis");
    let one = Example::start(binary, &[redis.url()]);
    let other = Example::start(binary, &[redis.url()]);
    // What Redis decided is told; until it is connected, an instance counts on its own.
    let decided_by_redis = |instance: &Example| loop {
        let answer = instance.answer("GET /", "");
        if answer.contains("x-ratelimit-limit: 10") {
            return answer;
        }
    };

    while decided_by_redis(&one).starts_with("HTTP/1.1 200") {}

    assert!(decided_by_redis(&other).starts_with("HTTP/1.1 429"));
}

#[test]
fn axum_behind_proxy() {
    let example = Example::start(env!("CARGO_BIN_EXE_axum_behind_proxy"), &[]);
    for client in [
        "x-forwarded-for: 1.2.3.4\r\n",
        "x-forwarded-for: 1.2.3.5\r\n",
    ] {
        assert_eq!(example.times(3, "GET /", client), [200, 200, 429]);
    }
}

#[test]
fn tower_hyper() {
    let example = Example::start(env!("CARGO_BIN_EXE_tower_hyper"), &[]);
    let statuses = example.times(5, "GET /", "");
    assert_eq!(statuses, [200; 5]);
}

#[test]
fn tiers_by_api_key() {
    let example = Example::start(env!("CARGO_BIN_EXE_tiers_by_api_key"), &[]);
    let gold = "x-api-key: gold-1\r\n";
    assert_eq!(
        example.times(6, "GET /", gold),
        [200, 200, 200, 200, 200, 429]
    );
    let free = "x-api-key: free-1\r\n";
    assert_eq!(example.times(3, "GET /", free), [200, 200, 429]);
    assert_eq!(example.ask("GET /", ""), 401);
}

#[test]
fn tonic_grpc() {
    let told = output(env!("CARGO_BIN_EXE_tonic_grpc"), &[]);
    assert_eq!(told, "2 answered, 2 RESOURCE_EXHAUSTED\n");
}

#[test]
fn outgoing_client() {
    let told = output(env!("CARGO_BIN_EXE_outgoing_client"), &[]);
    assert_eq!(told, "5 sent, 3 held back\n");
}

#[tokio::test]
async fn cluster_demo() {
    let redis = TestRedis::start().await;
    let told = output(env!("CARGO_BIN_EXE_cluster_demo"), &[redis.url()]);
    let expected = "4 instances, 32 clients, 1600 requests\n\
        limit sliding_window_log 500/d: 500 admitted, 1100 denied, 0 failed\n";
    assert_eq!(told, expected);
}

#[test]
fn every_example_is_short_and_begins_by_saying_how_to_run_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let name = path.file_stem().expect("a name").to_string_lossy();
        let start = format!("//! `cargo run -p ratelimit-examples --bin {name}");
        assert!(text.starts_with(&start), "{name}");
        assert!(text.lines().count() < 80, "{name}");
    }
}
