//! The Prometheus recorder.

use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use ratelimit_core::metrics;

/// Gauge of open connections, by `listener`: `main` or `admin`.
pub(crate) const HTTP_CONNECTIONS: &str = "rate_limiter_http_connections";

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
    builder(application).install_recorder()
}

fn builder(application: &str) -> PrometheusBuilder {
    let labelled = PrometheusBuilder::new().add_global_label("application", application);
    [metrics::CHECK_SECONDS, metrics::ROUND_TRIP_SECONDS]
        .iter()
        .fold(labelled, |builder, name| {
            builder
                .set_buckets_for_metric(
                    Matcher::Full((*name).to_owned()),
                    &metrics::CHECK_SECONDS_BUCKETS,
                )
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
