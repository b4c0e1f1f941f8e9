//! A histogram with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};

use metrics::HistogramFn;

/// Counts of values by bucket, and their sum.
///
/// Its size depends on the number of buckets alone, not on the number of values since the last scrape.
#[derive(Debug)]
pub(crate) struct BucketHistogram {
    /// The upper bounds of the buckets, in ascending order. A last bucket holds all greater values.
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>,
    /// The bits of the sum, an `f64`.
    sum: AtomicU64,
}

impl BucketHistogram {
    pub(super) fn new(bounds: &'static [f64]) -> BucketHistogram {
        BucketHistogram {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    pub(crate) fn bounds(&self) -> &'static [f64] {
        self.bounds
    }

    /// The number of values in each bucket; the last is above all bounds.
    pub(crate) fn counts(&self) -> impl Iterator<Item = u64> {
        self.counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }
}

impl HistogramFn for BucketHistogram {
    #[expect(clippy::float_arithmetic, reason = "metrics are numbers of any kind")]
    fn record(&self, value: f64) {
        // The bounds are few: a search from the front is as fast as a binary one.
        let bucket = self.bounds.iter().position(|bound| value <= *bound);
        let bucket = bucket.unwrap_or(self.bounds.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |sum| Some((f64::from_bits(sum) + value).to_bits());
        // The closure never returns `None`, so the update succeeds.
        let _ = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_is_in_the_bucket_of_that_bound() {
        let histogram = BucketHistogram::new(&[0.1, 1.0]);

        for value in [0.05, 0.1, 0.5, 1.0, 7.0, f64::NAN] {
            histogram.record(value);
        }

        assert_eq!(histogram.counts().collect::<Vec<_>>(), [2, 2, 2]);
    }

    #[test]
    fn values_of_many_threads_are_all_in_the_sum() {
        let histogram = BucketHistogram::new(&[1.0]);

        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1_000).for_each(|_| histogram.record(0.5)));
            }
        });

        assert_eq!(histogram.counts().collect::<Vec<_>>(), [4_000, 0]);
        assert!((histogram.sum() - 2_000.0).abs() < 1e-9);
    }
}
