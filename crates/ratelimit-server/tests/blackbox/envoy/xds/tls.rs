//! TLS to the xDS server.

use std::fs;

use ratelimit_tests::chaos::Certificates;

use tempfile::TempDir;

use super::{AdsServer, EnvoyServer, domain};
use crate::{
    envoy::write_atomically,
    server::{binary, until},
};

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

#[tokio::test]
async fn a_missing_certificate_does_not_refuse_a_reload_of_policies() {
    let (certificates, dir) = (Certificates::new(), TempDir::new().unwrap());
    let [ca, path] = ["ca.pem", "server.toml"].map(|name| dir.path().join(name));
    fs::copy(certificates.file("root.pem"), &ca).unwrap();
    let config = |per_hour: u32| {
        format!(
            "envoy-listen = '127.0.0.1:0'\nenvoy-xds-server = 'https://127.0.0.1:1'\nenvoy-xds-ca = '{}'\n\
             [policy]\na = '{per_hour}/h'\n",
            ca.display()
        )
    };
    fs::write(&path, config(1)).unwrap();
    let check = || {
        let checked = binary().arg("check-config").arg(&path).output().unwrap();
        let texts = [checked.stdout, checked.stderr].concat();
        (checked.status.success(), String::from_utf8(texts).unwrap())
    };
    assert!(check().0, "{}", check().1);
    let args = ["--config", path.to_str().unwrap()];
    let envoy = EnvoyServer::start_with(TempDir::new().unwrap(), &args);

    fs::remove_file(&ca).unwrap();
    write_atomically(&path, &config(2));

    until(async || {
        let info = envoy.server.get("/actuator/info").await.json();
        (info["policies"]["a"] == "token_bucket 2/h").then_some(())
    })
    .await;
    // A server would not start with it.
    let (is_valid, text) = check();
    assert!(
        !is_valid && text.contains("ca.pem cannot be read"),
        "{text}"
    );
}
