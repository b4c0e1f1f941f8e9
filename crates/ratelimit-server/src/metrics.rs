//! Where metrics are gathered.

use std::time::Duration;

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};

const CHECK_SECONDS: &str = "rate_limiter_check_seconds";

/// Upper bounds in seconds, from a check in memory to one that its time budget ended.
const BOUNDS: [f64; 14] = [
    0.000_001, 0.000_005, 0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005,
    0.01, 0.025, 0.05, 0.1,
];

const BETWEEN_UPKEEP: Duration = Duration::from_secs(5);

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
    let matcher = Matcher::Full(CHECK_SECONDS.to_owned());
    PrometheusBuilder::new()
        .add_global_label("application", application)
        .set_buckets_for_metric(matcher, &BOUNDS)
        .expect("there are bounds")
}

/// Keeps what was gathered small, for as long as it is polled.
pub(crate) async fn upkeep(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(BETWEEN_UPKEEP).await;
        handle.run_upkeep();
    }
}
