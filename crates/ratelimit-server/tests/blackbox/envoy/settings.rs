//! Rules and settings of the service: start, reload and check.

use std::{fs, os::unix::fs::symlink, path::Path, process::Output};

use ratelimit_envoy::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tempfile::TempDir;

use super::{EnvoyServer, request};
use crate::server::{binary, until};

const RELOADS: &str = "rate_limiter_envoy_reloads_total";

fn rules(limit: u32) -> String {
    format!(
        "domain: edge\ndescriptors:\n- key: user\n  rate_limit: {{ unit: day, requests_per_unit: {limit} }}\n"
    )
}

impl EnvoyServer {
    /// The limit of a user, and how many requests are left.
    async fn limit(&self) -> (u32, u32) {
        let mut look = request("edge", "user", b"a");
        look.descriptors[0].hits_addend = Some(0);
        let response = self.ask(look).await.unwrap();
        let status = &response.statuses[0];
        let limit = status.current_limit.as_ref().unwrap();
        (limit.requests_per_unit, status.limit_remaining)
    }
}

#[tokio::test]
async fn changed_rules_apply_and_keep_their_counts() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    // A mounted ConfigMap: the link `..data` is swapped.
    for (version, limit) in [("..1", 5), ("..2", 9)] {
        fs::create_dir(path(version)).unwrap();
        fs::write(path(version).join("rules.yaml"), rules(limit)).unwrap();
    }
    symlink("..1", path("..data")).unwrap();
    symlink("..data/rules.yaml", path("rules.yaml")).unwrap();
    let (next, data) = (path("..next"), path("..data"));
    let envoy = EnvoyServer::start_in(dir, &[]);
    let spent = envoy.ask(request("edge", "user", b"a")).await.unwrap();
    assert_eq!(spent.overall_code(), Code::Ok);
    assert_eq!(envoy.limit().await, (5, 4));

    symlink("..2", &next).unwrap();
    fs::rename(next, data).unwrap();

    until(async || (envoy.limit().await == (9, 8)).then_some(())).await;
    until(async || (envoy.metric(RELOADS, r#"result="ok""#).await == 1).then_some(())).await;
}

#[tokio::test]
async fn faulty_rules_are_refused_and_the_old_ones_stay() {
    let envoy = EnvoyServer::start(&rules(5), &[]);

    envoy.write_rules("domain: edge\ndescriptors:\n- key: user\n  limit: 5\n");

    until(async || (envoy.metric(RELOADS, r#"result="rejected""#).await == 1).then_some(())).await;
    assert_eq!(envoy.limit().await, (5, 5));
    let log = envoy.server.log();
    assert!(log.contains("rules.yaml:4: error[unknown-field]"), "{log}");
    assert!(log.contains("the old ones stay"), "{log}");

    envoy.write_rules(&rules(6));

    until(async || (envoy.limit().await == (6, 6)).then_some(())).await;
}

fn run(args: &[&str]) -> (Output, String, String) {
    let output = binary().args(args).output().unwrap();
    let out = String::from_utf8(output.stdout.clone()).unwrap();
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    (output, out, error)
}

fn directory(files: &[(&str, &str)]) -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    for (name, text) in files {
        fs::write(dir.path().join(name), text).unwrap();
    }
    let path = dir.path().to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn check_config_reads_the_directory() {
    let warned = "domain: web\ndomain: edge\n";
    let (_dir, path) = directory(&[("a.yaml", warned), ("b.yaml", "domain: other")]);

    let (output, out, _) = run(&["check-config", "--envoy-config", &path]);

    assert!(output.status.success(), "{out}");
    for line in [
        &format!("{path}/a.yaml:2: warning[repeated-field]: "),
        &format!("{path}: domain \"edge\"\n{path}: domain \"other\"\n{path}: ok\n"),
    ] {
        assert!(out.contains(line), "{out}");
    }
    let (strict, ..) = run(&["check-config", "--envoy-config", &path, "--strict"]);
    assert_eq!(strict.status.code(), Some(1));

    fs::write(Path::new(&path).join("c.yaml"), "domain: other\n").unwrap();
    let (output, out, error) = run(&["check-config", "--envoy-config", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out.contains("c.yaml:1: error[duplicate-name]"), "{out}");
    assert!(error.contains("c.yaml: 1 error"), "{error}");
}

#[test]
fn check_config_of_a_file_reads_the_directory_that_it_names() {
    let (_dir, path) = directory(&[("c.yaml", "domain: ''\n")]);
    let file = TempDir::new().unwrap();
    let file = file.path().join("server.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = format!("envoy-listen = '127.0.0.1:0'\nenvoy-config = '{path}'\n");
    fs::write(&file, text).unwrap();

    let (output, out, _) = run(&["check-config", file.to_str().unwrap()]);

    assert_eq!(output.status.code(), Some(1));
    assert!(out.contains("c.yaml:1: error[missing-field]"), "{out}");
}

#[test]
fn the_server_does_not_start_with_settings_that_have_no_effect_or_faulty_rules() {
    let (_good, good) = directory(&[("a", "domain: edge\n")]);
    let (_bad, bad) = directory(&[("a", "domain: edge\nlimits: 5\n")]);
    let listen = ["--listen", "127.0.0.1:0", "--envoy-listen", "127.0.0.1:0"];
    let xds = ["--envoy-xds-server", "http://a:1"];
    let xds_tls = ["--envoy-xds-server", "https://a:1"];
    for (args, expected) in [
        (
            &["--envoy-config", &good][..],
            "envoy-config has no effect without envoy-listen",
        ),
        (
            &["--envoy-merge-domains"],
            "envoy-merge-domains has no effect without envoy-listen",
        ),
        (
            &["--envoy-ignore-dot-files"],
            "envoy-ignore-dot-files has no effect without envoy-listen",
        ),
        (
            &["--envoy-dynamic-metadata"],
            "envoy-dynamic-metadata has no effect without envoy-listen",
        ),
        (
            &listen,
            "envoy-listen needs envoy-config or rules in the file",
        ),
        (
            &["--envoy-xds-server", "http://a:1"],
            "envoy-xds-server has no effect without envoy-listen",
        ),
        (
            &["--envoy-xds-node-id", "a"],
            "envoy-xds-node-id has no effect without envoy-listen",
        ),
        (
            &[
                &listen[..],
                &["--envoy-config", &good, "--envoy-xds-key", "a"],
            ]
            .concat(),
            "envoy-xds-key has no effect without envoy-xds-server",
        ),
        (
            &[&listen[..], &xds, &["--envoy-config", &good]].concat(),
            "envoy-config is not possible beside envoy-xds-server",
        ),
        (
            &[&listen[..], &xds, &["--envoy-ignore-dot-files"]].concat(),
            "envoy-ignore-dot-files has no effect without envoy-config",
        ),
        (
            &[&listen[..], &["--envoy-xds-server", "http://u:s3cr3t@a:1"]].concat(),
            "envoy-xds-server: expected an address such as http://127.0.0.1:18001",
        ),
        (
            &[&listen[..], &["--envoy-xds-server", "http://a:180010"]].concat(),
            "envoy-xds-server: expected a port from 1 to 65535",
        ),
        (
            &[&listen[..], &xds, &["--envoy-xds-node-id", ""]].concat(),
            "envoy-xds-node-id is an empty text",
        ),
        (
            &[&listen[..], &xds, &["--envoy-xds-ca", "a"]].concat(),
            "envoy-xds-ca has no effect without an https:// address",
        ),
        (
            &[&listen[..], &xds, &["--envoy-xds-server-name", "a"]].concat(),
            "envoy-xds-server-name has no effect without an https:// address",
        ),
        (
            &[&listen[..], &xds_tls, &["--envoy-xds-cert", "a"]].concat(),
            "envoy-xds-cert and envoy-xds-key need each other",
        ),
        (
            &[&listen[..], &xds_tls, &["--envoy-xds-ca", "/nonexistent"]].concat(),
            "/nonexistent cannot be read",
        ),
        (
            &[&listen[..], &xds_tls, &["--envoy-xds-server-name", "a b"]].concat(),
            "the name of the xDS server",
        ),
        (
            &[&listen[..], &["--envoy-merge-domains"]].concat(),
            "envoy-merge-domains has no effect without envoy-config",
        ),
        (
            &[&listen[..], &["--envoy-config", &bad]].concat(),
            "a:2: error[unknown-field]",
        ),
        (
            &[&listen[..], &["--envoy-config", "/nonexistent"]].concat(),
            "/nonexistent cannot be read",
        ),
    ] {
        let (output, _, error) = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("s3cr3t"), "{error}");
    }
}
