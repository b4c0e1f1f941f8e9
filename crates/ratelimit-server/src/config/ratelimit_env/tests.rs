//! Tests of the variables of Envoy's rate limit server.

use std::collections::{BTreeSet, HashMap};

use super::*;
use crate::config::Config;

const PAGE: &str = include_str!("../../../../../docs/move/envoy-ratelimit.md");

/// The settings of some variables, or the reason why they are refused.
fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
    read_beside(variables, &Settings::default(), &Settings::default())
}

/// The same beside flags and a file.
fn read_beside(
    variables: &[(&str, &str)],
    own: &Settings,
    file: &Settings,
) -> Result<Settings, String> {
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    let variables = Variables(|name: &str| variables.get(name).map(|value| (*value).to_owned()));
    let settings = variables.settings(own, file);
    settings.map_err(|why| why.to_string())
}

fn notes(variables: &[(&str, &str)], own: &Settings) -> Vec<String> {
    let variables: HashMap<&str, &str> = variables.iter().copied().collect();
    let variables = Variables(|name: &str| variables.get(name).map(|value| (*value).to_owned()));
    let notes = variables.notes(own).into_iter();
    notes
        .map(|note| format!("{} {note}", note.is_warning))
        .collect()
}

#[test]
fn without_variables_the_addresses_are_those_of_the_other_server() {
    let settings = read(&[]).unwrap();

    assert_eq!(settings.listen, Some(([0, 0, 0, 0], 8080).into()));
    assert_eq!(
        settings.envoy_listen,
        Some(ListenAddr::Tcp(([0, 0, 0, 0], 8081).into()))
    );
    let directory = settings.envoy_config.unwrap();
    assert_eq!(directory.to_str(), Some("/srv/runtime_data/current/config"));
    assert_eq!(settings.envoy.envoy_ratelimit_metrics, Some(true));
    assert!(settings.redis.is_none() && settings.envoy.envoy_metrics_listen.is_none());
}

#[test]
fn every_kind_of_redis_has_an_address() {
    for (variables, expected) in [
        (vec![("REDIS_URL", "redis:6379")], "redis://redis:6379"),
        (
            vec![("REDIS_URL", "redis:6379"), ("REDIS_AUTH", "p@ss")],
            "redis://:p%40ss@redis:6379",
        ),
        (
            vec![
                ("REDIS_URL", "r:1"),
                ("REDIS_AUTH", "me:x/y"),
                ("REDIS_TLS", "true"),
            ],
            "rediss://me:x%2Fy@r:1",
        ),
        (
            vec![("REDIS_URL", "/run/r.sock")],
            "redis+unix:///run/r.sock",
        ),
        (
            vec![("REDIS_URL", "/run/r.sock"), ("REDIS_AUTH", "a:b")],
            "redis+unix:///run/r.sock?user=a&pass=b",
        ),
        (
            vec![("REDIS_URL", "redis://u:p@r:1/2")],
            "redis://u:p@r:1/2",
        ),
        (
            vec![
                ("REDIS_URL", "redis://r:1"),
                ("REDIS_TLS", "1"),
                ("REDIS_AUTH", "p"),
            ],
            "rediss://:p@r:1",
        ),
        (
            vec![("REDIS_TYPE", "cluster"), ("REDIS_URL", "a:1,b:2")],
            "redis+cluster://a:1,b:2",
        ),
        (
            vec![
                ("REDIS_TYPE", "CLUSTER"),
                ("REDIS_SOCKET_TYPE", "unix"),
                ("REDIS_URL", "redis://a:1,redis://b:2"),
            ],
            "redis+cluster://a:1,b:2",
        ),
        (
            vec![
                ("REDIS_TYPE", "SENTINEL"),
                ("REDIS_URL", "mymaster,a:1,b:2"),
                ("REDIS_AUTH", "p"),
                ("REDIS_SENTINEL_AUTH", "s?t"),
            ],
            "redis+sentinel://:p@a:1,b:2/mymaster?sentinel_password=s%3Ft",
        ),
    ] {
        let url = read(&variables).unwrap().redis.unwrap().0;
        assert_eq!(url, expected);
        assert!(url.parse::<RedisUrl>().is_ok(), "{url}");
    }
}

#[test]
fn a_value_that_is_not_honoured_is_refused_with_its_variable() {
    for (variable, value) in [
        ("BACKEND_TYPE", "memcache"),
        ("CONFIG_TYPE", "GRPC_XDS_DELTA"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "a b"),
        ("SHADOW_MODE", "yes"),
        ("PORT", "http"),
        ("GRPC_PORT", "70000"),
        ("RUNTIME_WATCH_ROOT", "perhaps"),
        ("HOST", "example.com"),
        ("REDIS_TIMEOUT", "10"),
        ("NEAR_LIMIT_RATIO", "2"),
        ("LOG_LEVEL", "loud"),
        ("GRPC_UDS", "relative.sock"),
        ("GRPC_SERVER_USE_TLS", "true"),
    ] {
        let xds = variable.starts_with("CONFIG_GRPC").then_some(XDS);
        let mut variables = vec![(variable, value)];
        variables.extend(xds.map(|source| ("CONFIG_TYPE", source)));
        let why = read(&variables).unwrap_err();
        let named = match variable {
            "GRPC_SERVER_USE_TLS" => "GRPC_SERVER_TLS_CERT",
            variable => variable,
        };
        assert!(why.starts_with(&format!("{named}: ")), "{why}");
    }
    let sentinel = [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", "a:1")];
    assert!(read(&sentinel).unwrap_err().starts_with("REDIS_URL: "));
    let unknown = [("REDIS_TYPE", "RING"), ("REDIS_URL", "a:1")];
    assert!(read(&unknown).unwrap_err().starts_with("REDIS_TYPE: "));
    for (variable, value) in [("LIMIT_LIMIT_HEADER", "a b"), ("LIMIT_RESET_HEADER", "a,b")] {
        let why = read(&[("LIMIT_RESPONSE_HEADERS_ENABLED", "1"), (variable, value)]);
        let why = why.unwrap_err();
        assert!(why.starts_with(&format!("{variable}: ")), "{why}");
    }
}

#[test]
fn an_address_of_redis_that_contradicts_itself_is_refused() {
    const SKIP: &str = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION";
    for (named, variables) in [
        (
            "REDIS_TLS",
            vec![("REDIS_URL", "/r.sock"), ("REDIS_TLS", "1")],
        ),
        (
            "REDIS_SOCKET_TYPE",
            vec![("REDIS_URL", "r:1"), ("REDIS_SOCKET_TYPE", "unix")],
        ),
        (
            "REDIS_SOCKET_TYPE",
            vec![("REDIS_URL", "/r.sock"), ("REDIS_SOCKET_TYPE", "tcp")],
        ),
        (
            "REDIS_SOCKET_TYPE",
            vec![("REDIS_URL", "r:1"), ("REDIS_SOCKET_TYPE", "quic")],
        ),
        (
            "REDIS_URL",
            vec![("REDIS_URL", "redis://:p@a:1"), ("REDIS_TYPE", "CLUSTER")],
        ),
        (
            "REDIS_URL",
            vec![("REDIS_URL", "my/master,a:1"), ("REDIS_TYPE", "SENTINEL")],
        ),
        (
            "REDIS_URL",
            vec![("REDIS_URL", "master,"), ("REDIS_TYPE", "SENTINEL")],
        ),
        (
            "REDIS_SENTINEL_AUTH",
            vec![
                ("REDIS_URL", "master,a:1"),
                ("REDIS_TYPE", "SENTINEL"),
                ("REDIS_SENTINEL_AUTH", "user:s3cret"),
            ],
        ),
        (SKIP, vec![("REDIS_TLS", "true"), (SKIP, "true")]),
    ] {
        let why = read(&variables).unwrap_err();
        assert!(why.starts_with(&format!("{named}: ")), "{why}");
        assert!(!why.contains("s3cret"), "{why}");
    }
    // Without TLS no name is checked.
    assert!(read(&[(SKIP, "true")]).is_ok());
}

#[test]
fn a_default_of_the_other_server_does_not_go_before_the_file() {
    let mut file = Settings {
        listen: Some(([127, 0, 0, 1], 1).into()),
        envoy_listen: Some(ListenAddr::Tcp(([127, 0, 0, 1], 2).into())),
        envoy_config: Some("/etc/rules".into()),
        ..Settings::default()
    };
    file.envoy.envoy_ratelimit_metrics = Some(false);
    let own = Settings::default();

    let unset = read_beside(&[], &own, &file).unwrap();
    let set = [("PORT", "9"), ("GRPC_PORT", "9"), ("RUNTIME_ROOT", "/r")];
    let set = read_beside(&set, &own, &file).unwrap();

    assert!(unset.listen.is_none() && unset.envoy_listen.is_none());
    assert!(unset.envoy_config.is_none());
    assert_eq!(unset.envoy.envoy_ratelimit_metrics, Some(false));
    assert_eq!(set.listen.unwrap().to_string(), "0.0.0.0:9");
    assert_eq!(set.envoy_listen.unwrap().to_string(), "0.0.0.0:9");
    assert_eq!(set.envoy_config.unwrap().to_str(), Some("/r/config"));

    // A flag goes before the variables of files.
    let mut own = Settings::default();
    own.xds.envoy_xds_server = Some("http://127.0.0.1:1".parse().unwrap());
    let variables = [("RUNTIME_ROOT", "/r")];
    let read = read_beside(&variables, &own, &Settings::default()).unwrap();
    assert!(read.envoy_config.is_none());
    let notes = notes(&variables, &own);
    assert_eq!(
        notes,
        ["true RUNTIME_ROOT: it has no effect, because envoy-xds-server is set"]
    );
}

#[test]
fn rules_that_the_other_server_reads_beside_the_directory_are_an_error() {
    let root = tempfile::TempDir::new().unwrap();
    let path = root.path().to_str().unwrap();
    std::fs::create_dir(root.path().join("config")).unwrap();
    assert!(read(&[("RUNTIME_ROOT", path)]).is_ok());
    std::fs::write(root.path().join("config.extra.yaml"), "").unwrap();

    let why = read(&[("RUNTIME_ROOT", path)]).unwrap_err();
    let unwatched = read(&[("RUNTIME_ROOT", path), ("RUNTIME_WATCH_ROOT", "false")]);
    let other = read(&[("RUNTIME_ROOT", path), ("RUNTIME_APPDIRECTORY", "rules")]);
    let itself = read(&[("RUNTIME_ROOT", path), ("RUNTIME_APPDIRECTORY", "")]);

    assert!(why.starts_with("RUNTIME_WATCH_ROOT: "), "{why}");
    assert!(why.contains("config.extra.yaml"), "{why}");
    assert!(unwatched.is_ok() && other.is_ok());
    assert_eq!(itself.unwrap().envoy_config.unwrap(), root.path());
}

#[test]
fn settings_are_read_from_their_variables() {
    let settings = read(&[
        ("HOST", "::"),
        ("PORT", "9000"),
        ("GRPC_UDS", "/run/ratelimit.sock"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_APPDIRECTORY", "rules"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("MERGE_DOMAIN_CONFIG", "true"),
        ("RESPONSE_DYNAMIC_METADATA", "true"),
        ("REDIS_URL", "r:1"),
        ("REDIS_TIMEOUT", "1m1.5s"),
        ("CACHE_KEY_PREFIX", "shop"),
        ("SHADOW_MODE", "true"),
        ("QUOTA_MODE", "t"),
        ("NEAR_LIMIT_RATIO", "0.5"),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", ":19001"),
        ("PROMETHEUS_PATH", "/stats"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LIMIT_RESET_HEADER", "X-Reset"),
        ("LOG_LEVEL", "FATAL"),
        ("LOG_FORMAT", "JSON"),
    ])
    .unwrap();

    assert_eq!(settings.listen.unwrap().to_string(), "[::]:9000");
    let envoy = settings.envoy_listen.clone().unwrap();
    assert_eq!(envoy.to_string(), "unix:/run/ratelimit.sock");
    let directory = settings.envoy_config.clone().unwrap();
    assert_eq!(directory.to_str(), Some("/data/ratelimit/rules"));
    assert_eq!(settings.time_budget.unwrap().0.as_millis(), 61_500);
    let own = &settings.envoy;
    let listen = own.envoy_metrics_listen.unwrap();
    assert_eq!(listen.to_string(), "0.0.0.0:19001");
    let headers = own.envoy_response_headers.as_ref().unwrap();
    assert_eq!(
        headers.0,
        ["RateLimit-Limit", "RateLimit-Remaining", "X-Reset"]
    );
    let set = settings.changes_needing_restart(&Settings::default());
    for setting in [
        "envoy-ignore-dot-files",
        "envoy-merge-domains",
        "envoy-dynamic-metadata",
        "redis-prefix",
        "envoy-shadow",
        "envoy-quota",
        "envoy-near-limit-ratio",
        "envoy-metrics-path",
        "log",
        "log-format",
    ] {
        assert!(set.iter().any(|set| set == setting), "{setting}: {set:?}");
    }
    Config::of(settings).unwrap();
}

#[test]
fn rules_over_xds_take_the_place_of_the_files() {
    let variables = [
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "ca.crt"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
    ];

    let settings = read(&variables).unwrap();
    let server = settings.xds.envoy_xds_server.as_ref().unwrap();
    assert_eq!(
        server.url().unwrap().to_string(),
        "http://envoy-gateway:18001"
    );
    let config = Config::of(settings).unwrap();
    assert!(config.envoy.unwrap().directory.is_none());
    assert_eq!(
        notes(&variables, &Settings::default()),
        [
            "true RUNTIME_ROOT: it has no effect with CONFIG_TYPE=GRPC_XDS_SOTW",
            "true RUNTIME_IGNOREDOTFILES: it has no effect with CONFIG_TYPE=GRPC_XDS_SOTW",
            "true CONFIG_GRPC_XDS_SERVER_TLS_CACERT: it has no effect without CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
        ]
    );
    let tls = [
        &variables[..4],
        &[("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true")],
    ]
    .concat();
    let settings = read(&tls).unwrap();
    let server = settings.xds.envoy_xds_server.as_ref().unwrap();
    assert_eq!(
        server.url().unwrap().to_string(),
        "https://envoy-gateway:18001"
    );
    let ca = settings.xds.envoy_xds_ca.as_deref();
    assert_eq!(ca, Some(std::path::Path::new("ca.crt")));
    let unused = notes(&variables[1..3], &Settings::default());
    assert_eq!(
        unused,
        [
            "true CONFIG_GRPC_XDS_NODE_ID: it has no effect with CONFIG_TYPE=FILE",
            "true CONFIG_GRPC_XDS_SERVER_URL: it has no effect with CONFIG_TYPE=FILE",
        ]
    );
}

#[test]
fn a_variable_that_is_not_read_is_named_with_its_replacement() {
    let own = Settings {
        listen: Some(([127, 0, 0, 1], 1).into()),
        ..Settings::default()
    };
    let variables = [
        ("REDIS_POOL_SIZE", "20"),
        ("USE_STATSD", "false"),
        ("TRACING_ENABLED", "true"),
        ("PORT", "8080"),
        ("GRPC_PORT", "8081"),
        ("PROMETHEUS_ADDR", ":9090"),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", "root.pem"),
        ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false"),
    ];

    let own_notes = notes(&variables, &own);

    assert_eq!(
        own_notes,
        [
            "true PORT: it has no effect, because listen is set",
            "true PROMETHEUS_ADDR: it has no effect without USE_PROMETHEUS=true",
            "false REDIS_POOL_SIZE: there is no pool: calls share a connection",
            "true TRACING_ENABLED: there are no traces of OpenTelemetry",
        ]
    );
    let variables = [
        ("GRPC_UDS", "/run/e.sock"),
        ("GRPC_PORT", "8081"),
        ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true"),
        ("REDIS_URL", "redis://:own@r:1"),
        ("REDIS_AUTH", "s3cret"),
        ("REDIS_SENTINEL_AUTH", "s3cret"),
        ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "true"),
    ];
    assert_eq!(
        notes(&variables, &Settings::default()),
        [
            "true GRPC_PORT: it has no effect, because GRPC_UDS is set",
            "true HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED: /healthcheck does not wait for rules: probe /actuator/health/readiness, which does",
            "true REDIS_AUTH: it has no effect, because REDIS_URL has credentials",
            "true REDIS_SENTINEL_AUTH: it has no effect without REDIS_TYPE=SENTINEL",
            "true REDIS_TLS_SKIP_HOSTNAME_VERIFICATION: it has no effect without REDIS_TLS=true",
        ]
    );
}

#[test]
fn the_page_lists_every_variable_with_its_use() {
    let (_, page) = PAGE.split_once("\n## Environment\n").unwrap();
    let (page, _) = page.split_once("\n## Metrics\n").unwrap();
    let rows = page.lines().filter_map(|line| {
        let (names, used) = line.strip_prefix("| `")?.split_once("` | ")?;
        let used = used.trim_end_matches(" |");
        Some(names.split("`, `").map(move |name| (name, used)))
    });
    let listed: BTreeSet<(&str, &str)> = rows
        .flatten()
        .filter(|(name, _)| {
            name.bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
        })
        .collect();
    let known = VARIABLES.iter().map(|(name, used)| {
        let used = match used {
            Use::Setting(setting) => format!("`{setting}`"),
            Use::Needless(why) => format!("nothing is needed: {why}"),
            Use::Missing(why) => format!("warning: {why}"),
        };
        (*name, used)
    });
    let known: Vec<(&str, String)> = known.collect();
    let known: BTreeSet<(&str, &str)> = known.iter().map(|(name, used)| (*name, &**used)).collect();

    assert_eq!(listed, known);
}
