//! A real Envoy in front of a service, with the server as its rate limit service.

use std::fs;

use http::HeaderValue;
use ratelimit_tests::ports::free_port;
use tempfile::TempDir;

use super::{
    EnvoyServer,
    process::{Envoy, FilterOptions},
};
use crate::server::{Server, until};

const RULES: &str = "
domain: edge
descriptors:
  - { key: remote_address, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: generic_key, value: api, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: a, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: a_b, rate_limit: { unit: day, requests_per_unit: 1 } }
";

/// One test for all, because an Envoy takes seconds to start.
#[tokio::test]
async fn a_real_envoy_enforces_the_limits() {
    let server = EnvoyServer::start(RULES, &[]);
    let envoy = Envoy::start(&[&server], FilterOptions::Strict);
    until(async || envoy.get("/unlimited", &[]).await).await;

    limits_by_address_and_tells_clients(&envoy).await;
    limits_values_of_any_bytes(&envoy).await;
    applies_limits_of_routes(&envoy).await;
    keeps_similar_entries_apart(&envoy).await;
    keeps_the_old_rules_when_new_ones_are_faulty(&envoy, &server).await;
}

const PAGE: &str = include_str!("../../../../../docs/guides/envoy.md");

/// The first snippet of the page in a language.
fn snippet(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[tokio::test]
async fn the_bootstrap_of_the_page_limits_requests() {
    // A day in place of a minute, which could end during the test.
    let rules = snippet("envoy").replace("unit: minute", "unit: day");
    let server = EnvoyServer::start(&rules, &[]);
    let (port, admin) = (free_port(), free_port());
    let ports = [
        ("10000", port),
        ("10001", free_port()),
        ("9901", admin),
        ("8081", server.addr.port()),
    ];
    let bootstrap = ports
        .iter()
        .fold(snippet("yaml").to_owned(), |text, (shown, port)| {
            let (shown, port) = (
                format!("port_value: {shown} "),
                format!("port_value: {port} "),
            );
            assert!(text.contains(&shown), "{shown}");
            text.replace(&shown, &port)
        })
        // A busy machine may take longer, and the filter would let the request pass.
        .replace("timeout: 0.1s", "timeout: 10s");
    let envoy = Envoy::start_with(&bootstrap, port, admin);
    // The filter asks the server for this request too, unless the connection to it takes longer than the timeout.
    until(async || envoy.get("/", &[]).await).await;

    let passed = envoy.passed("/", &[], 12).await;

    assert_eq!(server.remaining("remote_address", b"127.0.0.1").await, 0);
    assert!((9..12).contains(&passed), "{passed}: {}", envoy.log());
    let (status, fields) = envoy.get("/", &[]).await.unwrap();
    assert_eq!(status, 429);
    assert_eq!(fields["x-ratelimit-remaining"], "0");
    assert!(fields.contains_key("retry-after"));
}

#[tokio::test]
async fn a_real_envoy_asks_over_a_unix_socket() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::create_dir(path("rules")).unwrap();
    let rules = snippet("envoy").replace("unit: minute", "unit: day");
    fs::write(path("rules/edge.yaml"), rules).unwrap();
    let listen = format!("unix:{}", path("envoy.sock"));
    let rules = path("rules");
    let server = Server::start(&["--envoy-listen", &listen, "--envoy-config", &rules]);
    let (port, admin, upstream) = (free_port(), free_port(), free_port());
    let socket = "socket_address: { address: 127.0.0.1, port_value: 8081 }";
    assert!(snippet("yaml").contains(socket));
    let bootstrap = snippet("yaml")
        .replace(socket, &format!("pipe: {{ path: {} }}", path("envoy.sock")))
        .replace("port_value: 10000 ", &format!("port_value: {port} "))
        .replace("port_value: 10001 ", &format!("port_value: {upstream} "))
        .replace("port_value: 9901 ", &format!("port_value: {admin} "))
        // A call that fails is an error 500, and never takes too long for a busy machine.
        .replace(
            "timeout: 0.1s",
            "timeout: 10s\n                      failure_mode_deny: true",
        );
    let envoy = Envoy::start_with(&bootstrap, port, admin);
    let first = until(async || envoy.get("/", &[]).await).await;

    let passed = envoy.passed("/", &[], 12).await;

    assert_eq!((first.0, passed), (200, 9), "{}", envoy.log());
    drop(server);
}

async fn limits_by_address_and_tells_clients(envoy: &Envoy) {
    assert_eq!(envoy.passed("/address", &[], 10).await, 10);

    let (status, fields) = envoy.get("/address", &[]).await.unwrap();

    assert_eq!(status, 429);
    let number = |name: &str| fields[name].to_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(fields["x-ratelimit-limit"], "10, 10;w=86400");
    assert_eq!(fields["x-ratelimit-remaining"], "0");
    assert!((1..=86_400).contains(&number("x-ratelimit-reset")));
    assert!((1..=86_400).contains(&number("retry-after")));
    assert_eq!(fields["x-envoy-ratelimited"], "true");
}

async fn limits_values_of_any_bytes(envoy: &Envoy) {
    let long = vec![b'x'; 40_000];
    for value in [
        &b"a\xff"[..],
        b"\"quoted\"; x=1",
        b"{braces} %0d%0a * / @",
        b"tab\tinside",
        &long,
    ] {
        let user = [("x-user", value)];
        assert_eq!(envoy.passed("/user", &user, 3).await, 3, "{value:?}");
        let (status, fields) = envoy.get("/user", &user).await.unwrap();
        assert_eq!(status, 429, "{value:?}");
        let is_echoed = |field: &HeaderValue| {
            let mut windows = field.as_bytes().windows(value.len());
            windows.any(|window| window == value)
        };
        assert!(!fields.values().any(is_echoed), "{fields:?}");
    }
}

async fn applies_limits_of_routes(envoy: &Envoy) {
    // Seven a day on this route, five on the other, of one count.
    assert_eq!(envoy.passed("/override", &[], 8).await, 7);
    assert_eq!(envoy.passed("/rule", &[], 2).await, 0);
    // A limit without a unit has no effect, and one of 0 requests refuses all.
    assert_eq!(envoy.passed("/no-unit", &[], 2).await, 0);
    assert_eq!(envoy.passed("/none", &[], 2).await, 0);
}

async fn keeps_similar_entries_apart(envoy: &Envoy) {
    assert_eq!(envoy.passed("/similar", &[("x-a", b"b_c")], 3).await, 2);
    assert_eq!(envoy.passed("/similar", &[("x-a-b", b"c")], 3).await, 1);
}

async fn keeps_the_old_rules_when_new_ones_are_faulty(envoy: &Envoy, server: &EnvoyServer) {
    let reloads = "rate_limiter_envoy_reloads_total";
    let user = [("x-user", &b"new"[..])];
    server.write_rules("domain: edge\ndescriptors: 5\n");
    let is_rejected =
        async || (server.metric(reloads, r#"result="rejected""#).await == 1).then_some(());
    until(is_rejected).await;
    assert_eq!(envoy.passed("/user", &user, 4).await, 3);

    server.write_rules(&RULES.replace("requests_per_unit: 3", "requests_per_unit: 4"));
    let is_applied = async || (server.metric(reloads, r#"result="ok""#).await == 1).then_some(());
    until(is_applied).await;
    assert_eq!(envoy.passed("/user", &user, 3).await, 1);
}
