//! Limits and numbers at random, the same ones in every run.

use crate::model::Spec;

const DAY_US: u64 = 86_400_000_000;

/// `SplitMix64`.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.range(1, n) == 1
    }

    /// A limit that allows few, whose period is a few times `scale_us`.
    pub(super) fn small(&mut self, scale_us: u64) -> Spec {
        let (limit, period_us) = (self.range(1, 6), self.range(1, 12) * scale_us);
        self.of(limit, period_us)
    }

    /// A limit that allows so many that its grain is coarse; a log does with fewer.
    pub(super) fn coarse(&mut self) -> Spec {
        let limit = self.range(300_000, 1_000_000);
        let period_us = if self.one_in(2) { DAY_US } else { 366 * DAY_US };
        match self.of(limit, period_us) {
            Spec::SlidingWindowLog { count_denied, .. } => Spec::SlidingWindowLog {
                limit: self.range(290, 320),
                period_us: 366 * DAY_US,
                count_denied,
            },
            spec => spec,
        }
    }

    fn of(&mut self, limit: u64, period_us: u64) -> Spec {
        let refill = self.range(1, limit * 2);
        match self.range(1, 5) {
            1 => Spec::TokenBucket {
                capacity: limit,
                refill,
                period_us,
            },
            2 => {
                let police = self.one_in(2);
                Spec::LeakyBucket {
                    capacity: limit,
                    refill,
                    period_us,
                    police,
                }
            }
            3 => Spec::FixedWindow { limit, period_us },
            4 => {
                let count_denied = self.one_in(3);
                Spec::SlidingWindowLog {
                    limit,
                    period_us,
                    count_denied,
                }
            }
            _ => Spec::SlidingWindowCounter { limit, period_us },
        }
    }
}
