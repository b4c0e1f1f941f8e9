//! The values behind the handles of all metrics.

use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Key, SharedString, atomics::AtomicU64};
use metrics_util::registry::Storage;

use super::{BucketHistogram, SAMPLED, buckets};

/// The bits of a counter, or those of the `f64` of a gauge.
pub(crate) type SharedValue = Arc<AtomicU64>;

/// A series that the sampler reads.
#[derive(Clone, Debug)]
pub(crate) struct SampledSeries {
    key: Key,
    pub(crate) value: SampledValue,
}

/// The value of a series, by kind.
#[derive(Clone, Debug)]
pub(crate) enum SampledValue {
    Counter(SharedValue),
    Gauge(SharedValue),
    Histogram(Arc<BucketHistogram>),
}

impl SampledSeries {
    pub(crate) fn name(&self) -> &str {
        self.key.name()
    }

    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let mut labels = self.key.labels();
        labels
            .find(|label| label.key() == name)
            .map(metrics::Label::value)
    }
}

/// Creates the values of a registry, and lists those that the sampler reads.
///
/// The list holds one entry for each series of a metric in [`SAMPLED`], in the order of their registration. It only grows, as the
/// registry does, so a sampler remembers how far it has read and never walks the registry.
#[derive(Debug, Default)]
pub(crate) struct SeriesStorage {
    sampled: Mutex<Vec<SampledSeries>>,
}

impl SeriesStorage {
    /// The series that were registered after the first `seen`.
    pub(super) fn sampled_after(&self, seen: usize) -> Vec<SampledSeries> {
        let sampled = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
        sampled.get(seen..).unwrap_or_default().to_vec()
    }

    fn list(&self, key: &Key, value: SampledValue) {
        if SAMPLED.contains(&key.name()) {
            let mut sampled = self.sampled.lock().unwrap_or_else(PoisonError::into_inner);
            let key = key.clone();
            sampled.push(SampledSeries { key, value });
        }
    }
}

impl Storage<Key> for SeriesStorage {
    type Counter = SharedValue;
    type Gauge = SharedValue;
    type Histogram = Arc<BucketHistogram>;

    fn counter(&self, key: &Key) -> SharedValue {
        let counter = SharedValue::default();
        self.list(key, SampledValue::Counter(Arc::clone(&counter)));
        counter
    }

    fn gauge(&self, key: &Key) -> SharedValue {
        let gauge = SharedValue::default();
        self.list(key, SampledValue::Gauge(Arc::clone(&gauge)));
        gauge
    }

    fn histogram(&self, key: &Key) -> Arc<BucketHistogram> {
        let histogram = Arc::new(BucketHistogram::new(buckets(key.name())));
        self.list(key, SampledValue::Histogram(Arc::clone(&histogram)));
        histogram
    }
}

/// The help texts by the name of the metric. The first text of a name stays.
pub(super) type HelpTexts = std::collections::BTreeMap<String, SharedString>;
