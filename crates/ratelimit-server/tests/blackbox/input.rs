//! Input that cannot be meant.

use std::net::SocketAddr;

use http::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::server::{CHECK, PATIENCE, REMAINING, Server};

#[tokio::test]
async fn bad_queries_are_refused_and_spend_nothing() {
    // Without it every query that names no policy would be refused for that alone.
    let server = Server::start(&["--policy", "login=5/min", "--require-policy=false"]);
    let long = "k".repeat(257);
    let queries = [
        "algorithm=BEST_EFFORT",
        "algorithm=",
        "algorithm=TOKEN_BUCKET&algorithm=TOKEN_BUCKET",
        "algorithm=TOKEN_BUCKET&policy=login",
        "algorithm=%FF",
        "policy=",
        "policy=unknown",
        "policy=LOGIN",
        "permits=0",
        "permits=",
        "permits=-1",
        "permits=%2B1",
        "permits=NaN",
        "permits=1e308",
        "permits=1.5",
        "permits=18446744073709551616",
        "permits=1&permits=2",
        "key=%00",
        "key=a%0D%0Ab",
        "key=%FF",
        "key=%ZZ",
        "key=k&key=other",
        "key=",
        "key",
        &format!("key={long}"),
    ];

    for query in queries {
        let whose = if query.contains("key") { "" } else { "&key=k" };
        let answer = server.get(&format!("{CHECK}?{query}{whose}")).await;
        answer.problem(400);
        assert!(!answer.body.contains(&long));
    }

    for key in ["k", "other"] {
        let look = server.get(&format!("{REMAINING}?key={key}")).await;
        assert_eq!(look.json()["remaining"], 100);
    }
}

#[tokio::test]
async fn unusual_keys_have_their_own_budgets() {
    let server = Server::start(&[]);
    let longest = "k".repeat(256);
    let keys = [
        "%7B%7D",
        "%7D%7B",
        "al*",
        "a/b",
        "a:b",
        "a%20b",
        "a+b",
        "%C3%A9",
        "ip:nobody",
        &longest,
    ];

    for key in keys {
        let answer = server.get(&format!("{CHECK}?key={key}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{key}");
        assert_eq!(answer.json()["remaining"], 99, "{key}");
    }
    assert_eq!(server.get(CHECK).await.json()["remaining"], 99);
}

#[tokio::test]
async fn bad_bodies_are_refused() {
    let server = Server::start(&["--max-body", "100000"]);
    let bodies = [
        "",
        "{",
        "[]",
        "null",
        "\"key\"",
        r#"{"key":"k","permit":2}"#,
        r#"{"key":1}"#,
        r#"{"key":"k","permits":0}"#,
        r#"{"key":"k","permits":-1}"#,
        r#"{"key":"k","permits":1e308}"#,
        r#"{"key":"k","permits":1.5}"#,
        r#"{"key":"k","key":"l"}"#,
        r#"{"key":""}"#,
        r#"{"key":"k","keys":{"ip":"1.1.1.1","ip":"2.2.2.2"}}"#,
        r#"{"key":"a\u0000b"}"#,
        r#"{"key":"k","policy":"token_bucket","algorithm":"TOKEN_BUCKET"}"#,
        r#"{"checks":{}}"#,
        r#"{"checks":[1]}"#,
        r#"{"checks":[["TOKEN_BUCKET","k",1]]}"#,
        r#"{"checks":[],"key":"k"}"#,
    ];

    for body in bodies {
        server.post(CHECK, body).await.problem(400);
    }
    for length in [100_001, 10_000_000] {
        let head = format!(
            "POST {CHECK} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        let refused = raw(server.addr, &head).await;
        assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    }
    let chunk = format!("{:x}\r\n{}\r\n", 60_000, " ".repeat(60_000));
    let head = format!(
        "POST {CHECK} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let refused = raw(server.addr, &format!("{head}{chunk}{chunk}")).await;
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
    for broken in ["zz\r\n{}\r\n0\r\n\r\n", "2\r\n{}\r\n-1\r\n\r\n"] {
        let refused = raw(server.addr, &format!("{head}{broken}")).await;
        assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
    }
    let broken_text = server.post(CHECK, &b"{\"key\":\"\xff\"}"[..]).await;
    broken_text.problem(400);
    assert_eq!(
        server.get(&format!("{REMAINING}?key=k")).await.json()["remaining"],
        100
    );
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused() {
    let server = Server::start(&[]);

    server.get("/api").await.problem(404);
    server.get("/api/v1/rate-limit/checks").await.problem(404);
    let put = server.send(server.request(Method::PUT, CHECK), "").await;
    put.problem(405);
    assert!(put.header("allow").unwrap().contains("GET"));
    let head = server.send(server.request(Method::HEAD, CHECK), "").await;
    assert_eq!(head.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(head.header("allow"), Some("GET,POST"));
    assert_eq!(server.get(REMAINING).await.json()["remaining"], 100);
}

#[tokio::test]
async fn a_pattern_narrows_the_keys() {
    let server = Server::start(&["--key-pattern", "user:[0-9]{1,9}"]);

    assert_eq!(
        server.get(&format!("{CHECK}?key=user:12")).await.status,
        StatusCode::OK
    );
    assert_eq!(server.get(CHECK).await.status, StatusCode::OK);
    for key in ["user:", "user:1x", "xuser:1", "user:1%0A"] {
        server.get(&format!("{CHECK}?key={key}")).await.problem(400);
    }
}

#[tokio::test]
async fn a_megabyte_of_key_is_refused() {
    let server = Server::start(&[]);

    let reply = raw(
        server.addr,
        &format!(
            "GET {CHECK}?key={} HTTP/1.1\r\nhost: localhost\r\n\r\n",
            "k".repeat(1 << 20)
        ),
    )
    .await;

    let refused = ["HTTP/1.1 414 ", "HTTP/1.1 431 "];
    assert!(
        refused.iter().any(|line| reply.starts_with(line)),
        "{reply}"
    );
    assert_eq!(server.get(CHECK).await.status, StatusCode::OK);
}

#[tokio::test]
async fn ten_thousand_hops_are_walked_from_the_right() {
    let server = Server::start(&["--trusted", "127.0.0.1"]);
    let hops = "6.6.6.6,".repeat(5_000);

    let request = server
        .request(Method::GET, CHECK)
        .header("x-forwarded-for", format!("{hops} 203.0.113.7"));
    let answer = server.send(request, "").await;

    assert_eq!(answer.json()["key"], "ip:203.0.113.7");
}

#[tokio::test]
async fn slow_clients_are_cut() {
    let server = Server::start(&["--header-timeout", "200ms"]);

    // Each waits for the server to end the connection; a server that never does fails by its timeout.
    let silent = raw(server.addr, "").await;
    let half_a_head = raw(server.addr, "GET / HTTP/1.1\r\nhos").await;
    let half_a_preface = raw(server.addr, "PRI * HT").await;
    let half_a_body = format!(
        "POST {CHECK} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{{"
    );
    // A server for each timeout, so that a slow machine does not fail by the other one.
    let patient = Server::start(&["--request-timeout", "200ms"]);
    let half_a_body = raw(patient.addr, &half_a_body).await;

    assert_eq!(silent, "");
    assert!(
        half_a_head.is_empty() || half_a_head.starts_with("HTTP/1.1 408"),
        "{half_a_head}"
    );
    assert_eq!(half_a_preface, "");
    assert!(half_a_body.starts_with("HTTP/1.1 408"), "{half_a_body}");
    assert_eq!(patient.get(CHECK).await.status, StatusCode::OK);
}

/// Sends bytes and nothing more, and reads until the server ends the connection.
async fn raw(addr: SocketAddr, bytes: &str) -> String {
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        // The server may refuse before it has read all.
        let _ = stream.write_all(bytes.as_bytes()).await;
        let mut reply = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut chunk).await {
            reply.extend_from_slice(&chunk[..length]);
        }
        String::from_utf8(reply).unwrap()
    };
    let ended = tokio::time::timeout(PATIENCE, exchange).await;
    ended.expect("the server never ends the connection")
}
