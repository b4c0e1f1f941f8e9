//! The recorder of the server, and the handle that reads it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::registry::Registry;

use super::{
    series::{HelpTexts, SeriesStorage},
    text::Exposition,
};

/// Records metrics for [`MetricsHandle`], which writes them in the text format of Prometheus.
///
/// - Every metric has the label `application`.
/// - A histogram has fixed buckets, so its memory is bounded whether or not it is scraped. A histogram that the server does not
///   know has the buckets of [`CHECK_SECONDS_BUCKETS`](ratelimit_core::metrics::CHECK_SECONDS_BUCKETS).
/// - Install it with `metrics::set_global_recorder` before the first policy is made.
pub struct MetricsRecorder(MetricsHandle);

/// Reads the metrics of a [`MetricsRecorder`]. Clones read the same metrics.
#[derive(Clone)]
pub struct MetricsHandle(Arc<RecorderInner>);

struct RecorderInner {
    registry: Registry<Key, SeriesStorage>,
    help: Mutex<HelpTexts>,
    application: String,
}

impl MetricsRecorder {
    pub(super) fn new(application: &str) -> MetricsRecorder {
        MetricsRecorder(MetricsHandle(Arc::new(RecorderInner {
            registry: Registry::new(SeriesStorage::default()),
            help: Mutex::default(),
            application: application.to_owned(),
        })))
    }

    /// The handle that reads the metrics.
    pub fn handle(&self) -> MetricsHandle {
        self.0.clone()
    }

    fn describe(&self, name: &KeyName, text: SharedString) {
        let mut help = self
            .inner()
            .help
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        help.entry(name.as_str().to_owned()).or_insert(text);
    }

    fn inner(&self) -> &RecorderInner {
        &self.0.0
    }
}

impl MetricsHandle {
    /// The metrics of this moment in the text format of Prometheus, ordered by name and labels.
    pub fn render(&self) -> String {
        let RecorderInner {
            registry,
            help,
            application,
        } = &*self.0;
        let mut exposition = Exposition::default();
        registry.visit_counters(|key, value| exposition.add_counter(key, value));
        registry.visit_gauges(|key, value| exposition.add_gauge(key, value));
        registry.visit_histograms(|key, histogram| exposition.add_histogram(key, histogram));
        let help = help.lock().unwrap_or_else(PoisonError::into_inner).clone();
        exposition.write(&help, application)
    }

    /// The series for the sampler that were registered after the first `seen`.
    #[cfg(feature = "console")]
    pub(crate) fn sampled_after(&self, seen: usize) -> Vec<super::SampledSeries> {
        self.0.registry.storage().sampled_after(seen)
    }
}

impl Recorder for MetricsRecorder {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.describe(&name, text);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.describe(&name, text);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, text: SharedString) {
        self.describe(&name, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let registry = &self.inner().registry;
        registry.get_or_create_counter(key, |value| Counter::from_arc(Arc::clone(value)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let registry = &self.inner().registry;
        registry.get_or_create_gauge(key, |value| Gauge::from_arc(Arc::clone(value)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let registry = &self.inner().registry;
        registry.get_or_create_histogram(key, |value| Histogram::from_arc(Arc::clone(value)))
    }
}

impl fmt::Debug for MetricsRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetricsRecorder")
            .field(&self.inner().application)
            .finish()
    }
}

impl fmt::Debug for MetricsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MetricsHandle")
            .field(&self.0.application)
            .finish()
    }
}
