//! Every variable of Envoy's rate limit server.

/// The use of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It is read into the setting of that name.
    Setting(&'static str),
    /// Nothing is needed in its place, for the reason given.
    Needless(&'static str),
    /// It asks for something that this server does not have.
    Missing(&'static str),
}

const AGE: Use = Use::Missing("connections are not closed by their age");
const DEBUG: Use = Use::Missing(
    "there is no debug listener; /actuator on the admin listener has metrics and info",
);
const XDS_RETRY: Use = Use::Needless("the server retries after 0.5 to 30 s, with jitter");
const STATSD: Use = Use::Missing("there is no statsd client: Prometheus reads the metrics");
const POOL: Use = Use::Needless("there is no pool: calls share a connection");
const PIPELINE: Use = Use::Needless("calls that wait are sent in batches without a delay");
const STARTUP: Use = Use::Needless("the server starts without Redis and connects when it answers");
const PER_SECOND: Use = Use::Missing("limits per second are counted in REDIS_URL like all others");
const MEMCACHE: Use = Use::Needless("memcache is not supported; BACKEND_TYPE is redis");
const TRACING: Use = Use::Missing("there are no traces of OpenTelemetry");

/// The variables, and their use.
pub(super) const VARIABLES: &[(&str, Use)] = &[
    ("HOST", Use::Setting("listen")),
    ("PORT", Use::Setting("listen")),
    ("GRPC_HOST", Use::Setting("envoy-listen")),
    ("GRPC_PORT", Use::Setting("envoy-listen")),
    ("GRPC_UDS", Use::Setting("envoy-listen")),
    ("GRPC_SERVER_USE_TLS", Use::Setting("envoy-tls-cert")),
    ("GRPC_SERVER_TLS_CERT", Use::Setting("envoy-tls-cert")),
    ("GRPC_SERVER_TLS_KEY", Use::Setting("envoy-tls-key")),
    (
        "GRPC_CLIENT_TLS_CACERT",
        Use::Setting("envoy-tls-client-ca"),
    ),
    ("GRPC_CLIENT_TLS_SAN", Use::Setting("envoy-tls-client-san")),
    (
        "GRPC_SERVER_TLS_CA_CERT",
        Use::Needless(
            "Envoy's rate limit server does not read it either; GRPC_CLIENT_TLS_CACERT asks for client certificates",
        ),
    ),
    ("GRPC_MAX_CONNECTION_AGE", AGE),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", AGE),
    ("DEBUG_HOST", DEBUG),
    ("DEBUG_PORT", DEBUG),
    ("LOG_LEVEL", Use::Setting("log")),
    ("LOG_FORMAT", Use::Setting("log-format")),
    ("CONFIG_TYPE", Use::Setting("envoy-xds-server")),
    ("RUNTIME_ROOT", Use::Setting("envoy-config")),
    ("RUNTIME_SUBDIRECTORY", Use::Setting("envoy-config")),
    ("RUNTIME_APPDIRECTORY", Use::Setting("envoy-config")),
    (
        "RUNTIME_IGNOREDOTFILES",
        Use::Setting("envoy-ignore-dot-files"),
    ),
    ("MERGE_DOMAIN_CONFIG", Use::Setting("envoy-merge-domains")),
    (
        "RUNTIME_WATCH_ROOT",
        Use::Needless("the files are compared every second, whatever is swapped"),
    ),
    (
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        Use::Needless(
            "the directory of rules must be readable at the start and may be empty; over xDS rules may come later",
        ),
    ),
    (
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        Use::Missing(
            "/healthcheck does not wait for rules: probe /actuator/health/readiness, which does",
        ),
    ),
    ("CONFIG_GRPC_XDS_NODE_ID", Use::Setting("envoy-xds-node-id")),
    (
        "CONFIG_GRPC_XDS_NODE_METADATA",
        Use::Missing("the node has an id and no metadata"),
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_URL",
        Use::Setting("envoy-xds-server"),
    ),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", XDS_RETRY),
    (
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        Use::Missing("requests to the xDS server have no additional headers"),
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_USE_TLS",
        Use::Setting("envoy-xds-server"),
    ),
    (
        "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
        Use::Setting("envoy-xds-cert"),
    ),
    (
        "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
        Use::Setting("envoy-xds-key"),
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
        Use::Setting("envoy-xds-ca"),
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
        Use::Setting("envoy-xds-server-name"),
    ),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", XDS_RETRY),
    ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", XDS_RETRY),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", XDS_RETRY),
    ("XDS_CLIENT_BACKOFF_JITTER", XDS_RETRY),
    (
        "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        Use::Needless("responses of up to 64 MiB are read"),
    ),
    ("USE_PROMETHEUS", Use::Setting("envoy-metrics-listen")),
    ("PROMETHEUS_ADDR", Use::Setting("envoy-metrics-listen")),
    ("PROMETHEUS_PATH", Use::Setting("envoy-metrics-path")),
    ("NEAR_LIMIT_RATIO", Use::Setting("envoy-near-limit-ratio")),
    (
        "PROMETHEUS_MAPPER_YAML",
        Use::Missing("metrics have the default names"),
    ),
    (
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        Use::Missing("times are in seconds"),
    ),
    ("USE_STATSD", STATSD),
    ("USE_DOG_STATSD", STATSD),
    ("USE_DOG_STATSD_MOGRIFIERS", STATSD),
    ("STATSD_HOST", STATSD),
    ("STATSD_PORT", STATSD),
    (
        "EXTRA_TAGS",
        Use::Missing("metrics have the label application and no others; Prometheus can add labels"),
    ),
    (
        "STATS_FLUSH_INTERVAL",
        Use::Needless("metrics are current whenever they are read"),
    ),
    (
        "DISABLE_STATS",
        Use::Needless("metrics are counted and cost nothing unless they are read"),
    ),
    ("REDIS_URL", Use::Setting("redis")),
    ("REDIS_TYPE", Use::Setting("redis")),
    ("REDIS_SOCKET_TYPE", Use::Setting("redis")),
    ("REDIS_AUTH", Use::Setting("redis")),
    ("REDIS_SENTINEL_AUTH", Use::Setting("redis")),
    ("REDIS_TLS", Use::Setting("redis")),
    ("REDIS_TLS_CACERT", Use::Setting("redis-ca")),
    ("REDIS_TLS_CLIENT_CERT", Use::Setting("redis-cert")),
    ("REDIS_TLS_CLIENT_KEY", Use::Setting("redis-key")),
    (
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        Use::Setting("redis"),
    ),
    ("CACHE_KEY_PREFIX", Use::Setting("redis-prefix")),
    ("REDIS_TIMEOUT", Use::Setting("time-budget")),
    ("REDIS_POOL_SIZE", POOL),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", POOL),
    ("REDIS_PIPELINE_WINDOW", PIPELINE),
    ("REDIS_PIPELINE_LIMIT", PIPELINE),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", PIPELINE),
    ("REDIS_STARTUP_INITIAL_INTERVAL", STARTUP),
    ("REDIS_STARTUP_MAX_INTERVAL", STARTUP),
    ("REDIS_STARTUP_MAX_ELAPSED_TIME", STARTUP),
    (
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        Use::Missing(
            "readiness fails until the first connection only, for at most readiness-grace: the failure mode decides in a later outage",
        ),
    ),
    ("REDIS_PERSECOND", PER_SECOND),
    ("REDIS_PERSECOND_SOCKET_TYPE", PER_SECOND),
    ("REDIS_PERSECOND_TYPE", PER_SECOND),
    ("REDIS_PERSECOND_URL", PER_SECOND),
    ("REDIS_PERSECOND_POOL_SIZE", PER_SECOND),
    ("REDIS_PERSECOND_AUTH", PER_SECOND),
    ("REDIS_PERSECOND_TLS", PER_SECOND),
    ("REDIS_PERSECOND_SENTINEL_AUTH", PER_SECOND),
    ("REDIS_PERSECOND_PIPELINE_WINDOW", PER_SECOND),
    ("REDIS_PERSECOND_PIPELINE_LIMIT", PER_SECOND),
    ("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", PER_SECOND),
    ("REDIS_PERSECOND_TIMEOUT", PER_SECOND),
    ("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", PER_SECOND),
    (
        "EXPIRATION_JITTER_MAX_SECONDS",
        Use::Needless("keys expire with their window"),
    ),
    (
        "LOCAL_CACHE_SIZE_IN_BYTES",
        Use::Needless("denials are cached in any case, in a bounded cache"),
    ),
    (
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        Use::Needless("a request that is denied is charged nothing in any case"),
    ),
    ("BACKEND_TYPE", Use::Setting("redis")),
    ("MEMCACHE_HOST_PORT", MEMCACHE),
    ("MEMCACHE_MAX_IDLE_CONNS", MEMCACHE),
    ("MEMCACHE_SRV", MEMCACHE),
    ("MEMCACHE_SRV_REFRESH", MEMCACHE),
    ("MEMCACHE_TLS", MEMCACHE),
    ("MEMCACHE_TLS_CLIENT_CERT", MEMCACHE),
    ("MEMCACHE_TLS_CLIENT_KEY", MEMCACHE),
    ("MEMCACHE_TLS_CACERT", MEMCACHE),
    ("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", MEMCACHE),
    (
        "LIMIT_RESPONSE_HEADERS_ENABLED",
        Use::Setting("envoy-response-headers"),
    ),
    ("LIMIT_LIMIT_HEADER", Use::Setting("envoy-response-headers")),
    (
        "LIMIT_REMAINING_HEADER",
        Use::Setting("envoy-response-headers"),
    ),
    ("LIMIT_RESET_HEADER", Use::Setting("envoy-response-headers")),
    ("SHADOW_MODE", Use::Setting("envoy-shadow")),
    ("QUOTA_MODE", Use::Setting("envoy-quota")),
    (
        "RESPONSE_DYNAMIC_METADATA",
        Use::Setting("envoy-dynamic-metadata"),
    ),
    ("TRACING_ENABLED", TRACING),
    ("TRACING_SERVICE_NAME", TRACING),
    ("TRACING_SERVICE_NAMESPACE", TRACING),
    ("TRACING_SERVICE_INSTANCE_ID", TRACING),
    ("TRACING_EXPORTER_PROTOCOL", TRACING),
    ("TRACING_SAMPLING_RATE", TRACING),
];

/// Variables that have no effect unless another one, the first, is true.
pub(super) const SWITCHES: &[(&str, &[&str])] = &[
    (
        "GRPC_SERVER_USE_TLS",
        &[
            "GRPC_SERVER_TLS_CERT",
            "GRPC_SERVER_TLS_KEY",
            "GRPC_CLIENT_TLS_CACERT",
            "GRPC_CLIENT_TLS_SAN",
        ],
    ),
    (
        "REDIS_TLS",
        &[
            "REDIS_TLS_CACERT",
            "REDIS_TLS_CLIENT_CERT",
            "REDIS_TLS_CLIENT_KEY",
            "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        ],
    ),
    (
        "CONFIG_GRPC_XDS_SERVER_USE_TLS",
        &[
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
            "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
            "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
            "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
        ],
    ),
    ("USE_PROMETHEUS", &["PROMETHEUS_ADDR", "PROMETHEUS_PATH"]),
    (
        "LIMIT_RESPONSE_HEADERS_ENABLED",
        &[
            "LIMIT_LIMIT_HEADER",
            "LIMIT_REMAINING_HEADER",
            "LIMIT_RESET_HEADER",
        ],
    ),
];
