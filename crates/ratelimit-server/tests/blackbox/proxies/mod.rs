//! Forward authentication: by itself, and behind real proxies with the snippets of docs/guides/gateways.md.

mod caddy;
mod haproxy;
mod nginx;
mod process;

use std::net::SocketAddr;

use http::{Method, StatusCode};
use tempfile::TempDir;

use self::process::Proxy;
use crate::server::{Server, until};

const FORWARD_AUTH: &str = "/api/v1/rate-limit/forward-auth";

const DOCS: &str = include_str!("../../../../../docs/guides/gateways.md");

/// The snippets of docs/guides/gateways.md in that language, for a server at another address.
fn snippets(language: &str, addr: SocketAddr) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = DOCS.split(&fence).skip(1);
    let snippets = blocks.map(|rest| rest.split_once("```").unwrap().0);
    let snippets = snippets.map(|text| text.replace("127.0.0.1:8080", &addr.to_string()));
    let snippets: Vec<String> = snippets.collect();
    assert!(snippets[0].contains(&addr.to_string()), "{snippets:?}");
    snippets
}

/// What a request gets when the call to the server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Open,
    Closed,
}

/// Asserts what a proxy answers with an unknown policy, and while the server is down. `down` is the status of a proxy that
/// fails closed.
async fn assert_fails(start: impl Fn(SocketAddr, Failing) -> Proxy, down: u16) {
    const SETTINGS: [&str; 4] = ["--trusted", "127.0.0.1", "--allowed-host", "ratelimit"];
    for failing in [Failing::Closed, Failing::Open] {
        let expected = |closed: u16| {
            if failing == Failing::Open {
                200
            } else {
                closed
            }
        };
        let renamed = ["--policy", "renamed=fixed_window 9/d"];
        let renamed = Server::start(&[&SETTINGS[..], &renamed].concat());
        let proxy = start(renamed.addr, failing);
        let first = until(|| proxy.get("/", "Accept: */*")).await;
        assert_eq!(first.status, expected(503), "{failing:?}: {first:?}");
        let warning = "unknown policy \"site\"";
        until(|| async { renamed.log().contains(warning).then_some(()) }).await;
        drop(proxy);

        let server = [
            "--policy",
            "site=fixed_window 1/d",
            "--on-failure",
            "closed",
        ];
        let redis = ["--redis", "redis://127.0.0.1:1"];
        let closed = Server::start(&[&SETTINGS[..], &server, &redis].concat());
        let proxy = start(closed.addr, failing);
        let first = until(|| proxy.get("/", "Accept: */*")).await;
        assert_eq!(first.status, 503, "{failing:?}: {first:?}");
        drop(proxy);

        let server = Server::start(&[&SETTINGS[..], &server[..2]].concat());
        let proxy = start(server.addr, failing);
        let first = until(|| proxy.get("/", "Accept: */*")).await;
        assert_eq!(first.status, 200, "{failing:?}: {first:?}");
        assert_eq!(proxy.status("/", "Accept: */*").await, 429, "{failing:?}");
        drop(server);
        until(|| async {
            let status = proxy.status("/", "Accept: */*").await;
            (status == expected(down)).then_some(())
        })
        .await;
    }
}

/// A server whose policy has rules of every kind, and three requests a day for the others.
fn server(dir: &TempDir) -> Server {
    let path = dir.path().join("server.toml");
    let file = "trusted = ['127.0.0.1']\n\
        allowed-host = ['ratelimit']\n\
        path-header = 'X-Forwarded-Uri'\n\
        [policy.site]\n\
        limits = 'fixed_window 3/d'\n\
        exempt = ['path:/health', '192.0.2.0/24']\n\
        blocked = ['path:/admin/*']\n";
    std::fs::write(&path, file).unwrap();
    Server::start(&["--config", path.to_str().unwrap()])
}

/// Headers with which a client claims another address, path, method, protocol or host.
const FORGED: &[&str] = &[
    "X-Forwarded-For: 192.0.2.7",
    "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 192.0.2.7",
    "X-Real-IP: 192.0.2.7",
    "Forwarded: for=192.0.2.7;proto=https;host=other",
    "X-Client-IP: 192.0.2.7",
    "True-Client-IP: 192.0.2.7",
    "CF-Connecting-IP: 192.0.2.7",
    "X-Forwarded-Uri: /health",
    "X-Forwarded-Uri: /health\r\nX-Forwarded-Uri: /health",
    "x-forwarded-uri: /health",
    "X_Forwarded_Uri: /health",
    "X-Original-URI: /health",
    "X-Original-URL: /health",
    "X-Rewrite-URL: /health",
    "X-Forwarded-Path: /health",
    "X-Forwarded-Prefix: /health",
    "X-Forwarded-Method: OPTIONS",
    "X-HTTP-Method-Override: OPTIONS",
    "X-Original-Method: OPTIONS",
    "X-Forwarded-Proto: https",
    "X-Forwarded-Host: other",
    "X-Forwarded-Port: 8443",
    "X-Forwarded-Server: other",
];

/// Spellings of paths that are not exempt.
const OTHER_PATHS: &[&str] = &[
    "/health/",
    "/health/../x",
    "//health",
    "/x?/health",
    "/x/health",
];

/// Asserts that a proxy enforces the policy, whatever its clients claim.
async fn assert_enforces(proxy: &Proxy) {
    let first = until(|| proxy.get("/", "Accept: */*")).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert!(first.text.ends_with("served"), "{first:?}");
    for _ in 0..2 {
        assert_eq!(proxy.status("/", "X-Forwarded-For: 6.6.6.6").await, 200);
    }
    let denied = proxy.get("/", "Accept: */*").await.unwrap();
    assert_eq!(denied.status, 429, "{denied:?}");
    let head = denied.text.to_ascii_lowercase();
    assert!(head.contains("\r\nretry-after: "), "{denied:?}");

    for forged in FORGED {
        assert_eq!(proxy.status("/", forged).await, 429, "{forged}");
        assert_eq!(proxy.status("/admin/x", forged).await, 403, "{forged}");
        assert_eq!(proxy.status("/health?full", forged).await, 200, "{forged}");
    }
    for path in OTHER_PATHS {
        assert_eq!(proxy.status(path, "Accept: */*").await, 429, "{path}");
    }
    // A client that makes the proxy drop the headers that it has set gains nothing.
    for dropped in [
        "X-Forwarded-Uri",
        "X-Forwarded-For",
        "X-Forwarded-Uri, X-Forwarded-For",
    ] {
        let header = format!("X-Forwarded-Uri: /health\r\nConnection: close, {dropped}");
        for path in ["/", "/admin/x"] {
            let status = proxy.status(path, &header).await;
            assert_ne!(status, 200, "{path} without {dropped}");
        }
    }
}

#[tokio::test]
async fn a_denial_has_the_status_that_the_proxy_takes_for_one() {
    let server = Server::start(&["--trusted", "127.0.0.1", "--policy", "one=fixed_window 1/d"]);
    let ask = |client: &str, denied: &str, method: Method| {
        let path = format!("{FORWARD_AUTH}?policy=one{denied}");
        server.send(
            server
                .request(method, &path)
                .header("x-forwarded-for", client),
            "",
        )
    };

    assert_eq!(ask("1.1.1.1", "", Method::GET).await.status, StatusCode::OK);
    let denied = ask("1.1.1.1", "", Method::POST).await;
    assert_eq!(
        (denied.status, denied.body.as_str()),
        (StatusCode::TOO_MANY_REQUESTS, "")
    );
    assert!(denied.header("retry-after").is_some());
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(
        ask("1.1.1.1", "&denied=403", Method::GET).await.status,
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        ask("1.1.1.1", "&denied=401", Method::GET).await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        ask("2.2.2.2", "", Method::HEAD).await.status,
        StatusCode::OK
    );
    ask("2.2.2.2", "&denied=200", Method::GET)
        .await
        .problem(400);
}
