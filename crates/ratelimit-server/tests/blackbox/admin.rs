//! Who may reset, refund, explain and see offenders.

use std::io::Write as _;

use http::{Method, StatusCode};
use tempfile::NamedTempFile;

use crate::server::{EXPLAIN, OFFENDERS, REFUND, RESET, SETTLE, Server};

const TOKEN: &str = "0123456789abcdef-secret";

fn token_file() -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "{TOKEN}").unwrap();
    file
}

#[tokio::test]
async fn without_a_token_only_direct_local_callers_may() {
    let server = Server::start(&[]);
    let with = |name: &str| {
        let request = server.request(Method::DELETE, &format!("{RESET}?key=k"));
        request.header(name, "203.0.113.7")
    };

    assert_eq!(
        server.delete(&format!("{RESET}?key=k")).await.status,
        StatusCode::OK
    );
    for name in [
        "x-forwarded-for",
        "forwarded",
        "x-real-ip",
        "via",
        "x-forwarded-proto",
    ] {
        server.send(with(name), "").await.problem(403);
    }
    assert!(server.banner.contains("direct callers on this machine"));
}

#[tokio::test]
async fn the_chain_header_counts_as_a_forwarding_header() {
    let server = Server::start(&["--chain-header", "cf-connecting-ip"]);

    let request = server.request(Method::GET, &format!("{EXPLAIN}?key=k"));
    let answer = server
        .send(request.header("cf-connecting-ip", "203.0.113.7"), "")
        .await;

    answer.problem(403);
}

#[tokio::test]
async fn beyond_loopback_without_a_token_they_are_off() {
    let server = Server::start(&["--listen", "0.0.0.0:0"]);

    server.delete(&format!("{RESET}?key=k")).await.problem(403);
    server.get(&format!("{EXPLAIN}?key=k")).await.problem(403);
    server.get(OFFENDERS).await.problem(403);
    for path in [REFUND, SETTLE] {
        server.post(path, "{}").await.problem(403);
    }

    let off = "reset, refund, explain and offenders are off";
    assert!(server.banner.contains(off));
    assert!(server.banner.contains("warning"));
    assert!(server.log().contains("without an admin token"));
}

#[tokio::test]
async fn with_a_token_it_is_needed_even_on_this_machine() {
    let file = token_file();
    let server = Server::start(&["--admin-token-file", file.path().to_str().unwrap()]);
    let with = |value: &str| {
        let request = server.request(Method::DELETE, &format!("{RESET}?key=k"));
        request.header("authorization", value)
    };

    let without = server.delete(&format!("{RESET}?key=k")).await;
    without.problem(401);
    assert_eq!(without.header("www-authenticate"), Some("Bearer"));
    server.get(OFFENDERS).await.problem(401);
    for path in [REFUND, SETTLE] {
        server.post(path, "{}").await.problem(401);
    }
    for wrong in [
        "Bearer wrong",
        "Basic x",
        "Bearer",
        &format!("Bearer {TOKEN}x"),
        TOKEN,
    ] {
        server.send(with(wrong), "").await.problem(401);
    }
    let twice = with(&format!("Bearer {TOKEN}")).header("authorization", "Bearer x");
    server.send(twice, "").await.problem(401);
    let right = server.send(with(&format!("bearer {TOKEN}")), "").await;
    assert_eq!(right.status, StatusCode::OK);
    let proxied = with(&format!("Bearer {TOKEN}")).header("x-forwarded-for", "203.0.113.7");
    assert_eq!(server.send(proxied, "").await.status, StatusCode::OK);
    assert!(!server.log().contains(TOKEN) && !server.banner.contains(TOKEN));
}
