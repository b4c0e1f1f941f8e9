//! The Prometheus recorder.

use std::time::Duration;

use ::metrics::{describe_counter, describe_gauge, describe_histogram, gauge};
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

/// Gauge of open streams of the quota service.
pub(crate) const QUOTA_STREAMS: &str = "rate_limiter_envoy_quota_streams";

/// Gauge of buckets on all streams of the quota service.
pub(crate) const QUOTA_BUCKETS: &str = "rate_limiter_envoy_quota_buckets";

/// Counter of requests of the quota service, by `policy` and `state`: `granted`, `used`, `given_back`, `forfeited`,
/// `unassigned` if they passed without a grant, or `unrecorded` if those were never charged.
pub(crate) const QUOTA_UNITS: &str = "rate_limiter_envoy_quota_units_total";

/// Counter of buckets without a grant, by `reason`: `unmatched` without a rule, `overflow` beyond 100,000 on a stream, or
/// `not_utf8` for an id that Envoy would not decode, with each report of it.
pub(crate) const QUOTA_UNGRANTED: &str = "rate_limiter_envoy_quota_ungranted_total";

/// Counter of abandoned buckets.
pub(crate) const QUOTA_ABANDONED: &str = "rate_limiter_envoy_quota_abandoned_total";

/// Counter of streams that the server ended, by `reason`: `slow`, `invalid`, `overloaded` or `draining`.
pub(crate) const QUOTA_CLOSED: &str = "rate_limiter_envoy_quota_closed_total";

/// Histogram of the time from a report to its answer.
pub(crate) const QUOTA_ANSWER_SECONDS: &str = "rate_limiter_envoy_quota_answer_seconds";

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
    describe_quota();
    describe_gauge!(BUILD_INFO, "Always 1, with the version of the server.");
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Collector::default().describe();
    Ok(handle)
}

fn describe_quota() {
    describe_gauge!(QUOTA_STREAMS, "Open streams of the quota service.");
    describe_gauge!(
        QUOTA_BUCKETS,
        "Buckets on all streams of the quota service."
    );
    describe_counter!(
        QUOTA_UNITS,
        "Requests of the quota service, by policy and state."
    );
    describe_counter!(
        QUOTA_UNGRANTED,
        "Buckets of the quota service without a grant, by reason."
    );
    describe_counter!(
        QUOTA_ABANDONED,
        "Buckets of the quota service that were abandoned."
    );
    describe_counter!(
        QUOTA_CLOSED,
        "Streams of the quota service that the server ended, by reason."
    );
    describe_histogram!(
        QUOTA_ANSWER_SECONDS,
        "Time from a report of the quota service to its answer."
    );
}

/// The metrics of this moment in the text format of Prometheus, those of the process included.
pub(crate) fn render(handle: &PrometheusHandle) -> String {
    Collector::default().collect();
    handle.render()
}

fn builder(application: &str) -> PrometheusBuilder {
    let labelled = PrometheusBuilder::new().add_global_label("application", application);
    let buckets: [(&str, &[f64]); 4] = [
        (metrics::CHECK_SECONDS, &metrics::CHECK_SECONDS_BUCKETS),
        (metrics::ROUND_TRIP_SECONDS, &metrics::CHECK_SECONDS_BUCKETS),
        (QUOTA_ANSWER_SECONDS, &metrics::CHECK_SECONDS_BUCKETS),
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
