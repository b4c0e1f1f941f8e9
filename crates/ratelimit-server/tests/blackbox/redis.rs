//! Servers that share one Redis.

use std::cell::Cell;

use http::StatusCode;
use ratelimit_tests::redis::{RedisProcess, TestRedis};
use serde_json::json;
use tempfile::NamedTempFile;

use crate::server::{CHECK, EXPLAIN, HttpResponse, REMAINING, RESET, Server, until};

fn is_local(answer: &HttpResponse) -> bool {
    answer.body.contains("\"store\":\"local\"")
}

/// Answers of a store, and not of the failure mode.
async fn shared(server: &Server, path: &str) -> HttpResponse {
    until(|| async {
        let answer = server.get(path).await;
        let is_shared = !answer.body.contains("\"store\"");
        is_shared.then_some(answer)
    })
    .await
}

fn on(url: &str, prefix: &str, policy: &str) -> Server {
    let args = [
        "--redis",
        url,
        "--redis-prefix",
        prefix,
        "--policy",
        policy,
        "--time-budget",
        "10s",
    ];
    Server::start_connected(&args)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_one_budget_exactly() {
    let redis = TestRedis::start().await;
    let policy = "p=fixed_window 100/d";
    let servers = [
        on(redis.url(), "two", policy),
        on(redis.url(), "two", policy),
    ];
    for server in &servers {
        shared(server, &format!("{REMAINING}?policy=p&key=k")).await;
    }

    let path = format!("{CHECK}?policy=p&key=k");
    let checks = (0..300).map(|place| servers[place % 2].get(&path));
    let answers = futures_util::future::join_all(checks).await;

    assert!(
        answers
            .iter()
            .all(|answer| !answer.body.contains("\"store\""))
    );
    let admitted = answers
        .iter()
        .filter(|answer| answer.status == StatusCode::OK)
        .count();
    assert_eq!(admitted, 100);
}

#[tokio::test]
async fn the_very_first_check_is_decided_by_redis() {
    let redis = TestRedis::start().await;
    let server = on(redis.url(), "first", "p=fixed_window 2/d");

    let answer = server.get(&format!("{CHECK}?policy=p&key=k")).await;

    assert_eq!(answer.json()["remaining"], 1);
    assert_eq!(answer.json().get("store"), None);
}

#[tokio::test]
async fn a_reset_on_one_server_shows_on_the_other() {
    let redis = TestRedis::start().await;
    let policy = "p=fixed_window 2/d";
    let (one, other) = (
        on(redis.url(), "reset", policy),
        on(redis.url(), "reset", policy),
    );
    for server in [&one, &other] {
        shared(server, &format!("{REMAINING}?policy=p&key=k")).await;
    }
    for key in ["al*", "alice"] {
        one.get(&format!("{CHECK}?policy=p&key={key}&permits=2"))
            .await;
    }

    other.delete(&format!("{RESET}?policy=p&key=al*")).await;

    assert_eq!(
        one.get(&format!("{REMAINING}?policy=p&key=al*"))
            .await
            .json()["remaining"],
        2
    );
    assert_eq!(
        one.get(&format!("{REMAINING}?policy=p&key=alice"))
            .await
            .json()["remaining"],
        0
    );
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn without_the_deny_cache_a_reset_elsewhere_shows_at_once() {
    let redis = TestRedis::start().await;
    let start = |cache: &[&str]| {
        let shared = ["--redis", redis.url(), "--time-budget", "10s"];
        let policy = ["--policy", "p=fixed_window 1/d"];
        Server::start_connected(&[&shared[..], &policy, cache].concat())
    };
    let (one, other) = (start(&["--no-deny-cache"]), start(&[]));
    for server in [&one, &other] {
        shared(server, &format!("{REMAINING}?policy=p&key=k")).await;
    }
    let check = format!("{CHECK}?policy=p&key=k");
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(one.get(&check).await.status, status);
    }

    other.delete(&format!("{RESET}?policy=p&key=k")).await;

    assert_eq!(one.get(&check).await.status, StatusCode::OK);
}

#[tokio::test]
async fn prefetched_units_are_explained_and_given_back_at_the_end() {
    let redis = TestRedis::start().await;
    let file = NamedTempFile::with_suffix(".toml").unwrap();
    let policy = "[policy.p]\nlimits = 'fixed_window 10000/366d; fixed_window 90000/366d'\nprefetch = '10%'\n";
    std::fs::write(file.path(), policy).unwrap();
    let config = file.path().to_str().unwrap();
    let shared_by = ["--redis", redis.url(), "--time-budget", "10s"];
    let start = || Server::start_connected(&[&shared_by[..], &["--config", config]].concat());
    let mut server = start();
    let explained = async |server: &Server| {
        let path = format!("{EXPLAIN}?policy=p&key=k");
        server.get(&path).await.json()
    };
    let is_on_hand = async || {
        let check = shared(&server, &format!("{CHECK}?policy=p&key=k")).await;
        assert_eq!(check.status, StatusCode::OK);
        let prefetch = explained(&server).await["prefetch"].clone();
        (prefetch["onHand"] != 0).then_some(prefetch)
    };
    let mut passed = 0;
    let prefetch = until(|| {
        passed += 1;
        is_on_hand()
    })
    .await;
    assert_eq!(
        (
            &prefetch["sharePercent"],
            &prefetch["sliceUnits"],
            &prefetch["holdMicros"]
        ),
        (&json!(10), &json!([1_000, 9_000]), &json!(1_000_000))
    );

    server.signal("TERM");
    assert!(server.ended().await.success());

    let again = explained(&start()).await;
    assert_eq!(again["prefetch"]["onHand"], 0);
    assert_eq!(again["limits"][0]["remaining"], 10_000 - passed);
}

#[tokio::test]
async fn without_redis_this_process_decides_and_says_so() {
    let server = Server::start_admin(&[
        "--redis",
        "redis://127.0.0.1:1",
        "--policy",
        "p=fixed_window 2/d",
    ]);
    let path = format!("{CHECK}?policy=p&key=k");

    let allowed = server.get(&path).await;
    server.get(&path).await;
    let denied = server.get(&path).await;

    assert_eq!(allowed.status, StatusCode::OK);
    let reset = allowed.json()["resetAfterSeconds"].as_u64();
    let reset = reset.filter(|reset| (1..=86_400).contains(reset)).unwrap();
    assert_eq!(
        allowed.body,
        format!(
            r#"{{"allowed":true,"key":"k","policy":"p","algorithm":"FIXED_WINDOW","limit":2,"remaining":1,"resetAfterSeconds":{reset},"retryAfterSeconds":0,"message":"Request allowed","store":"local"}}"#
        )
    );
    assert!(
        !allowed
            .headers
            .keys()
            .any(|name| name.as_str().contains("ratelimit"))
    );
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.json()["store"], "local");
    assert_eq!(
        denied.header("retry-after").unwrap(),
        denied.json()["retryAfterSeconds"].to_string()
    );
    let health = server.get("/actuator/health").await;
    assert_eq!(health.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(health.json()["status"], "DOWN");
    let explained = server.get(&format!("{EXPLAIN}?policy=p&key=k")).await;
    assert_eq!(explained.status, StatusCode::OK);
    let explained = explained.json();
    assert_eq!(
        (&explained["allowed"], &explained["store"]),
        (&json!(false), &json!("local"))
    );
    assert_eq!(
        explained["reason"],
        "the store did not decide (unavailable), the failure mode `local` does: fixed_window 2/d has 0 left of 2"
    );
}

#[tokio::test]
async fn a_reset_without_redis_resets_the_local_budget_and_says_so() {
    let policy = "p=fixed_window 1/d";
    let server = Server::start_admin(&["--redis", "redis://127.0.0.1:1", "--policy", policy]);
    let path = format!("{CHECK}?policy=p&key=k");
    server.get(&path).await;
    assert_eq!(
        server.get(&path).await.status,
        StatusCode::TOO_MANY_REQUESTS
    );

    let reset = server.delete(&format!("{RESET}?policy=p&key=k")).await;

    let detail = reset.problem(503);
    assert!(detail.contains("its budget is as it was"), "{detail}");
    assert!(detail.contains("in this server was reset"), "{detail}");
    assert_eq!(server.get(&path).await.status, StatusCode::OK);
}

#[tokio::test]
async fn the_failure_mode_is_a_setting() {
    let start =
        |mode| Server::start_admin(&["--redis", "redis://127.0.0.1:1", "--on-failure", mode]);
    let (open, closed) = (start("open"), start("closed"));

    let passed = open.get(&format!("{CHECK}?key=k&permits=1000")).await;
    let refused = closed.get(&format!("{CHECK}?key=k")).await;

    assert_eq!(passed.status, StatusCode::OK);
    assert_eq!(
        (
            passed.json()["store"].as_str(),
            passed.json()["remaining"].as_u64()
        ),
        (Some("none"), Some(100))
    );
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        (
            refused.json()["allowed"].as_bool(),
            refused.json()["store"].as_str()
        ),
        (Some(false), Some("none"))
    );
    assert_eq!(refused.json()["remaining"], 0);
    let explained = closed.get(&format!("{EXPLAIN}?key=k")).await.json();
    assert_eq!(
        (&explained["allowed"], &explained["limits"]),
        (&json!(false), &json!([]))
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_and_back_under_load_is_survived() {
    let redis = RedisProcess::start(&[]);
    let port = redis.port();
    let server = on(&redis.url(), "killed", "p=fixed_window 1000000/d");
    let path = format!("{CHECK}?policy=p&key=k");
    shared(&server, &path).await;

    let load = async {
        let mut answers = Vec::new();
        for _ in 0..300 {
            answers.push(server.get(&path).await);
        }
        answers
    };
    let (answers, ()) = tokio::join!(load, async { drop(redis) });
    let _back = RedisProcess::start_on(port, &[]);
    let waited = Cell::new(0);
    until(|| async {
        let is_shared = !is_local(&server.get(&path).await);
        waited.update(|hits| hits + u64::from(!is_shared));
        is_shared.then_some(())
    })
    .await;

    assert!(answers.iter().all(|answer| answer.status == StatusCode::OK));
    let local = answers.iter().filter(|answer| is_local(answer)).count() as u64;
    assert!(local > 0);
    // The new Redis knows nothing of the old one. All local hits are charged to it, those of the wait too, but for one that
    // may have reached the old one. The last hit of the wait was charged at once.
    let local = local + waited.get();
    let remaining = format!("{REMAINING}?policy=p&key=k");
    let spent = until(|| async {
        let answer = server.get(&remaining).await.json();
        let spent = 1_000_000 - answer["remaining"].as_u64().unwrap();
        (spent >= local).then_some(spent)
    })
    .await;
    assert!(
        spent <= local + 1,
        "{spent} spent after {local} local hits and one"
    );
}
