//! TLS: to Redis, and of the server itself, asked by curl.

use std::{
    fs,
    io::{ErrorKind, Read as _},
    net::TcpStream,
    process::{Command, Output},
};

use ratelimit_tests::{chaos::Certificates, redis::RedisProcess};

use crate::server::{CHECK, PATIENCE, Server, until};

/// A Redis that speaks TLS on the port and asks clients for a certificate.
fn redis(certificates: &Certificates) -> (u16, RedisProcess) {
    // The port was free a moment ago, and stays in the range that no client is given.
    let port = RedisProcess::start(&[]).port();
    let mut arguments = certificates.arguments(port);
    arguments.extend(["--tls-auth-clients".to_owned(), "yes".to_owned()]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    (port, RedisProcess::start(&arguments))
}

fn curl(args: &[&str]) -> Output {
    let mut command = Command::new("curl");
    let quiet = ["--silent", "--show-error", "--max-time", "30"];
    command.args(quiet).args(args).output().unwrap()
}

/// A server with TLS, and its URL by a name of the certificate.
fn server(certificates: &Certificates, more: &[&str]) -> (Server, String) {
    let [cert, key] = ["server.pem", "server.key"].map(|name| certificates.file(name));
    let server = Server::start(&[&["--tls-cert", &cert, "--tls-key", &key], more].concat());
    let url = format!("https://localhost:{}", server.addr.port());
    (server, url)
}

#[tokio::test]
async fn redis_over_tls_decides_with_certificates_on_both_sides() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let (port, _redis) = redis(&certificates);
    let url = format!("rediss://127.0.0.1:{port}");
    let [ca, cert, key] = ["root.pem", "client.pem", "client.key"].map(|n| certificates.file(n));
    let wrong_ca = others.file("root.pem");
    let on = |more: &[&str]| {
        let shared = ["--redis", &url, "--time-budget", "10s"];
        Server::start(&[&shared[..], more].concat())
    };
    let client = ["--redis-cert", cert.as_str(), "--redis-key", &key];

    let trusted = on(&[&["--redis-ca", &ca][..], &client].concat());
    until(|| async {
        let answer = trusted.get(&format!("{CHECK}?key=k")).await;
        (!answer.body.contains("\"store\"")).then_some(())
    })
    .await;
    for refused in [
        on(&["--redis-ca", &ca]),
        on(&[&["--redis-ca", &wrong_ca][..], &client].concat()),
    ] {
        let log = || refused.log();
        until(|| async { log().contains("Redis does not answer").then_some(()) }).await;
        let ready = refused.get("/actuator/health/readiness").await;
        assert_eq!(ready.status, 503);
    }
}

#[test]
fn certificates_without_effect_are_refused() {
    let certificates = Certificates::new();
    let others = Certificates::new();
    let [cert, key, ca] =
        ["server.pem", "server.key", "root.pem"].map(|name| certificates.file(name));
    let other_key = others.file("server.key");
    let plain = ["--redis", "redis://127.0.0.1:1"];
    let secure = ["--redis", "rediss://127.0.0.1:1"];
    for (args, expected) in [
        (vec!["--tls-key", &key], "tls-key has no effect"),
        (vec!["--tls-cert", &cert], "tls-cert needs tls-key"),
        (vec!["--tls-client-ca", &ca], "tls-client-ca has no effect"),
        (
            vec!["--tls-cert", &cert, "--tls-key", &other_key],
            "tls-cert and tls-key",
        ),
        (
            vec!["--tls-cert", &key, "--tls-key", &key],
            "tls-cert holds no certificate",
        ),
        (
            vec!["--tls-cert", "/nonexistent", "--tls-key", &key],
            "/nonexistent",
        ),
        (vec!["--redis-ca", &ca], "redis-ca has no effect"),
        (
            [&plain[..], &["--redis-ca", &ca]].concat(),
            "without a rediss:// address",
        ),
        (
            [&secure[..], &["--redis-cert", &cert]].concat(),
            "need each other",
        ),
        ([&secure[..], &["--redis-ca", &key]].concat(), "certificate"),
    ] {
        let mut command = Command::new("timeout");
        command.args(["10", env!("CARGO_BIN_EXE_ratelimit-server")]);
        let output = command
            .args(["--listen", "127.0.0.1:0"])
            .args(&args)
            .output();
        let output = output.unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {told}");
        assert!(told.contains(expected), "{args:?}: {told}");
    }
}

#[tokio::test]
async fn clients_choose_the_version_of_http_and_verify_the_certificate() {
    let certificates = Certificates::new();
    let others = Certificates::new();
    let (server, url) = server(&certificates, &[]);
    let ca = certificates.file("root.pem");
    let check = format!("{url}{CHECK}?key=k");
    let version = |flags: &[&str]| {
        let write = ["-o", "/dev/null", "-w", "%{http_code} %{http_version}"];
        let output = curl(&[flags, &["--cacert", &ca, &check], &write[..]].concat());
        String::from_utf8(output.stdout).unwrap()
    };

    assert_eq!(version(&["--http2"]), "200 2");
    assert_eq!(version(&["--http1.1"]), "200 1.1");
    assert_eq!(version(&["--tls-max", "1.2"]), "200 2");
    assert!(server.banner.contains("listening  https://"));
    let wrong_ca = curl(&["--cacert", &others.file("root.pem"), &check]);
    assert!(!wrong_ca.status.success(), "{wrong_ca:?}");
    let plain = curl(&[&check.replace("https", "http")]);
    assert!(!plain.status.success(), "{plain:?}");
}

#[tokio::test]
async fn a_client_certificate_is_asked_for_on_the_main_listener() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let ca = certificates.file("root.pem");
    let more = ["--tls-client-ca", &ca, "--admin-listen", "127.0.0.1:0"];
    let (server, url) = server(&certificates, &more);
    let (_, admin) = server.banner.split_once("metrics    https://").unwrap();
    let admin = admin.split('/').next().unwrap();
    let check = format!("{url}{CHECK}?key=k");
    let with = |client: &Certificates| {
        let [cert, key] = ["client.pem", "client.key"].map(|name| client.file(name));
        curl(&["--cacert", &ca, "--cert", &cert, "--key", &key, &check])
    };

    let right = with(&certificates);
    let wrong = with(&others);
    let none = curl(&["--cacert", &ca, &check]);
    assert!(right.status.success(), "{right:?}");
    assert!(
        String::from_utf8(right.stdout)
            .unwrap()
            .contains("\"allowed\":true")
    );
    assert!(!wrong.status.success() && !none.status.success());
    // A handshake is counted after the client knows that it failed.
    until(async || {
        let page = format!("https://{admin}/actuator/prometheus");
        let metrics = String::from_utf8(curl(&["--cacert", &ca, &page]).stdout).unwrap();
        let failures = metrics.lines().find(|line| {
            line.starts_with("rate_limiter_tls_handshake_failures_total{")
                && line.contains("listener=\"main\"")
        });
        failures.unwrap().ends_with(" 2").then_some(())
    })
    .await;
}

#[tokio::test]
async fn changed_certificates_are_used_and_broken_ones_are_not() {
    let (certificates, newer) = (Certificates::new(), Certificates::new());
    let (server, url) = server(&certificates, &[]);
    let live = format!("{url}/actuator/health/liveness");
    let (old_ca, new_ca) = (certificates.file("root.pem"), newer.file("root.pem"));
    let is_served = |ca: &str| curl(&["--cacert", ca, &live]).status.success();
    assert!(is_served(&old_ca) && !is_served(&new_ca));

    for name in ["server.pem", "server.key"] {
        fs::copy(newer.file(name), certificates.file(name)).unwrap();
    }
    until(|| async { is_served(&new_ca).then_some(()) }).await;
    assert!(!is_served(&old_ca));

    fs::write(certificates.file("server.pem"), "broken").unwrap();
    let refusals = || server.log().matches("the old ones stay").count();
    until(|| async { (refusals() == 1).then_some(()) }).await;
    assert!(is_served(&new_ca));
    server.signal("HUP");
    until(|| async { (refusals() == 2).then_some(()) }).await;
    assert!(is_served(&new_ca));

    fs::remove_file(certificates.file("server.key")).unwrap();
    let is_lost = || server.log().contains("server.key cannot be read any more");
    until(|| async { is_lost().then_some(()) }).await;
    assert!(is_served(&new_ca));
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_is_disconnected() {
    let certificates = Certificates::new();
    let (server, _) = server(&certificates, &["--header-timeout", "1s"]);
    let mut silent = TcpStream::connect(server.addr).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();

    let read = tokio::task::spawn_blocking(move || silent.read(&mut [0; 16]));

    let ended = match read.await.unwrap() {
        Ok(length) => length == 0,
        Err(why) => why.kind() == ErrorKind::ConnectionReset,
    };
    assert!(ended);
}
