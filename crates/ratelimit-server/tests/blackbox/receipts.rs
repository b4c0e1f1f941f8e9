//! Refunds, settlements and slots over REST.

use std::io::Write as _;

use http::{Method, StatusCode};
use ratelimit_tests::{
    chaos::TestCluster,
    redis::{RedisProcess, TestRedis},
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::server::{
    CHECK, HttpResponse, REFUND, RELEASE, REMAINING, RENEW, RESET, SETTLE, Server, until,
};

const TOKEN: &str = "0123456789abcdef-secret";

fn token_file() -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "{TOKEN}").unwrap();
    file
}

async fn charged(server: &Server, policy: &str, permits: u64) -> String {
    let path = format!("{CHECK}?policy={policy}&key=k&permits={permits}&receipt=true");
    let answer = server.get(&path).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    receipt(&answer.json())
}

fn receipt(answer: &Value) -> String {
    answer["receipt"].as_str().expect("a receipt").to_owned()
}

async fn left(server: &Server, policy: &str) -> u64 {
    let path = format!("{REMAINING}?policy={policy}&key=k");
    server.get(&path).await.json()["remaining"]
        .as_u64()
        .unwrap()
}

async fn post(server: &Server, path: &str, body: &Value) -> HttpResponse {
    let request = server.request(Method::POST, path);
    let request = request.header("content-type", "application/json");
    let request = request.header("authorization", format!("Bearer {TOKEN}"));
    server.send(request, body.to_string()).await
}

fn changed(answer: &HttpResponse) -> bool {
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.json()["changed"].as_bool().unwrap()
}

#[tokio::test]
async fn a_refund_returns_all_or_the_named_permits() {
    let server = Server::start_admin(&["--policy", "p=fixed_window 10/d"]);
    let (one, other) = (
        charged(&server, "p", 4).await,
        charged(&server, "p", 3).await,
    );
    assert_eq!(left(&server, "p").await, 3);

    assert!(changed(
        &post(&server, REFUND, &json!({"receipt": one})).await
    ));
    assert_eq!(left(&server, "p").await, 7);
    let some = json!({"receipt": other, "permits": 2});
    assert!(changed(&post(&server, REFUND, &some).await));
    assert_eq!(left(&server, "p").await, 9);
}

#[tokio::test]
async fn a_settlement_charges_what_it_came_to_cost() {
    let server = Server::start_admin(&["--policy", "p=fixed_window 10/d"]);
    let (less, more) = (
        charged(&server, "p", 4).await,
        charged(&server, "p", 1).await,
    );

    let less = json!({"receipt": less, "actual": 1});
    assert!(changed(&post(&server, SETTLE, &less).await));
    assert_eq!(left(&server, "p").await, 8);
    let more = json!({"receipt": more, "actual": 5});
    assert!(changed(&post(&server, SETTLE, &more).await));
    assert_eq!(left(&server, "p").await, 4);
}

#[tokio::test]
async fn a_receipt_is_good_once_and_only_as_it_was_given() {
    let server = Server::start_admin(&["--policy", "p=fixed_window 10/d"]);
    let receipt = charged(&server, "p", 4).await;

    for forged in [
        receipt.to_uppercase(),
        receipt[..receipt.len() - 2].to_owned(),
        format!("{receipt}00"),
        receipt.replace('1', "2"),
        String::new(),
        "ff".repeat(100),
    ] {
        let body = json!({"receipt": forged});
        post(&server, REFUND, &body).await.problem(422);
    }
    let body = json!({"receipt": receipt, "permits": 5});
    let too_many = post(&server, REFUND, &body).await.problem(422);
    assert_eq!(too_many, "only 4 permits were charged");

    let body = json!({"receipt": receipt, "permits": 1});
    assert!(changed(&post(&server, REFUND, &body).await));
    post(&server, REFUND, &body).await.problem(409);
    let settle = json!({"receipt": receipt, "actual": 0});
    post(&server, SETTLE, &settle).await.problem(409);
    assert_eq!(left(&server, "p").await, 7);
}

#[tokio::test]
async fn a_receipt_is_returned_only_for_a_charge_that_requested_one() {
    let server = Server::start_admin(&["--policy", "p=fixed_window 2/d"]);
    let plain = server.get(&format!("{CHECK}?policy=p&key=k")).await;
    assert_eq!(plain.json().get("receipt"), None);
    let body = r#"{"policy":"p","key":"k","receipt":true}"#;
    receipt(&server.post(CHECK, body).await.json());

    let denied = server.post(CHECK, body).await;

    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.json().get("receipt"), None);
    let no = server
        .get(&format!("{CHECK}?policy=p&key=k&receipt=yes"))
        .await;
    no.problem(400);
    let plain = json!({"policy": "p", "key": "a"});
    let batch = json!({"checks": [{"policy": "p", "key": "a", "receipt": true}, plain]});
    let results = server.post(CHECK, batch.to_string()).await.json();
    receipt(&results["results"][0]);
    assert_eq!(results["results"][1].get("receipt"), None);
}

#[tokio::test]
async fn a_receipt_of_another_server_in_memory_is_refused() {
    let file = token_file();
    let token = file.path().to_str().unwrap();
    let policy = "fixed_window=fixed_window 100/d";
    let args = ["--admin-token-file", token, "--policy", policy];
    let (one, other) = (Server::start_admin(&args), Server::start_admin(&args));
    let receipt = charged(&one, "fixed_window", 4).await;
    charged(&other, "fixed_window", 4).await;

    let body = json!({"receipt": receipt});

    post(&other, REFUND, &body).await.problem(422);
    assert_eq!(left(&other, "fixed_window").await, 96);
    assert!(changed(&post(&one, REFUND, &body).await));
}

fn together(redis: &TestRedis, prefix: &str, token: &str) -> [Server; 2] {
    let args = [
        "--redis",
        redis.url(),
        "--redis-prefix",
        prefix,
        "--policy",
        "p=fixed_window 1000/d; sliding_window_log 1000/h; sliding_window_counter 1000/h",
        "--policy",
        "bucket=1000/d",
        "--policy",
        "slots=concurrency 2 lease 1min",
        "--time-budget",
        "10s",
        "--admin-token-file",
        token,
    ];
    [
        Server::start_connected(&args),
        Server::start_connected(&args),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_on_one_redis_refund_each_receipt_once() {
    let redis = TestRedis::start().await;
    let file = token_file();
    let servers = together(&redis, "refunds", file.path().to_str().unwrap());

    assert_eq!(refunded_once(&servers, "p").await, 990);
    // A refund gives no part back that time has forgiven of older debt, see docs/decisions/0008.
    let left = refunded_once(&servers, "bucket").await;
    assert!((980..=990).contains(&left), "{left}");
    redis.assert_every_key_expires();
}

/// Charges 20 times 10 permits, refunds 19 of the receipts six times each, and tells how many permits are left.
async fn refunded_once(servers: &[Server; 2], policy: &str) -> u64 {
    let [one, other] = servers;
    let mut receipts = Vec::new();
    for _ in 0..20 {
        receipts.push(charged(one, policy, 10).await);
    }
    assert_eq!(left(other, policy).await, 800);

    let bodies: Vec<Value> = receipts
        .iter()
        .take(19)
        .map(|receipt| json!({ "receipt": receipt }))
        .collect();
    let calls = (0..6).flat_map(|turn| bodies.iter().map(move |body| (turn, body)));
    let calls = calls.map(|(turn, body)| post(&servers[turn % 2], REFUND, body));
    let answers = futures_util::future::join_all(calls).await;

    let with = |status: StatusCode| answers.iter().filter(|it| it.status == status).count();
    assert_eq!((with(StatusCode::OK), with(StatusCode::CONFLICT)), (19, 95));
    left(one, policy).await
}

#[tokio::test]
async fn slots_are_renewed_and_released_by_their_receipts() {
    let redis = TestRedis::start().await;
    let file = token_file();
    let [one, other] = together(&redis, "slots", file.path().to_str().unwrap());
    let first = charged(&one, "slots", 1).await;
    let second = charged(&other, "slots", 1).await;
    let path = format!("{CHECK}?policy=slots&key=k");
    let denied = one.get(&path).await;
    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.json()["algorithm"], "CONCURRENCY");

    let (first, second) = (json!({ "receipt": first }), json!({ "receipt": second }));
    let renewed = other.post(RENEW, first.to_string()).await;
    assert_eq!(renewed.status, StatusCode::OK, "{renewed:?}");
    assert!(changed(&other.post(RELEASE, first.to_string()).await));
    assert!(!changed(&one.post(RELEASE, first.to_string()).await));
    one.post(RENEW, first.to_string()).await.problem(410);
    assert_eq!(left(&one, "slots").await, 1);

    assert!(changed(&post(&one, REFUND, &second).await));
    assert_eq!(left(&one, "slots").await, 2);
    assert_eq!(one.get(&path).await.status, StatusCode::OK);
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn a_refund_after_a_reset_leaves_no_key_that_stays() {
    let redis = TestRedis::start().await;
    let file = token_file();
    let [one, other] = together(&redis, "reset", file.path().to_str().unwrap());
    let receipt = charged(&one, "p", 10).await;
    let reset = other.request(Method::DELETE, &format!("{RESET}?policy=p&key=k"));
    let reset = reset.header("authorization", format!("Bearer {TOKEN}"));
    assert_eq!(other.send(reset, "").await.status, StatusCode::OK);

    assert!(!changed(
        &post(&other, REFUND, &json!({ "receipt": receipt })).await
    ));

    assert_eq!(left(&one, "p").await, 1000);
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn without_redis_what_this_process_charged_is_given_back_here_alone() {
    let file = token_file();
    let mut redis = RedisProcess::start(&[]);
    let url = redis.url();
    let args = [
        "--redis",
        &url,
        "--policy",
        "p=fixed_window 1000/d",
        "--time-budget",
        "10s",
        "--admin-token-file",
        file.path().to_str().unwrap(),
    ];
    let (one, other) = (
        Server::start_connected(&args),
        Server::start_connected(&args),
    );
    let shared = charged(&one, "p", 1).await;
    redis.kill();
    let path = format!("{CHECK}?policy=p&key=k&permits=4&receipt=true");
    let local = until(|| async {
        let answer = one.get(&path).await.json();
        (answer["store"] == "local").then_some(answer)
    })
    .await;
    let local = json!({ "receipt": receipt(&local) });

    post(&other, REFUND, &local).await.problem(422);
    assert!(changed(&post(&one, REFUND, &local).await));
    post(&one, REFUND, &local).await.problem(409);
    let shared = json!({ "receipt": shared });
    post(&one, REFUND, &shared).await.problem(503);

    redis.restart();
    until(|| async {
        let answer = one.get(&format!("{REMAINING}?policy=p&key=k")).await;
        (answer.json().get("store").is_none()).then_some(())
    })
    .await;
    post(&one, REFUND, &local).await.problem(409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_while_a_batch_is_decided_holds_no_slot() {
    let cluster = TestCluster::start_masters().await;
    let on_master = |master: usize| {
        let mut names = (0..).map(|number| format!("k{number}"));
        let name = names.find(|name| cluster.master_of(format!("{{key:{name}}}")) == master);
        name.expect("some key lives there")
    };
    let (decided, hanging) = (on_master(0), on_master(1));
    let server = Server::start_connected(&[
        "--redis",
        &cluster.url(),
        "--policy",
        "s=concurrency 5 lease 10min",
        "--time-budget",
        "60s",
    ]);
    let free_slots = async |name: &str| {
        let path = format!("{REMAINING}?policy=s&key={name}");
        let answer = server.get(&path).await;
        let is_shared = !answer.body.contains("\"store\"");
        is_shared.then(|| answer.json()["remaining"].as_u64())
    };
    for name in [&decided, &hanging] {
        until(async || (free_slots(name).await == Some(Some(5))).then_some(())).await;
    }
    let check = |name: &str| json!({"policy": "s", "key": name, "receipt": true});
    let body = json!({"checks": [check(&decided), check(&hanging)]}).to_string();
    let length = body.len();
    let request = format!(
        "POST {CHECK} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let mut client = TcpStream::connect(server.addr).await.unwrap();

    let (early, last) = request.as_bytes().split_at(request.len() - 1);
    client.write_all(early).await.unwrap();

    cluster.nodes[1].signal("STOP");
    client.write_all(last).await.unwrap();
    until(async || (free_slots(&decided).await == Some(Some(4))).then_some(())).await;
    drop(client);

    until(async || (free_slots(&decided).await == Some(Some(5))).then_some(())).await;
    cluster.nodes[1].signal("CONT");
}
