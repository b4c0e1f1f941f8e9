//! TLS to the xDS server.

use std::fs;

use ratelimit_tests::chaos::Certificates;

use super::{AdsServer, EnvoyServer, domain};
use crate::server::until;

/// Waits for the first log line about the server.
async fn failure(envoy: &EnvoyServer) -> String {
    until(async || {
        let log = envoy.server.log();
        let line = log.lines().find(|line| line.contains("is away"));
        line.map(str::to_owned)
    })
    .await
}

#[tokio::test]
async fn both_sides_of_a_connection_are_verified() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let mut ads = AdsServer::start_tls(&certificates);
    let url = format!("https://localhost:{}", ads.addr.port());
    let start = |ca: &str, identity: Option<&Certificates>, more: &[&str]| {
        let files = identity.map(|own| ["client.pem", "client.key"].map(|name| own.file(name)));
        let mut args = vec!["--envoy-xds-ca", ca];
        if let Some([cert, key]) = &files {
            args.extend(["--envoy-xds-cert", cert, "--envoy-xds-key", key]);
        }
        EnvoyServer::with_xds(&url, &[&args, more].concat())
    };
    let (root, wrong_root) = (certificates.file("root.pem"), others.file("root.pem"));

    for (ca, identity, more, expected) in [
        (
            &wrong_root,
            Some(&certificates),
            &[][..],
            "invalid peer certificate",
        ),
        // The server refuses a client after the handshake, and closes: whether its reason arrives is a race.
        (&root, None, &[], "is away"),
        (&root, Some(&others), &[], "is away"),
        (
            &root,
            Some(&certificates),
            &["--envoy-xds-server-name", "other.test"],
            "not valid for name \"other.test\"",
        ),
    ] {
        let envoy = start(ca, identity, more);
        let line = failure(&envoy).await;
        assert!(line.contains(expected), "{line}");
    }
    assert!(ads.is_quiet(), "no stream was opened");

    let envoy = start(&root, Some(&certificates), &[]);
    assert_eq!(ads.asked().await.node.unwrap().id, "envoy-ratelimit");
    ads.apply("1", &[domain("a", 3)]).await;
    assert_eq!(envoy.limit_of("a").await, Some(3));
}

#[tokio::test]
async fn certificates_are_read_again_for_each_connection() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let mut ads = AdsServer::start_tls(&certificates);
    // An address in place of a name.
    let url = format!("https://{}", ads.addr);
    let [ca, cert, key] = ["root.pem", "client.pem", "client.key"].map(|name| others.file(name));
    let args = [
        "--envoy-xds-ca",
        &ca,
        "--envoy-xds-cert",
        &cert,
        "--envoy-xds-key",
        &key,
    ];
    let envoy = EnvoyServer::with_xds(&url, &args);
    failure(&envoy).await;

    for (name, file) in [
        ("root.pem", &ca),
        ("client.pem", &cert),
        ("client.key", &key),
    ] {
        fs::copy(certificates.file(name), file).unwrap();
    }

    ads.asked().await;
    ads.apply("1", &[domain("a", 3)]).await;
    assert_eq!(envoy.limit_of("a").await, Some(3));
}
