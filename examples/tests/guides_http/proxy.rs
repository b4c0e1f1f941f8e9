//! docs/guides/proxy.md: real proxies, and clients that forge headers.

use axum::{Router, routing::get};
use ratelimit_axum::{ClientKey, RateLimitLayer, ratelimit_http::client_ip::ClientIpResolver};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
};

use crate::{example::Example, proxy_process::ProxyProcess};

/// Headers with which a client claims to be another one.
const FORGED: &[&str] = &[
    "X-Forwarded-For: 198.51.100.1",
    "X-Forwarded-For: 198.51.100.2, 127.0.0.1",
    "X-Forwarded-For: junk",
    "X-Real-IP: 198.51.100.1",
    "Forwarded: for=198.51.100.1",
    "CF-Connecting-IP: 198.51.100.1",
    "Connection: close, X-Forwarded-For",
];

#[test]
fn proxy_nginx_names_each_client() {
    names_each_client(ProxyProcess::nginx);
}

#[test]
fn proxy_caddy_names_each_client() {
    names_each_client(ProxyProcess::caddy);
}

#[test]
fn proxy_haproxy_names_each_client() {
    names_each_client(ProxyProcess::haproxy);
}

fn names_each_client(start: fn(&str) -> ProxyProcess) {
    let example = Example::start(env!("CARGO_BIN_EXE_axum_behind_proxy"), &[]);
    let proxy = start(example.address());

    for client in ["127.0.0.5", "127.0.0.6"] {
        let seen = proxy.curl(client, "/ip", &[]);
        assert!(seen.starts_with("peer: 127.0.0.1\n"), "{seen}");
        for forged in FORGED {
            let seen = proxy.curl(client, "/ip", &["-H", forged]);
            let key = format!("key: ip:{client}\n200");
            assert!(seen.ends_with(&key), "{forged}: {seen}");
        }
        let mut statuses = Vec::new();
        for forged in &FORGED[..4] {
            statuses.push(proxy.curl(client, "/", &["-o", "/dev/null", "-H", forged]));
        }
        assert_eq!(statuses, ["200", "200", "429", "429"], "{client}");
    }
}

#[tokio::test]
async fn proxy_on_a_unix_socket_names_each_client() {
    let dir = TempDir::new().expect("a folder");
    let statuses = async |client: ClientKey, name: &str| {
        let path = dir.path().join(name);
        let limit = RateLimitLayer::per_client("2/min").expect("a limit");
        let app = Router::new().route("/", get(async || "hello"));
        let app = app.layer(limit.key_by(client));
        let listener = UnixListener::bind(&path).expect("a socket");
        tokio::spawn(async move { axum::serve(listener, app).await });
        let mut statuses = Vec::new();
        for client in ["203.0.113.1", "203.0.113.1", "203.0.113.1", "203.0.113.2"] {
            let mut stream = UnixStream::connect(&path).await.expect("it listens");
            let request = format!(
                "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-forwarded-for: {client}\r\n\r\n"
            );
            stream
                .write_all(request.as_bytes())
                .await
                .expect("it reads");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("an answer");
            statuses.push(answer[9..12].to_owned());
        }
        statuses
    };

    let trusting = ClientKey::from(ClientIpResolver::default().trust_unix_sockets());
    assert_eq!(statuses(trusting, "a").await, ["200", "200", "429", "200"]);
    assert_eq!(statuses(ClientKey::new(), "b").await, ["500"; 4]);
}
