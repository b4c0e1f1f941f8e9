//! The metrics of the server: names, help texts and buckets, and the recorder of all metrics.
//!
//! - `recorder.rs`: [`MetricsRecorder`] over a registry of `metrics-util`, and [`MetricsHandle`].
//! - `series.rs`: the values in the registry, and the list of those that the sampler reads.
//! - `histogram.rs`: a histogram with fixed buckets. `text.rs`: the text format of Prometheus.

mod histogram;
mod recorder;
mod rendering;
#[cfg_attr(
    not(feature = "console"),
    allow(dead_code, reason = "the console samples the list")
)]
mod series;
mod text;

use ::metrics::{
    SetRecorderError, counter, describe_counter, describe_gauge, describe_histogram, gauge,
};
use metrics_process::Collector;
use ratelimit_core::{
    MemoryStore,
    metrics::{
        self, AMBIGUOUS, CHECK_SECONDS, CHECK_SECONDS_BUCKETS, CONNECTS, DENY_CACHED, EVICTED,
        OVER, PREFETCH_HITS, REQUESTS, ROUND_TRIP_SECONDS, SERVER_INFO, STORE_UP, UNCHECKED,
    },
};
use ratelimit_http::metrics::{CONFIG_OK, POLICY_RELOADS};

pub(crate) use self::histogram::BucketHistogram;
pub use self::recorder::{MetricsHandle, MetricsRecorder};
pub(crate) use self::rendering::SharedRendering;
#[cfg(feature = "console")]
pub(crate) use self::series::{SampledSeries, SampledValue, SharedValue};
use crate::refusal_log::BadCall;

/// Gauge of open connections, by `listener`: `main`, `admin`, `envoy` or `metrics`.
pub(crate) const HTTP_CONNECTIONS: &str = "rate_limiter_http_connections";

/// Counter of connections that could not be accepted, by `listener`: mostly because no file descriptor is left.
pub(crate) const ACCEPT_FAILURES: &str = "rate_limiter_accept_failures_total";

/// Counter of connections that were closed because the peer took no bytes of a response, by `listener`.
pub(crate) const STALLED_CONNECTIONS: &str = "rate_limiter_stalled_connections_total";

/// Counter of requests that were refused because too many bytes of requests are in flight, by `budget`: `rest`, `envoy` or
/// `quota`.
pub(crate) const MEMORY_REFUSALS: &str = "rate_limiter_memory_refusals_total";

/// Counter of responses, by `route` and `status`.
pub(crate) const HTTP_REQUESTS: &str = "rate_limiter_http_requests_total";

/// Counter of calls that a misconfigured caller sent, by `reason`: see [`BadCall`].
pub(crate) const REFUSED_CALLS: &str = "rate_limiter_refused_calls_total";

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

/// Counter of buckets without a grant, by `reason`: `unmatched` without a rule, `overflow` beyond 100,000 on a stream or 400,000 on all, or
/// `not_utf8` for an id that Envoy would not decode, with each report of it.
pub(crate) const QUOTA_UNGRANTED: &str = "rate_limiter_envoy_quota_ungranted_total";

/// Counter of abandoned buckets.
pub(crate) const QUOTA_ABANDONED: &str = "rate_limiter_envoy_quota_abandoned_total";

/// Counter of streams that the server ended, by `reason`: `slow`, `invalid`, `overloaded` or `draining`.
pub(crate) const QUOTA_CLOSED: &str = "rate_limiter_envoy_quota_closed_total";

/// Histogram of the time from a report to its answer.
pub(crate) const QUOTA_ANSWER_SECONDS: &str = "rate_limiter_envoy_quota_answer_seconds";

/// Gauge of reads of files that have not ended for 5 s, by `files`: 1, else 0.
pub(crate) const FILE_READ_STUCK: &str = "rate_limiter_file_read_stuck";

/// Counter of log lines that were dropped, because standard error was not read fast enough.
pub(crate) const LOG_LINES_DROPPED: &str = "rate_limiter_log_lines_dropped_total";

/// Gauge of open streams of live numbers.
pub(crate) const LIVE_VIEWERS: &str = "rate_limiter_console_viewers";

const BUILD_INFO: &str = "rate_limiter_build_info";

/// The metrics of the engine that the sampler reads.
const SAMPLED: [&str; 13] = [
    REQUESTS,
    OVER,
    UNCHECKED,
    DENY_CACHED,
    PREFETCH_HITS,
    CHECK_SECONDS,
    ROUND_TRIP_SECONDS,
    STORE_UP,
    SERVER_INFO,
    CONNECTS,
    AMBIGUOUS,
    EVICTED,
    POLICY_RELOADS,
];

/// A metric of the server.
struct MetricInfo {
    name: &'static str,
    help: &'static str,
    kind: MetricKind,
}

enum MetricKind {
    Counter,
    Gauge,
    /// The upper bounds of the buckets, in ascending order.
    Histogram(&'static [f64]),
}

const fn metric(kind: MetricKind, name: &'static str, help: &'static str) -> MetricInfo {
    MetricInfo { name, help, kind }
}

/// The metrics of the server. `describe` of `ratelimit_core::metrics` and `ratelimit_http::metrics` have the texts of theirs.
#[rustfmt::skip]
const METRICS: [MetricInfo; 25] = {
    use MetricKind::{Counter, Gauge, Histogram};
    [
        metric(Counter, HTTP_REQUESTS, "Responses, by route and status."),
        metric(Gauge, HTTP_CONNECTIONS, "Open connections, by listener."),
        metric(Counter, REFUSED_CALLS, "Calls that a misconfigured caller sent, by reason."),
        metric(Counter, ACCEPT_FAILURES, "Connections that could not be accepted, by listener."),
        metric(Counter, STALLED_CONNECTIONS, "Connections closed because the peer took no responses, by listener."),
        metric(Counter, MEMORY_REFUSALS, "Requests refused because too many bytes of requests are in flight, by budget."),
        metric(Counter, TLS_RELOADS, "Reloads of the certificates, by result."),
        metric(Counter, TLS_HANDSHAKE_FAILURES, "TLS handshakes that failed."),
        metric(Counter, ENVOY_REQUESTS, "Requests of Envoy, by code."),
        metric(Counter, ENVOY_UNKNOWN_DOMAINS, "Requests of Envoy for a domain without rules."),
        metric(Counter, ENVOY_IGNORED, "Parts of requests of Envoy without effect, by part."),
        metric(Counter, ENVOY_RELOADS, "Reloads of the Envoy rules, by result."),
        metric(Gauge, ENVOY_XDS_CONNECTED, "Whether there is a connection to the xDS server."),
        metric(Gauge, QUOTA_STREAMS, "Open streams of the quota service."),
        metric(Gauge, QUOTA_BUCKETS, "Buckets on all streams of the quota service."),
        metric(Counter, QUOTA_UNITS, "Requests of the quota service, by policy and state."),
        metric(Counter, QUOTA_UNGRANTED, "Buckets of the quota service without a grant, by reason."),
        metric(Counter, QUOTA_ABANDONED, "Buckets of the quota service that were abandoned."),
        metric(Counter, QUOTA_CLOSED, "Streams of the quota service that the server ended, by reason."),
        metric(Histogram(&CHECK_SECONDS_BUCKETS), QUOTA_ANSWER_SECONDS, "Time from a report of the quota service to its answer."),
        metric(Histogram(&RESPONSE_TIME_BUCKETS), RESPONSE_TIME, "Seconds to answer a request of Envoy."),
        metric(Gauge, FILE_READ_STUCK, "Whether a read of files hangs, by files."),
        metric(Counter, LOG_LINES_DROPPED, "Log lines that were dropped."),
        metric(Gauge, LIVE_VIEWERS, "Open streams of live numbers of the console."),
        metric(Gauge, BUILD_INFO, "Always 1, with the version of the server."),
    ]
};

/// The buckets of a histogram. Those of the engine, and of metrics that are not in the table, have 100 ns to 1 s.
fn buckets(name: &str) -> &'static [f64] {
    let found = METRICS.iter().find(|metric| metric.name == name);
    match found.map(|metric| &metric.kind) {
        Some(MetricKind::Histogram(buckets)) => buckets,
        _ => &CHECK_SECONDS_BUCKETS,
    }
}

/// A recorder that adds the label `application` to every metric.
pub fn recorder(application: &str) -> MetricsRecorder {
    MetricsRecorder::new(application)
}

/// Installs the recorder for this process.
///
/// # Errors
///
/// Fails if the process already has a recorder.
pub(crate) fn install(
    application: &str,
) -> Result<MetricsHandle, SetRecorderError<MetricsRecorder>> {
    let recorder = recorder(application);
    let handle = recorder.handle();
    ::metrics::set_global_recorder(recorder)?;
    metrics::describe();
    ratelimit_http::metrics::describe();
    for MetricInfo { name, help, kind } in METRICS {
        match kind {
            MetricKind::Counter => describe_counter!(name, help),
            MetricKind::Gauge => describe_gauge!(name, help),
            MetricKind::Histogram(_) => describe_histogram!(name, help),
        }
    }
    for reason in BadCall::ALL {
        counter!(REFUSED_CALLS, "reason" => reason.as_str()).increment(0);
    }
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Collector::default().describe();
    Ok(handle)
}

/// Sets whether the newest version of `files` is in force.
pub(crate) fn set_config_ok(files: &'static str, is_ok: bool) {
    gauge!(CONFIG_OK, "files" => files).set(f64::from(u8::from(is_ok)));
}

/// The metrics of this moment in the text format of Prometheus, those of the process included.
pub(crate) fn render(handle: &MetricsHandle) -> String {
    Collector::default().collect();
    MemoryStore::update_metrics();
    handle.render()
}
