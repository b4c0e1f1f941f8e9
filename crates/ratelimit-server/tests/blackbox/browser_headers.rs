//! Requests as browsers send them for pages of other sites and of rebound names.

use http::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::server::{CHECK, OFFENDERS, REFUND, RELEASE, REMAINING, RENEW, RESET, SETTLE, Server};

const FORWARD_AUTH: &str = "/api/v1/rate-limit/forward-auth";

/// The status of a request that is sent as it stands.
async fn raw(server: &Server, request: &str) -> u16 {
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer[9..12].parse().unwrap()
}

async fn with_host(server: &Server, method: &str, path: &str, host: &str) -> u16 {
    let request = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    raw(server, &request).await
}

#[tokio::test]
async fn on_loopback_every_call_must_name_the_server_by_address_localhost_or_an_allowed_name() {
    let args = ["--allowed-host", "limits.example", "--log", "warn"];
    let server = Server::start_admin(&args);
    let port = server.addr.port();

    for path in [
        CHECK,
        REMAINING,
        OFFENDERS,
        "/actuator/health",
        "/actuator/info",
        "/actuator/prometheus",
        "/openapi.json",
        "/nothing",
    ] {
        for host in ["evil.example", "localhost.evil.example:80", "a b"] {
            let status = with_host(&server, "GET", path, host).await;
            assert!(
                status == 421 || host == "a b" && status == 400,
                "{path} {host}: {status}"
            );
        }
    }
    for host in [
        "localhost".to_owned(),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        "10.0.0.7".to_owned(),
        format!("LIMITS.example:{port}"),
    ] {
        assert_eq!(with_host(&server, "GET", CHECK, &host).await, 200, "{host}");
    }
    // Proxies and probes of HTTP/1.0 send no Host.
    assert_eq!(
        raw(&server, &format!("GET {CHECK} HTTP/1.0\r\n\r\n")).await,
        200
    );
    let absolute = format!(
        "GET http://evil.example{CHECK} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(raw(&server, &absolute).await, 421);
    let log = server.log();
    assert_eq!(log.matches("--allowed-host").count(), 1, "{log}");
}

#[tokio::test]
async fn beyond_loopback_only_admin_calls_check_the_host() {
    let dir = tempfile::TempDir::new().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef").unwrap();
    let token = token.to_str().unwrap();
    let server = Server::start(&["--listen", "0.0.0.0:0", "--admin-token-file", token]);
    let admin = |host: &str| {
        format!(
            "GET {OFFENDERS} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer 0123456789abcdef\r\n\
             connection: close\r\n\r\n"
        )
    };

    for path in [CHECK, "/actuator/health", "/actuator/prometheus"] {
        assert_eq!(
            with_host(&server, "GET", path, "limits.svc:8080").await,
            200
        );
    }
    assert_eq!(raw(&server, &admin("limits.svc")).await, 421);
    assert_eq!(raw(&server, &admin("127.0.0.1")).await, 200);
}

#[tokio::test]
async fn two_host_headers_are_a_bad_request() {
    let server = Server::start(&[]);
    let request = format!(
        "GET {CHECK} HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    );

    assert_eq!(raw(&server, &request).await, 400);
}

#[tokio::test]
async fn the_authority_of_http2_is_the_host() {
    let server = Server::start(&[]);
    let status = async |host: &str| {
        let stream = TcpStream::connect(server.addr).await.unwrap();
        let io = hyper_util::rt::TokioIo::new(stream);
        let executor = hyper_util::rt::TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
            .await
            .unwrap();
        let running = tokio::spawn(connection);
        let request = http::Request::get(format!("http://{host}{CHECK}"));
        let request = request
            .body(http_body_util::Empty::<bytes::Bytes>::new())
            .unwrap();
        let status = sender.send_request(request).await.unwrap().status();
        running.abort();
        status.as_u16()
    };

    assert_eq!(status("localhost").await, 200);
    assert_eq!(status("evil.example").await, 421);
}

#[tokio::test]
async fn a_cross_site_request_neither_spends_nor_reads() {
    let server = Server::start_admin(&["--policy", "p=fixed_window 9/d", "--trusted", "127.0.0.1"]);
    let site = async |method: Method, path: &str, site: &str, forwarded: bool| {
        let mut request = server.request(method, path).header("sec-fetch-site", site);
        if forwarded {
            request = request.header("x-forwarded-for", "203.0.113.7");
        }
        server.send(request, "").await.status.as_u16()
    };
    let check = format!("{CHECK}?policy=p&key=k");
    let auth = format!("{FORWARD_AUTH}?policy=p&key=k");
    let reset = format!("{RESET}?policy=p&key=k");

    for path in [&check, &auth, REMAINING, OFFENDERS, "/actuator/info"] {
        assert_eq!(
            site(Method::GET, path, "cross-site", false).await,
            403,
            "{path}"
        );
    }
    assert_eq!(site(Method::OPTIONS, &auth, "cross-site", false).await, 403);
    assert_eq!(site(Method::DELETE, &reset, "cross-site", false).await, 403);
    assert_eq!(site(Method::DELETE, &reset, "cross-site", true).await, 403);

    let left = server.get(&format!("{REMAINING}?policy=p&key=k")).await;
    assert_eq!(left.json()["remaining"], 9);
    // A client of a proxy may come from another site.
    assert_eq!(site(Method::GET, &auth, "cross-site", true).await, 200);
    for value in ["same-origin", "same-site", "none"] {
        assert_eq!(
            site(Method::GET, &check, value, false).await,
            200,
            "{value}"
        );
    }
}

#[tokio::test]
async fn changes_need_a_json_content_type() {
    let server = Server::start_admin(&["--policy", "p=fixed_window 9/d"]);
    let body = r#"{"policy":"p","key":"k"}"#;

    for path in [CHECK, REFUND, SETTLE, RELEASE, RENEW] {
        for content_type in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/plain; application/json",
            "application/jsonp",
        ] {
            let request = server.request(Method::POST, path);
            let request = request.header("content-type", content_type);
            server.send(request, body).await.problem(415);
        }
        let request = server.request(Method::POST, path);
        server.send(request, body).await.problem(415);
    }
    let left = server.get(&format!("{REMAINING}?policy=p&key=k")).await;
    assert_eq!(left.json()["remaining"], 9);
    for content_type in ["application/json", "Application/JSON; charset=utf-8"] {
        let request = server.request(Method::POST, CHECK);
        let request = request.header("content-type", content_type);
        assert_eq!(server.send(request, body).await.status, StatusCode::OK);
    }
}
