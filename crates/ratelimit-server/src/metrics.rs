//! The Prometheus recorder.

use std::time::Duration;

use ::metrics::{describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use metrics_process::Collector;
use ratelimit_core::metrics;

/// Gauge of open connections, by `listener`: `main`, `admin`, `envoy` or `metrics`.
pub(crate) const HTTP_CONNECTIONS: &str = "rate_limiter_http_connections";

/// Counter of responses, by `route` and `status`.
pub(crate) const HTTP_REQUESTS: &str = "rate_limiter_http_requests_total";

/// Counter of changed certificate files, by `result`: `ok`, or `rejected` if the previous certificates stay.
pub(crate) const TLS_RELOADS: &str = "rate_limiter_tls_reloads_total";

/// Counter of TLS handshakes that failed or took too long, by `listener`.
pub(crate) const TLS_HANDSHAKE_FAILURES: &str = "rate_limiter_tls_handshake_failures_total";

/// Counter of requests of Envoy, by `code`: `ok`, `over_limit`, `shadow` if `--envoy-shadow` let one pass that is over its limit, or
/// `invalid` without domain or descriptors.
pub(crate) const ENVOY_REQUESTS: &str = "rate_limiter_envoy_requests_total";

/// Counter of requests of Envoy for a domain without rules, which pass.
pub(crate) const ENVOY_UNKNOWN_DOMAINS: &str = "rate_limiter_envoy_unknown_domains_total";

/// Counter of parts of requests of Envoy without effect, by `part`: `limit` with an unknown unit, or `negative_hits` that
/// the store did not give back.
pub(crate) const ENVOY_IGNORED: &str = "rate_limiter_envoy_ignored_total";

/// Counter of changed files and xDS responses of Envoy rules, by `result`: `ok`, or `rejected` if the previous rules stay.
pub(crate) const ENVOY_RELOADS: &str = "rate_limiter_envoy_reloads_total";

/// Gauge of the connection to the xDS server: 1 while there is one, else 0.
pub(crate) const ENVOY_XDS_CONNECTED: &str = "rate_limiter_envoy_xds_connected";

/// Histogram of the seconds to answer a request of Envoy, with `--envoy-ratelimit-metrics`.
pub(crate) const RESPONSE_TIME: &str = "ratelimit_service_response_time_seconds";

/// The buckets of [`RESPONSE_TIME`]: the default ones of Prometheus, as in Envoy's own rate limit server.
const RESPONSE_TIME_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

const BUILD_INFO: &str = "rate_limiter_build_info";

const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// A recorder that adds the label `application` to every metric.
pub fn recorder(application: &str) -> PrometheusRecorder {
    builder(application).build_recorder()
}

/// Installs the recorder for this process.
///
/// # Errors
///
/// Fails if the process already has a recorder.
pub(crate) fn install(application: &str) -> Result<PrometheusHandle, BuildError> {
    let handle = builder(application).install_recorder()?;
    metrics::describe();
    ratelimit_http::metrics::describe();
    describe_counter!(HTTP_REQUESTS, "Responses, by route and status.");
    describe_gauge!(HTTP_CONNECTIONS, "Open connections, by listener.");
    describe_counter!(TLS_RELOADS, "Reloads of the certificates, by result.");
    describe_counter!(TLS_HANDSHAKE_FAILURES, "TLS handshakes that failed.");
    describe_counter!(ENVOY_REQUESTS, "Requests of Envoy, by code.");
    describe_counter!(
        ENVOY_UNKNOWN_DOMAINS,
        "Requests of Envoy for a domain without rules."
    );
    describe_counter!(
        ENVOY_IGNORED,
        "Parts of requests of Envoy without effect, by part."
    );
    describe_counter!(ENVOY_RELOADS, "Reloads of the Envoy rules, by result.");
    describe_gauge!(
        ENVOY_XDS_CONNECTED,
        "Whether there is a connection to the xDS server."
    );
    describe_gauge!(BUILD_INFO, "Always 1, with the version of the server.");
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Collector::default().describe();
    Ok(handle)
}

/// The metrics of this moment in the text format of Prometheus, those of the process included.
pub(crate) fn render(handle: &PrometheusHandle) -> String {
    Collector::default().collect();
    handle.render()
}

fn builder(application: &str) -> PrometheusBuilder {
    let labelled = PrometheusBuilder::new().add_global_label("application", application);
    let buckets: [(&str, &[f64]); 3] = [
        (metrics::CHECK_SECONDS, &metrics::CHECK_SECONDS_BUCKETS),
        (metrics::ROUND_TRIP_SECONDS, &metrics::CHECK_SECONDS_BUCKETS),
        (RESPONSE_TIME, &RESPONSE_TIME_BUCKETS),
    ];
    buckets
        .into_iter()
        .fold(labelled, |builder, (name, buckets)| {
            builder
                .set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
                .expect("there are buckets")
        })
}

/// Drains histogram samples every 5 seconds; never returns.
pub(crate) async fn upkeep(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_INTERVAL).await;
        handle.run_upkeep();
    }
}
