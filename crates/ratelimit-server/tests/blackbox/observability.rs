//! Access log, request ids, trace context, audit lines and the metrics of the server itself.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use http::Method;
use ratelimit_tests::redis::TestRedis;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::server::{CHECK, EXPLAIN, OFFENDERS, RESET, SETTLE, Server, until};

const TOKEN: &str = "0123456789abcdef-secret";

fn json_lines(log: &str) -> Vec<Value> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn lines_of<'a>(lines: &'a [Value], target: &str) -> Vec<&'a Value> {
    let lines = lines.iter();
    lines.filter(|line| line["target"] == target).collect()
}

#[tokio::test]
async fn promtool_finds_nothing_to_improve_in_the_metrics() {
    let redis = TestRedis::start().await;
    let server = Server::start_connected(&["--redis", redis.url(), "--redis-prefix", "promtool"]);
    until(|| async {
        let ready = server.get("/actuator/health/readiness").await;
        (ready.status == 200).then_some(())
    })
    .await;
    server.get(&format!("{CHECK}?key=k")).await;
    server.get("/nowhere").await;
    server.get("/actuator/prometheus").await;
    let scraped = server.get("/actuator/prometheus").await.body;

    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, as in `apt-get install prometheus`");
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(scraped.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();

    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{told}");
    let version = env!("CARGO_PKG_VERSION");
    for part in [
        "rate_limiter_build_info{",
        &format!("version=\"{version}\""),
        "process_resident_memory_bytes{",
        "process_open_fds{",
        "process_start_time_seconds{",
        "# HELP rate_limiter_requests_total ",
        "# HELP rate_limiter_round_trip_seconds ",
    ] {
        assert!(scraped.contains(part), "{part}: {scraped}");
    }
}

#[tokio::test]
async fn responses_are_counted_by_route_and_status() {
    let server = Server::start(&["--policy", "one=fixed_window 1/d"]);
    for _ in 0..3 {
        server.get(&format!("{CHECK}?policy=one&key=k")).await;
    }
    for place in 0..50 {
        server.get(&format!("/scan/{place}")).await;
    }
    server.post("/actuator/info", "").await;

    let scraped = server.get("/actuator/prometheus").await.body;

    let count = |route: &str, status: &str| {
        let labels = [format!("route=\"{route}\""), format!("status=\"{status}\"")];
        let line = scraped.lines().find(|line| {
            line.starts_with("rate_limiter_http_requests_total{")
                && labels.iter().all(|label| line.contains(label))
        });
        line.and_then(|line| line.rsplit(' ').next())
    };
    assert_eq!(count(CHECK, "200"), Some("1"), "{scraped}");
    assert_eq!(count(CHECK, "429"), Some("2"));
    assert_eq!(count("none", "404"), Some("50"));
    assert_eq!(count("/actuator/info", "405"), Some("1"));
    assert!(!scraped.contains("scan"));
}

#[tokio::test]
async fn a_safe_request_id_comes_back_and_another_is_replaced() {
    let server = Server::start(&[]);
    let with = |id: &str| {
        let request = server.request(Method::GET, &format!("{CHECK}?key=k"));
        request.header("x-request-id", id)
    };

    let kept = server.send(with("edge-1.2:3_4"), "").await;
    let replaced = server.send(with("a b{}"), "").await;
    let long = server.send(with(&"a".repeat(65)), "").await;
    let missing = server.get("/nowhere").await;

    assert_eq!(kept.header("x-request-id"), Some("edge-1.2:3_4"));
    for answer in [&replaced, &long, &missing] {
        let id = answer.header("x-request-id").unwrap();
        assert!(
            id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{id}"
        );
    }
}

#[tokio::test]
async fn the_access_log_has_a_line_per_request_with_its_id_and_trace_context() {
    let quiet = Server::start(&["--log-format", "json"]);
    let server = Server::start(&[
        "--log",
        "info,ratelimit_server::access=debug",
        "--log-format",
        "json",
    ]);
    let trace_id = "0af7651916cd43dd8448eb211c80319c";
    for server in [&quiet, &server] {
        let request = server
            .request(Method::GET, &format!("{CHECK}?key=somebody"))
            .header("x-request-id", "r-1")
            .header("traceparent", format!("00-{trace_id}-b7ad6b7169203331-01"));
        server.send(request, "").await;
        let invalid = server
            .request(Method::GET, "/nowhere")
            .header("traceparent", format!("00-{trace_id}-0000000000000000-01"));
        server.send(invalid, "").await;
    }

    let lines = json_lines(&server.log());
    let lines = lines_of(&lines, "ratelimit_server::access");
    assert_eq!(lines.len(), 2, "{lines:?}");
    let check = lines[0];
    assert_eq!(check["method"], "GET");
    assert_eq!(check["route"], CHECK);
    assert_eq!(check["status"], 200);
    assert!(check["elapsed_us"].is_u64(), "{check}");
    assert!(check["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(check["span"]["request_id"], "r-1");
    assert_eq!(check.get("spans"), None, "{check}");
    assert_eq!(check["span"]["trace_id"], trace_id);
    assert_eq!(check["span"]["parent_id"], "b7ad6b7169203331");
    assert_eq!(lines[1]["status"], 404);
    assert_eq!(lines[1]["span"].get("trace_id"), None, "{}", lines[1]);
    assert!(!server.log().contains("somebody"), "{}", server.log());
    assert!(!quiet.log().contains("::access"), "{}", quiet.log());
}

#[tokio::test]
async fn admin_calls_leave_a_line_with_peer_key_and_result() {
    let mut token = NamedTempFile::new().unwrap();
    write!(token, "{TOKEN}").unwrap();
    let path = token.path().to_str().unwrap();
    let server = Server::start(&["--admin-token-file", path, "--log-format", "json"]);
    let call = |method: Method, path: &str| {
        let request = server.request(method, path);
        request.header("authorization", format!("Bearer {TOKEN}"))
    };
    let reset = call(Method::DELETE, &format!("{RESET}?key=alice"));
    server.send(reset.header("x-request-id", "r-7"), "").await;
    let explain = call(Method::GET, &format!("{EXPLAIN}?key=alice&permits=none"));
    server.send(explain, "").await.problem(400);
    server.send(call(Method::GET, OFFENDERS), "").await;
    for _ in 0..20 {
        server
            .delete(&format!("{RESET}?key=alice"))
            .await
            .problem(401);
    }

    until(|| async { server.log().contains("refused an admin call").then_some(()) }).await;
    let lines = json_lines(&server.log());
    let audit = lines_of(&lines, "ratelimit_server::audit");

    assert_eq!(audit.len(), 4, "{audit:?}");
    let reset = audit[0];
    assert_eq!(
        (&reset["call"], &reset["result"]),
        (&"reset".into(), &"ok".into())
    );
    assert_eq!(reset["key"], "sha256~ce597ac46d430f16");
    assert_eq!(reset["request_id"], "r-7");
    assert!(reset["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
    assert_eq!(audit[1]["call"], "explain");
    assert_eq!(audit[1]["result"], "failed");
    assert_eq!(audit[2]["call"], "offenders");
    assert_eq!(audit[3]["level"], "WARN");
    assert_eq!(audit[3]["path"], RESET);
    let log = server.log();
    assert!(!log.contains("alice") && !log.contains(TOKEN), "{log}");
}

#[tokio::test]
async fn a_trusted_proxy_that_names_no_client_is_logged_once() {
    let server = Server::start(&["--trusted", "127.0.0.1"]);
    let lines = || server.log().matches("sends no forwarding header").count();
    let named = server.request(Method::GET, CHECK);
    let named = named.header("x-forwarded-for", "203.0.113.7");
    server.send(named, "").await;
    server.get(&format!("{CHECK}?key=alice")).await;
    assert_eq!(lines(), 0, "{}", server.log());

    for _ in 0..3 {
        server.get(CHECK).await;
    }

    assert_eq!(lines(), 1, "{}", server.log());
}

#[tokio::test]
async fn the_line_of_a_reset_has_the_keys_of_limits_by_name() {
    let policy = "login=9/h; 5/h by ip; 5/h by tenant";
    let server = Server::start_admin(&["--policy", policy, "--log-format", "json"]);

    server
        .delete(&format!(
            "{RESET}?policy=login&key=alice&keys.ip=203.0.113.7"
        ))
        .await;

    let lines = json_lines(&server.log());
    let audit = lines_of(&lines, "ratelimit_server::audit");
    let address = ratelimit_core::Key::ip("203.0.113.7".parse().unwrap());
    assert_eq!(audit[0]["key"], "sha256~ce597ac46d430f16");
    assert_eq!(audit[0]["keys"], format!("ip={}", address.fingerprint()));
}

#[tokio::test]
async fn a_settlement_writes_no_line_at_the_usual_level() {
    let server = Server::start_admin(&["--policy", "llm=fixed_window 1000/d"]);
    let check = format!("{CHECK}?policy=llm&key=k&permits=400&receipt=true");
    let receipt = server.get(&check).await.json()["receipt"].clone();

    let body = serde_json::json!({"receipt": receipt, "actual": 150}).to_string();
    let request = server.request(Method::POST, SETTLE);
    let request = request.header("content-type", "application/json");
    let settled = server.send(request, body).await;

    assert_eq!(settled.json()["changed"], true);
    assert!(!server.log().contains("settled"), "{}", server.log());
}
