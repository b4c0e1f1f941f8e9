//! Where metrics are gathered.

use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use ratelimit_core::metrics;

const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// A recorder whose metrics all carry the label `application`.
pub fn recorder(application: &str) -> PrometheusRecorder {
    builder(application).build_recorder()
}

/// Makes such a recorder the one that this process gathers with.
///
/// # Errors
///
/// When the process has another one already.
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

/// Keeps what was gathered small, for as long as it is polled.
pub(crate) async fn upkeep(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP_INTERVAL).await;
        handle.run_upkeep();
    }
}
