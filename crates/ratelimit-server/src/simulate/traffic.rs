//! Generated traces.

use std::fmt;

use clap::ValueEnum;
use ratelimit_core::{Limit, Timestamp};
use serde::Deserialize;

use super::trace::TraceHit;
use crate::micros::micros;

/// The shape of generated traffic. Its rate is a little above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Traffic {
    /// Everything at once, a pause, and again
    Burst,
    /// Evenly, at one and a half times the limit's rate
    Steady,
    /// Randomly, at one and a half times the limit's rate
    Poisson,
    /// Just before and just after the edges of windows
    Boundary,
}

impl Traffic {
    /// Generates `count` hits for `limit`, in the order of time.
    pub(crate) fn hits(
        self,
        limit: &Limit,
        count: u64,
        seed: u64,
    ) -> Result<Vec<TraceHit>, EndlessTraffic> {
        let mut random = SplitMix64(seed);
        let rate = RefillRate::of(limit);
        let mut times: Vec<u64> = match self {
            Traffic::Steady => (0..count).map(|hit| rate.after(hit)).collect(),
            // Given their number, the hits of a Poisson process are independent and uniformly distributed.
            Traffic::Poisson => {
                let whole = rate.after(count).max(1);
                (0..count).map(|_| random.below(whole)).collect()
            }
            Traffic::Burst => {
                let burst = rate.capacity.saturating_add(rate.capacity.div_ceil(5));
                let spread = (rate.period_micros / 8).max(1);
                let start =
                    |hit: u64| rate.refilled((hit / burst).saturating_mul(burst.div_ceil(2)));
                (0..count)
                    .map(|hit| start(hit).saturating_add(random.below(spread)))
                    .collect()
            }
            Traffic::Boundary => {
                let side = rate.capacity;
                let spread = (rate.period_micros / 20).max(1);
                let at = |hit: u64, near: u64| {
                    let edge = rate.period_micros.saturating_mul(1 + hit / (2 * side) * 2);
                    if hit % (2 * side) < side {
                        edge.saturating_sub(near + 1)
                    } else {
                        edge.saturating_add(near)
                    }
                };
                (0..count)
                    .map(|hit| at(hit, random.below(spread)))
                    .collect()
            }
        };
        times.sort_unstable();
        if times
            .last()
            .is_some_and(|last| *last > Timestamp::MAX.as_micros())
        {
            return Err(EndlessTraffic);
        }
        Ok(times.into_iter().map(TraceHit::at).collect())
    }
}

/// Generated traffic that ends after the last moment that all stores count exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndlessTraffic;

impl fmt::Display for EndlessTraffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("so many hits at the rate of this limit take longer than 285 years")
    }
}

impl std::error::Error for EndlessTraffic {}

/// Capacity and refill rate of a limit.
pub(super) struct RefillRate {
    capacity: u64,
    per_period: u64,
    period_micros: u64,
}

impl RefillRate {
    pub(super) fn of(limit: &Limit) -> RefillRate {
        RefillRate {
            capacity: limit.capacity(),
            per_period: limit.per_period(),
            period_micros: micros(limit.period()),
        }
    }

    /// Time in which an empty budget refills.
    pub(super) fn full_refill_micros(&self) -> u64 {
        self.refilled(self.capacity)
    }

    /// Time in which `units` are refilled.
    fn refilled(&self, units: u64) -> u64 {
        let micros = u128::from(units) * u128::from(self.period_micros);
        u64::try_from(micros / u128::from(self.per_period)).unwrap_or(u64::MAX)
    }

    /// Time of the hit number `hits`, at one and a half times the limit's rate.
    fn after(&self, hits: u64) -> u64 {
        self.refilled(hits) / 3 * 2
    }
}

/// The pseudo-random generator `SplitMix64`; the same seed gives the same numbers.
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_hits_in_order() {
        let limit: Limit = "token_bucket 10/s burst 20".parse().unwrap();

        for traffic in Traffic::value_variants() {
            let one = traffic.hits(&limit, 100, 7).unwrap();
            let other = traffic.hits(&limit, 100, 7).unwrap();

            assert_eq!(one, other);
            assert_eq!(one.len(), 100);
            assert!(one.is_sorted_by_key(|hit| hit.at_micros));
        }
        let (one, other) = (
            Traffic::Poisson.hits(&limit, 100, 1).unwrap(),
            Traffic::Poisson.hits(&limit, 100, 2).unwrap(),
        );
        assert_ne!(one, other);
    }

    #[test]
    fn traffic_beyond_the_last_moment_is_an_error() {
        let slow: Limit = "token_bucket 1/366d".parse().unwrap();

        for traffic in Traffic::value_variants() {
            assert_eq!(traffic.hits(&slow, 10_000, 1), Err(EndlessTraffic));
            assert!(traffic.hits(&slow, 10, 1).is_ok());
        }
    }
}
