//! Listeners: which routes each serves, its limit of connections, and when it is ready.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use http::StatusCode;
use ratelimit_tests::{ports::free_port, redis::RedisProcess};

use crate::server::{CHECK, EXPLAIN, OFFENDERS, RESET, Server, until};

const READINESS: &str = "/actuator/health/readiness";
const LIVENESS: &str = "/actuator/health/liveness";
const METRICS: &str = "/actuator/prometheus";

/// The address of the admin listener, from the first screen.
fn admin_address(server: &Server) -> SocketAddr {
    let (_, url) = server.banner.split_once("metrics    http://").unwrap();
    url.split('/').next().unwrap().parse().unwrap()
}

/// The status of a GET on a connection of its own.
fn status_at(addr: SocketAddr, path: &str) -> u16 {
    let mut stream = TcpStream::connect(addr).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer[9..12].parse().unwrap()
}

#[tokio::test]
async fn an_admin_listener_takes_metrics_and_admin_calls_from_the_main_one() {
    let server = Server::start(&["--admin-listen", "127.0.0.1:0"]);
    let (main, admin) = (server.addr, admin_address(&server));
    assert_ne!(main, admin);

    for path in [METRICS, "/actuator/info", OFFENDERS, EXPLAIN, RESET] {
        assert_eq!(status_at(main, path), 404, "{path}");
        assert_ne!(status_at(admin, path), 404, "{path}");
    }
    for path in [READINESS, LIVENESS, "/actuator/health", "/openapi.json"] {
        assert_eq!(status_at(main, path), 200, "{path}");
        assert_eq!(status_at(admin, path), 200, "{path}");
    }
    let check = format!("{CHECK}?key=k");
    assert_eq!(status_at(main, &check), 200);
    assert_eq!(status_at(admin, &check), 404);
}

#[tokio::test]
async fn a_full_main_listener_is_logged_and_counted_and_leaves_the_admin_listener_free() {
    let args = [
        "--max-connections",
        "3",
        "--admin-listen",
        "127.0.0.1:0",
        "--log",
        "warn",
    ];
    let server = Server::start(&args);
    let admin = admin_address(&server);

    let held: Vec<TcpStream> = (0..3)
        .map(|_| TcpStream::connect(server.addr).unwrap())
        .collect();
    let waiting: Vec<TcpStream> = (0..2)
        .map(|_| TcpStream::connect(server.addr).unwrap())
        .collect();
    until(|| async { server.log().contains("max_connections=3").then_some(()) }).await;

    assert_eq!(status_at(admin, LIVENESS), 200);
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET {METRICS} HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let gauge = |listener: &str| {
        let label = format!("listener=\"{listener}\"");
        let mut lines = metrics.lines();
        let line = lines.find(|line| {
            line.starts_with("rate_limiter_http_connections{") && line.contains(&label)
        });
        line.unwrap().rsplit(' ').next().unwrap().to_owned()
    };
    assert_eq!(gauge("main"), "3");
    assert_ne!(gauge("admin"), "0");

    drop((held, waiting));
    assert_eq!(server.get(LIVENESS).await.status, StatusCode::OK);
    let log = server.log();
    assert_eq!(log.matches("max_connections=3").count(), 1, "{log}");
}

#[tokio::test]
async fn after_sigterm_readiness_fails_at_once_and_connections_are_accepted_for_the_delay() {
    let mut server = Server::start(&["--drain-delay", "2s"]);
    assert_eq!(status_at(server.addr, READINESS), 200);

    let signalled = Instant::now();
    server.signal("TERM");
    until(|| async { server.log().contains("not ready any more").then_some(()) }).await;

    assert_eq!(status_at(server.addr, READINESS), 503);
    assert_eq!(status_at(server.addr, LIVENESS), 200);
    let mut checks = 0;
    loop {
        match TcpStream::connect(server.addr) {
            Ok(_) if signalled.elapsed() < Duration::from_secs(1) => {
                assert_eq!(
                    status_at(server.addr, &format!("{CHECK}?key=k{checks}")),
                    200
                );
                checks += 1;
            }
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(why) => {
                assert_eq!(why.kind(), ErrorKind::ConnectionRefused);
                break;
            }
        }
    }
    assert!(checks > 0 && signalled.elapsed() >= Duration::from_secs(2));
    assert_eq!(server.ended().await.code(), Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_without_the_delay() {
    let mut server = Server::start(&["--drain-delay", "10min"]);

    server.signal("TERM");
    until(|| async { server.log().contains("not ready any more").then_some(()) }).await;
    server.signal("INT");

    assert_eq!(server.ended().await.code(), Some(0));
    assert!(server.log().contains("a second signal"), "{}", server.log());
}

#[tokio::test]
async fn without_redis_the_server_serves_at_once_and_is_ready_when_redis_comes() {
    // Nothing answers here: the port accepts into its queue, and the handshake waits.
    let port = free_port();
    let hanging = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let server = Server::start(&["--redis", &format!("redis://127.0.0.1:{port}")]);

    // The log line of the first second comes later than the first answer.
    assert_eq!(server.get(&format!("{CHECK}?key=k")).await.status, 200);
    let early = server.log();
    assert!(!early.contains("Redis does not answer"), "{early}");
    let ready = server.get(READINESS).await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(ready.json()["status"], "DOWN");
    assert_eq!(server.get(LIVENESS).await.status, StatusCode::OK);
    until(|| async { server.log().contains("Redis does not answer").then_some(()) }).await;
    assert_eq!(server.get(READINESS).await.status, 503);

    drop(hanging);
    let mut redis = RedisProcess::start_on(port, &[]);
    until(|| async { (server.get(READINESS).await.status == 200).then_some(()) }).await;

    // A later outage does not change it: the failure mode decides.
    redis.kill();
    until(|| async {
        let answer = server.get(&format!("{CHECK}?key=k")).await;
        (answer.json()["store"] == "local").then_some(())
    })
    .await;
    assert_eq!(server.get(READINESS).await.status, StatusCode::OK);
}
