//! The environment of Envoy's own rate limit server.

use std::{
    fs,
    os::unix::{fs::symlink, process::CommandExt as _},
    path::Path,
    process::{Command, Output},
};

use ratelimit_envoy::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimit_tests::{chaos::Certificates, redis::RedisProcess};
use tempfile::TempDir;

use super::{EnvoyServer, ask_by_curl, request};
use crate::server::{Server, binary, until};

const RULES: &str = "
domain: edge
descriptors:
  - key: PATH
    value: /
    rate_limit: { unit: day, requests_per_unit: 1 }
  - key: PATH
    rate_limit: { unit: day, requests_per_unit: 2 }
";

/// A root with the rules as a mounted `ConfigMap` has them: links to files in a folder that is swapped.
fn mounted_rules() -> TempDir {
    let root = TempDir::new().unwrap();
    let config = root.path().join("ratelimit/config");
    let version = config.join("..2026_11_17");
    fs::create_dir_all(&version).unwrap();
    fs::write(version.join("config.yaml"), RULES).unwrap();
    symlink("..2026_11_17", config.join("..data")).unwrap();
    symlink("..data/config.yaml", config.join("config.yaml")).unwrap();
    root
}

/// The server under a name, with variables and nothing else.
fn called(name: &str, variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(binary().get_program());
    command.env_clear().envs(variables.iter().copied());
    command.arg0(name).args(["--drain-delay", "0"]);
    command
}

fn host_and_port(redis: &RedisProcess) -> String {
    redis
        .url()
        .trim_start_matches("redis://")
        .trim_end_matches('/')
        .to_owned()
}

async fn is_healthy(server: &Server) -> bool {
    let response = server.get("/healthcheck").await;
    match response.status.as_u16() {
        200 => {
            assert_eq!(response.body, "OK");
            true
        }
        503 => false,
        status => panic!("{status}"),
    }
}

#[tokio::test]
async fn the_environment_of_istios_sample_starts_and_limits() {
    let redis = RedisProcess::start(&[]);
    let root = mounted_rules();
    let address = host_and_port(&redis);
    // Those of samples/ratelimit/rate-limit-service.yaml, with other addresses.
    let variables = [
        ("LOG_LEVEL", "debug"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &address),
        ("USE_STATSD", "false"),
        ("RUNTIME_ROOT", root.path().to_str().unwrap()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("HOST", "::"),
        ("GRPC_HOST", "::"),
        ("PORT", "0"),
        ("GRPC_PORT", "0"),
    ];
    let server = Server::spawn(called("/bin/ratelimit", &variables));
    let mut envoy = EnvoyServer::of(server, root);
    until(async || is_healthy(&envoy.server).await.then_some(())).await;

    for (path, expected) in [
        (&b"/"[..], Code::Ok),
        (b"/", Code::OverLimit),
        (b"/a", Code::Ok),
        (b"/a", Code::Ok),
        (b"/a", Code::OverLimit),
    ] {
        let response = envoy.ask(request("edge", "PATH", path)).await.unwrap();
        assert_eq!(response.overall_code(), expected);
    }

    let total = "ratelimit_service_rate_limit_total_hits";
    assert_eq!(envoy.metric(total, r#"key1="PATH_/""#).await, 2);
    let log = envoy.server.log();
    assert!(
        log.contains("RUNTIME_WATCH_ROOT: the files are compared"),
        "{log}"
    );
    assert!(!log.contains("USE_STATSD"), "{log}");
    envoy.server.signal("TERM");
    assert!(envoy.server.ended().await.success());
}

#[tokio::test]
async fn the_environment_of_envoy_gateway_without_xds_starts_and_limits() {
    let redis = RedisProcess::start(&[]);
    let root = mounted_rules();
    let certificates = Certificates::new();
    let [cert, key, ca] =
        ["server.pem", "server.key", "root.pem"].map(|name| certificates.file(name));
    let address = host_and_port(&redis);
    let variables = [
        ("RUNTIME_ROOT", root.path().to_str().unwrap()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("LOG_LEVEL", "info"),
        ("USE_STATSD", "false"),
        ("CONFIG_TYPE", "FILE"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &cert),
        ("GRPC_SERVER_TLS_KEY", &key),
        ("GRPC_SERVER_TLS_CA_CERT", &ca),
        ("GRPC_CLIENT_TLS_CACERT", &ca),
        ("GRPC_CLIENT_TLS_SAN", "client.test"),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &address),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", "127.0.0.1:0"),
        ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
        ("HOST", "127.0.0.1"),
        ("PORT", "0"),
        ("GRPC_PORT", "0"),
    ];
    let server = Server::spawn(called("/bin/ratelimit", &variables));
    let (_, metrics) = server.banner.split_once("             http://").unwrap();
    let metrics = format!("http://{}", metrics.lines().next().unwrap());
    let envoy = EnvoyServer::of(server, root);
    // The probes are in clear text, although Envoy's listener has TLS.
    until(async || is_healthy(&envoy.server).await.then_some(())).await;

    let url = format!("https://localhost:{}", envoy.addr.port());
    let ask = |client: &str| {
        let [cert, key] = ["pem", "key"].map(|end| certificates.file(&format!("{client}.{end}")));
        let args = ["--cacert", &ca, "--cert", &cert, "--key", &key];
        ask_by_curl(&url, &request("edge", "PATH", b"/"), &args)
    };
    assert_eq!(ask("client").unwrap().overall_code(), Code::Ok);
    assert_eq!(ask("client").unwrap().overall_code(), Code::OverLimit);
    // Signed by the same root, and of another name.
    let wrong_name = ask("server");
    assert!(wrong_name.is_err(), "{wrong_name:?}");

    let page = Command::new("curl")
        .args(["-sS", &metrics])
        .output()
        .unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(metrics.ends_with("/metrics"));
    let over = "ratelimit_service_rate_limit_over_limit{";
    let line = page.lines().find(|line| line.starts_with(over)).unwrap();
    assert!(line.ends_with(" 1"), "{line}");
    let log = envoy.server.log();
    assert!(
        log.contains("PROMETHEUS_MAPPER_YAML: metrics have the default names"),
        "{log}"
    );
}

/// The end of a server that does not start.
fn refused(variables: &[(&str, &str)]) -> String {
    let mut command = Command::new("timeout");
    command.arg("20").arg(binary().get_program());
    command.env_clear().envs(variables.iter().copied());
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let Output { status, stderr, .. } = command.arg("--envoy-ratelimit-env").output().unwrap();
    assert_eq!(status.code(), Some(1));
    String::from_utf8(stderr).unwrap()
}

#[test]
fn a_variable_that_would_change_what_passes_is_an_error() {
    for (variable, value) in [
        ("BACKEND_TYPE", "memcache"),
        ("CONFIG_TYPE", "GRPC_XDS_DELTA"),
        ("SHADOW_MODE", "perhaps"),
    ] {
        let told = refused(&[(variable, value)]);
        assert!(told.starts_with(&format!("error: {variable}: ")), "{told}");
    }
    // The rules are where the other server has them.
    let told = refused(&[("RUNTIME_ROOT", "/nowhere")]);
    assert!(told.contains("/nowhere/config"), "{told}");
}

#[test]
fn a_variable_that_is_not_text_is_an_error() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
    let mut command = Command::new("timeout");
    command.arg("20").arg(binary().get_program());
    command.env("CACHE_KEY_PREFIX", OsStr::from_bytes(b"a\xff"));
    let ended = command.arg("--envoy-ratelimit-env").output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.starts_with("error: CACHE_KEY_PREFIX: "), "{told}");
}

#[test]
fn the_file_keeps_its_listener_unless_a_variable_names_another() {
    let root = mounted_rules();
    let config = root.path().join("server.toml");
    let listen = "listen = \"127.0.0.1:0\"\nenvoy-listen = \"127.0.0.1:0\"\n";
    fs::write(&config, listen).unwrap();
    let variables = [
        ("RUNTIME_ROOT", root.path().to_str().unwrap()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ];
    let mut command = called("ratelimit", &variables);
    command.arg("--config").arg(&config);

    let server = Server::spawn(command);

    let banner = &server.banner;
    assert!(banner.contains("listening  http://127.0.0.1:"), "{banner}");
    let envoy = super::envoy_listen(&server.banner);
    assert!(envoy.starts_with("127.0.0.1:"), "{envoy}");
}

#[tokio::test]
async fn healthcheck_fails_while_the_server_drains_and_not_without_redis() {
    let without = Server::start(&["--redis", "redis://127.0.0.1:1"]);
    assert!(is_healthy(&without).await);

    let server = Server::start(&["--drain-delay", "3s"]);
    assert!(is_healthy(&server).await);
    server.signal("TERM");
    until(async || (!is_healthy(&server).await).then_some(())).await;
}

#[tokio::test]
async fn a_setting_goes_before_a_variable_and_the_log_says_so() {
    let root = mounted_rules();
    let variables = [
        ("PORT", "1"),
        ("GRPC_PORT", "0"),
        ("RUNTIME_ROOT", root.path().to_str().unwrap()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("SHADOW_MODE", "true"),
    ];
    let mut command = called("ratelimit-server", &variables);
    command.args(["--listen", "127.0.0.1:0", "--envoy-ratelimit-env"]);

    let envoy = EnvoyServer::of(Server::spawn(command), root);

    for _ in 0..3 {
        let response = envoy.ask(request("edge", "PATH", b"/")).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
    }
    let log = envoy.server.log();
    assert!(
        log.contains("PORT: it has no effect, because listen is set"),
        "{log}"
    );
    assert!(log.contains("REDIS_URL: it is not set"), "{log}");
}

fn check(root: &Path, variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = Command::new(binary().get_program());
    command.env_clear().envs(variables.iter().copied());
    command
        .env("RUNTIME_ROOT", root)
        .env("RUNTIME_SUBDIRECTORY", "ratelimit");
    let args = [&["check-config", "--envoy-ratelimit-env"], args].concat();
    command.args(args).output().unwrap()
}

#[test]
fn check_config_says_what_becomes_of_each_variable() {
    let root = mounted_rules();
    let variables = [
        ("REDIS_URL", "redis:6379"),
        ("REDIS_POOL_SIZE", "10"),
        ("TRACING_ENABLED", "true"),
    ];

    let checked = check(root.path(), &variables, &[]);
    let strict = check(root.path(), &variables, &["--strict"]);
    let refused = check(root.path(), &[("BACKEND_TYPE", "memcache")], &[]);

    let told = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{told}");
    for line in [
        "environment: note[ratelimit-variable]: REDIS_POOL_SIZE: there is no pool: calls share a connection",
        "environment: warning[ratelimit-variable]: TRACING_ENABLED: there are no traces of OpenTelemetry",
        "domain \"edge\"",
        "environment: ok",
    ] {
        assert!(told.contains(line), "{told}");
    }
    assert_eq!(strict.status.code(), Some(1));
    assert_eq!(refused.status.code(), Some(1));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(told.contains("BACKEND_TYPE"), "{told}");
}
