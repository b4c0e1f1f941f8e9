//! The systemd unit, and the health command that the image uses.

use std::{fs, process::Output};

use ratelimit_tests::chaos::Certificates;
use tempfile::TempDir;

use crate::server::{Server, binary};

const UNIT: &str = include_str!("../../ratelimit-server.service");

fn health(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = binary();
    command.arg("health").args(args);
    command.envs(variables.iter().copied());
    command.output().unwrap()
}

#[tokio::test]
async fn health_asks_the_server_that_the_environment_describes() {
    let server = Server::start(&[]);
    let port = server.addr.port();
    let listen = format!("0.0.0.0:{port}");
    let url = format!("http://127.0.0.1:{port}/actuator/health/readiness");

    let found = health(&[], &[("RATELIMIT_LISTEN", &listen)]);
    let named = health(&[&url], &[]);
    drop(server);
    let gone = health(&[], &[("RATELIMIT_LISTEN", &listen)]);

    for output in [found, named] {
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, b"{\"status\":\"UP\"}\n");
    }
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
    assert_eq!(String::from_utf8(gone.stderr).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn health_fails_while_the_server_is_not_ready_only_if_asked_for_readiness() {
    let server = Server::start(&["--redis", "redis://127.0.0.1:1"]);
    let url = format!("http://{}", server.addr);

    let alive = health(&[&url], &[]);
    let ready = health(&[&format!("{url}/actuator/health/readiness")], &[]);

    assert!(alive.status.success(), "{alive:?}");
    assert_eq!(ready.status.code(), Some(1), "{ready:?}");
    let told = String::from_utf8(ready.stderr).unwrap();
    assert!(told.contains("503"), "{told}");
}

#[tokio::test]
async fn health_works_over_tls_and_prefers_the_admin_listener() {
    let certificates = Certificates::new();
    let [cert, key, root] =
        ["server.pem", "server.key", "root.pem"].map(|name| certificates.file(name));
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    let mutual = ["--tls-client-ca", &root, "--admin-listen", "127.0.0.1:0"];
    let server = Server::start(&[tls, mutual].concat());
    let (_, admin) = server.banner.split_once("metrics    https://").unwrap();
    let admin = admin.split('/').next().unwrap();
    let listen = server.addr.to_string();
    let mut variables = vec![
        ("RATELIMIT_LISTEN", listen.as_str()),
        ("RATELIMIT_TLS_CERT", &cert),
        ("RATELIMIT_TLS_KEY", &key),
    ];

    let without_certificate = health(&[], &variables);
    variables.push(("RATELIMIT_ADMIN_LISTEN", admin));
    let on_the_admin_listener = health(&[], &variables);

    assert_eq!(
        without_certificate.status.code(),
        Some(1),
        "{without_certificate:?}"
    );
    assert!(
        on_the_admin_listener.status.success(),
        "{on_the_admin_listener:?}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn systemd_accepts_the_unit_and_hands_the_token_over() {
    let dir = TempDir::new().unwrap();
    let unit = dir.path().join("ratelimit-server.service");
    let installed = "/usr/local/bin/ratelimit-server";
    assert!(UNIT.contains(installed));
    let built = UNIT.replace(installed, env!("CARGO_BIN_EXE_ratelimit-server"));
    fs::write(&unit, built).unwrap();

    let output = std::process::Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&unit)
        .output()
        .expect("systemd-analyze, as in `apt-get install systemd`");

    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(!told.contains("ratelimit-server.service"), "{told}");
    assert!(UNIT.contains("LoadCredential=admin-token:"));
    assert!(UNIT.contains("--admin-token-file %d/admin-token"));
    assert!(!UNIT.contains("Documentation="), "no address");
}

#[test]
fn the_unit_gives_up_what_the_server_does_not_need() {
    for option in [
        "DynamicUser=yes",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "PrivateTmp=yes",
        "PrivateDevices=yes",
        "PrivateUsers=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
        "RestrictNamespaces=yes",
        "RestrictSUIDSGID=yes",
        "MemoryDenyWriteExecute=yes",
        "SystemCallArchitectures=native",
        "SystemCallFilter=@system-service",
        "SystemCallFilter=~@privileged @resources",
    ] {
        assert!(UNIT.lines().any(|line| line == option), "{option}");
    }
}

/// From 0 for a service that is shut off to 10 for one that may do everything.
///
/// Each version of systemd weighs options of its own, so the bound is generous; version 252 finds 1.2.
#[cfg(target_os = "linux")]
#[test]
fn systemd_finds_the_unit_little_exposed() {
    let dir = TempDir::new().unwrap();
    let unit = dir.path().join("ratelimit-server.service");
    fs::write(&unit, UNIT).unwrap();

    let output = std::process::Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager"])
        .arg(&unit)
        .output()
        .expect("systemd-analyze, as in `apt-get install systemd`");

    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let (_, level) = text.split_once("Overall exposure level for").unwrap();
    let level = level.split(": ").nth(1).unwrap().split(' ').next().unwrap();
    println!("exposure level: {level}");
    let (whole, tenths) = level.split_once('.').unwrap();
    let tenths = whole.parse::<u32>().unwrap() * 10 + tenths.parse::<u32>().unwrap();
    assert!(tenths <= 30, "{text}");
}
