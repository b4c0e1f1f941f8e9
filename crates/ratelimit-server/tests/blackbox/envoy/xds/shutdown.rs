//! The end of a server with rules over xDS.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use ratelimit_tests::chaos::Certificates;
use tempfile::TempDir;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{AdsServer, EnvoyServer, domain, reason};
use crate::{envoy::xds::ads_server::AdsEvent, server::until};

/// Ends the server, which must not take as long as its shutdown timeout of 20 seconds.
async fn end(envoy: &mut EnvoyServer) {
    let before = Instant::now();
    envoy.server.signal("TERM");
    assert!(envoy.server.ended().await.success());
    let elapsed = before.elapsed();
    assert!(elapsed < Duration::from_secs(8), "{elapsed:?}");
    let log = envoy.server.log();
    assert!(!log.contains("connections were still open"), "{log}");
}

#[tokio::test]
async fn an_open_stream_does_not_delay_the_end_of_the_server() {
    let mut ads = AdsServer::start();
    let mut envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    ads.apply("1", &[domain("a", 3)]).await;
    // The answers to refused responses are delayed, at last by several seconds.
    for version in ["2", "3", "4"] {
        assert_ne!(reason(&ads.apply(version, &[domain("", 1)]).await), "");
    }
    ads.send("5", &[domain("", 1)]);
    assert!(ads.is_quiet());

    end(&mut envoy).await;

    // A slow machine may send the delayed answer before it ends.
    while !matches!(ads.next().await, AdsEvent::Closed) {}
}

#[tokio::test]
async fn a_pipe_in_place_of_a_file_blocks_neither_later_connections_nor_the_end() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let mut ads = AdsServer::start_tls(&certificates);
    let dir = TempDir::new().unwrap();
    let [ca, next] = ["ca.pem", "next"].map(|name| dir.path().join(name));
    fs::copy(others.file("root.pem"), &ca).unwrap();
    let url = format!("https://localhost:{}", ads.addr.port());
    let [cert, key] = ["client.pem", "client.key"].map(|name| certificates.file(name));
    let ca_path = ca.to_str().unwrap();
    let args = [
        "--envoy-xds-ca",
        ca_path,
        "--envoy-xds-cert",
        &cert,
        "--envoy-xds-key",
        &key,
    ];
    let mut envoy = EnvoyServer::with_xds(&url, &args);
    until(async || envoy.server.log().contains("is away").then_some(())).await;

    // Connections meanwhile find a pipe that nothing is written to. Opening it would block for ever.
    let made = Command::new("mkfifo").arg(&next).status().unwrap();
    assert!(made.success());
    fs::rename(&next, &ca).unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    fs::copy(certificates.file("root.pem"), &next).unwrap();
    fs::rename(&next, &ca).unwrap();

    ads.asked().await;
    end(&mut envoy).await;
}

#[tokio::test]
async fn a_watcher_of_a_server_without_rules_does_not_delay_its_end() {
    let mut ads = AdsServer::start();
    let mut envoy = EnvoyServer::with_xds(&ads.url(), &["--drain-delay", "1s"]);
    ads.asked().await;
    let mut health = HealthClient::new(envoy.channel().await);
    let service = String::new();
    let watched = health.watch(HealthCheckRequest { service }).await;
    let mut changes = watched.unwrap().into_inner();
    let first = changes.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::NotServing);

    end(&mut envoy).await;

    while let Ok(Some(change)) = changes.message().await {
        assert_ne!(change.status(), ServingStatus::Serving);
    }
}
