//! Quantiles of durations, from the buckets of a histogram.

use std::sync::OnceLock;

use ratelimit_core::metrics::CHECK_SECONDS_BUCKETS;

use crate::metrics::BucketHistogram;

const BUCKETS: usize = CHECK_SECONDS_BUCKETS.len() + 1;

/// Numbers of durations by bucket of [`CHECK_SECONDS_BUCKETS`]; the last is above all bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Durations([u64; BUCKETS]);

impl Durations {
    pub(super) fn read(histogram: &BucketHistogram) -> Durations {
        let mut counts = histogram.counts();
        Durations(std::array::from_fn(|_| counts.next().unwrap_or(0)))
    }

    pub(super) fn since(&self, before: &Durations) -> Durations {
        Durations(std::array::from_fn(|bucket| {
            self.0[bucket].saturating_sub(before.0[bucket])
        }))
    }

    pub(super) fn add(&mut self, other: &Durations) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The duration in whole microseconds, rounded up, below which `percent` of the durations are. `None` without a duration.
    ///
    /// The durations of a bucket are taken as evenly spread over it, as `histogram_quantile` of Prometheus does. One above all
    /// bounds is reported as the last bound, 1 s.
    pub(super) fn quantile_micros(&self, percent: u64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        // In hundredths of a duration, so that the rank is whole.
        let rank = percent * count;
        let (mut below, mut lower) = (0, 0);
        for (bucket, upper) in self.0.iter().zip(bounds_nanos()) {
            let inside = 100 * bucket;
            if inside > 0 && below + inside >= rank {
                let width = u128::from(upper - lower);
                let depth = width * u128::from(rank - below) / u128::from(inside);
                let nanos = lower + u64::try_from(depth).unwrap_or(0);
                return Some(nanos.div_ceil(1_000));
            }
            below += inside;
            lower = *upper;
        }
        Some(lower.div_ceil(1_000))
    }
}

/// The bounds in nanoseconds.
fn bounds_nanos() -> &'static [u64] {
    static NANOS: OnceLock<Vec<u64>> = OnceLock::new();
    NANOS.get_or_init(|| {
        let nanos = |seconds: f64| std::time::Duration::from_secs_f64(seconds).as_nanos();
        let bounds = CHECK_SECONDS_BUCKETS.into_iter().map(nanos);
        bounds
            .map(|nanos| u64::try_from(nanos).unwrap_or(u64::MAX))
            .collect()
    })
}

/// The durations of the last 30 to 60 seconds.
///
/// One check in 64 is timed if it is decided in memory, so a single second says little about one policy.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentDurations {
    seen: Durations,
    current: Durations,
    previous: Durations,
}

impl RecentDurations {
    /// Durations since a histogram held `seen`.
    pub(super) fn since(seen: Durations) -> RecentDurations {
        RecentDurations {
            seen,
            ..RecentDurations::default()
        }
    }

    /// Adds the durations since the last call, and returns them.
    pub(super) fn advance(&mut self, now: &Durations) -> Durations {
        let increase = now.since(&self.seen);
        self.seen = *now;
        self.current.add(&increase);
        increase
    }

    /// Forgets the durations before the last call of this function.
    pub(super) fn rotate(&mut self) {
        self.previous = std::mem::take(&mut self.current);
    }

    pub(super) fn quantile_micros(&self, percent: u64) -> Option<u64> {
        let mut all = self.previous;
        all.add(&self.current);
        all.quantile_micros(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(counts: &[(usize, u64)]) -> Durations {
        let mut durations = Durations::default();
        for (bucket, count) in counts {
            durations.0[*bucket] = *count;
        }
        durations
    }

    #[test]
    fn no_duration_has_no_quantile() {
        assert_eq!(Durations::default().quantile_micros(50), None);
    }

    #[test]
    fn durations_are_spread_evenly_over_their_bucket() {
        // 100 between 1 and 2.5 ms.
        let one = durations(&[(8, 100)]);
        assert_eq!(one.quantile_micros(50), Some(1_750));
        assert_eq!(one.quantile_micros(99), Some(2_485));
        assert_eq!(one.quantile_micros(100), Some(2_500));

        // 98 between 250 and 500 us, 2 between 10 and 25 ms.
        let two = durations(&[(6, 98), (11, 2)]);
        assert_eq!(two.quantile_micros(49), Some(375));
        assert_eq!(two.quantile_micros(98), Some(500));
        assert_eq!(two.quantile_micros(99), Some(17_500));
    }

    #[test]
    fn durations_below_a_microsecond_are_not_zero_and_those_above_all_bounds_are_the_last_one() {
        assert_eq!(durations(&[(0, 5)]).quantile_micros(50), Some(1));
        assert_eq!(durations(&[(16, 5)]).quantile_micros(50), Some(1_000_000));
    }

    #[test]
    fn durations_are_forgotten_after_two_rotations() {
        let mut recent = RecentDurations::since(durations(&[(6, 1_000)]));
        let increase = recent.advance(&durations(&[(6, 1_000), (11, 1)]));

        assert_eq!(increase, durations(&[(11, 1)]));
        assert_eq!(recent.quantile_micros(100), Some(25_000));
        recent.rotate();
        assert_eq!(recent.quantile_micros(100), Some(25_000));
        recent.rotate();
        assert_eq!(recent.quantile_micros(100), None);
    }
}
