//! One limit: an algorithm with its numbers.

/// One limit; the names and the numbers are those of the design, periods in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spec {
    /// Refills steadily, and lets bursts through until it is empty.
    TokenBucket {
        /// What it holds.
        capacity: u64,
        /// What comes back in a period.
        refill: u64,
        /// The period.
        period_us: u64,
    },
    /// A queue that lets one out at a time; with `police` nobody waits.
    LeakyBucket {
        /// What it holds.
        capacity: u64,
        /// What comes back in a period.
        refill: u64,
        /// The period.
        period_us: u64,
        /// Whether nobody waits.
        police: bool,
    },
    /// Counts in windows that are aligned to the Unix epoch.
    FixedWindow {
        /// What passes in a period.
        limit: u64,
        /// The period.
        period_us: u64,
    },
    /// Remembers every unit; with `count_denied` the denied ones too.
    SlidingWindowLog {
        /// What passes in a period.
        limit: u64,
        /// The period.
        period_us: u64,
        /// Whether denied hits count.
        count_denied: bool,
    },
    /// Weighs the previous window by how much of it is still in sight.
    SlidingWindowCounter {
        /// What passes in a period.
        limit: u64,
        /// The period.
        period_us: u64,
    },
    /// Bounds how many slots are held at once.
    Concurrency {
        /// How many.
        limit: u64,
        /// How long a slot is held that nobody releases or renews.
        lease_us: u64,
    },
    /// Refuses everything for a while after too many denials of the policy.
    PenaltyBox {
        /// How many denials are too many.
        denials: u64,
        /// The time within which they count.
        period_us: u64,
        /// How long everything is refused.
        refusal_us: u64,
        /// Whether each refusal is twice as long as the one before.
        growing: bool,
    },
}

impl Spec {
    /// The most that can ever be spent at once: the capacity of a bucket, else the limit.
    pub const fn limit(&self) -> u64 {
        match *self {
            Self::TokenBucket { capacity, .. } | Self::LeakyBucket { capacity, .. } => capacity,
            Self::FixedWindow { limit, .. }
            | Self::SlidingWindowLog { limit, .. }
            | Self::SlidingWindowCounter { limit, .. }
            | Self::Concurrency { limit, .. } => limit,
            Self::PenaltyBox { denials, .. } => denials,
        }
    }

    /// What passes beyond the limit when a throttle mode adds a percentage.
    pub fn stretch(&self, percent: u64) -> u128 {
        match self {
            Self::PenaltyBox { .. } => 0,
            _ => u128::from(self.limit()) * u128::from(percent) / 100,
        }
    }

    /// The limit that the arithmetic runs with when a throttle mode adds a percentage.
    pub fn ceiling(&self, percent: u64) -> u128 {
        u128::from(self.limit()) + self.stretch(percent)
    }

    /// The period, in microseconds; the lease of a slot.
    pub const fn period_us(&self) -> u64 {
        match *self {
            Self::TokenBucket { period_us, .. }
            | Self::LeakyBucket { period_us, .. }
            | Self::FixedWindow { period_us, .. }
            | Self::SlidingWindowLog { period_us, .. }
            | Self::SlidingWindowCounter { period_us, .. }
            | Self::PenaltyBox { period_us, .. } => period_us,
            Self::Concurrency { lease_us, .. } => lease_us,
        }
    }

    /// The microseconds in a tick, or `None` for a limit that the design refuses.
    pub fn grain_us(&self) -> Option<u64> {
        self.throttled_grain_us(0)
    }

    /// The same for a policy whose throttle mode adds a percentage.
    pub fn throttled_grain_us(&self, percent: u64) -> Option<u64> {
        match *self {
            Self::Concurrency { .. } => Some(1),
            Self::PenaltyBox {
                period_us,
                refusal_us,
                ..
            } => Some(1_000).filter(|&grain| {
                period_us.is_multiple_of(grain) && refusal_us.is_multiple_of(grain)
            }),
            _ => {
                let most = self.ceiling(percent) * u128::from(self.period_us());
                [1_u64, 1_000, 1_000_000]
                    .into_iter()
                    .find(|&grain| most < (1 << 53) * u128::from(grain))
                    .filter(|grain| self.period_us().is_multiple_of(*grain))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Spec;

    const DAY: u64 = 86_400_000_000;

    fn grain(limit: u64, period_us: u64) -> Option<u64> {
        Spec::FixedWindow { limit, period_us }.grain_us()
    }

    #[test]
    fn the_grain_is_the_finest_that_fits() {
        assert_eq!(grain(100, 60_000_000), Some(1));
        assert_eq!(grain(1_000_000, DAY), Some(1_000));
        assert_eq!(grain(1_000_000, 366 * DAY), Some(1_000_000));
        assert_eq!(grain(1 << 33, 1 << 20), None);
        assert_eq!(grain(u64::MAX, DAY), None);
    }

    #[test]
    fn the_grain_is_chosen_for_the_ceiling() {
        let limit = (1 << 53) / DAY;
        let spec = Spec::FixedWindow {
            limit,
            period_us: DAY,
        };

        assert_eq!(spec.throttled_grain_us(0), Some(1));
        assert_eq!(spec.throttled_grain_us(10), Some(1_000));
    }

    #[test]
    fn a_stretch_is_rounded_down() {
        let stretch = |limit, percent| {
            let lease_us = DAY;
            Spec::Concurrency { limit, lease_us }.stretch(percent)
        };

        assert_eq!(
            [stretch(9, 10), stretch(10, 10), stretch(19, 10)],
            [0, 1, 1]
        );
        assert_eq!(stretch(7, 100), 7);
    }
}
