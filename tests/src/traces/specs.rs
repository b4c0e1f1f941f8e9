//! Limits at random.

use crate::{model::Spec, random::Random};

use super::build::to_limit;

pub(super) const DAY_US: u64 = 86_400_000_000;
pub(super) const PERIODS_US: [u64; 10] = [
    1_000,
    1_001,
    7_777,
    500_000,
    1_000_000,
    1_900_000,
    60_000_000,
    3_600_000_000,
    DAY_US,
    366 * DAY_US,
];

/// A limit of one algorithm; small ones share the magnitude of `scale_us`.
pub(super) fn limit(random: &mut Random, algorithm: usize, scale_us: u64) -> Option<Spec> {
    let period_us = period_us(random, scale_us);
    let spec = numbers(random, algorithm, period_us);
    to_limit(&spec).is_some().then_some(spec)
}

/// A penalty box for a policy of that scale.
pub(super) fn penalty_box(random: &mut Random, scale_us: u64) -> Spec {
    let mut whole_millis = || period_us(random, scale_us).next_multiple_of(1_000);
    let (period_us, refusal_us) = (whole_millis(), whole_millis());
    Spec::PenaltyBox {
        denials: random.range(1, 4),
        period_us,
        refusal_us,
        growing: random.one_in(2),
    }
}

fn period_us(random: &mut Random, scale_us: u64) -> u64 {
    match random.range(1, 4) {
        1 => random.one_of(&PERIODS_US),
        _ => (scale_us * random.range(1, 4)).min(366 * DAY_US),
    }
}

fn numbers(random: &mut Random, algorithm: usize, period_us: u64) -> Spec {
    let limit = match random.range(1, 8) {
        1 => random.one_of(&[
            99,
            100,
            10_000,
            1_000_000,
            1 << 32,
            (1 << 53) / period_us,
            (1 << 53) / (period_us / 1_000),
        ]),
        _ => random.range(1, 10),
    };
    let refill = match random.range(1, 3) {
        1 => limit.max(1),
        _ => random.range(1, limit.clamp(1, 1 << 30) * 2),
    };
    match algorithm {
        0 => Spec::TokenBucket {
            capacity: limit,
            refill,
            period_us,
        },
        1 => Spec::LeakyBucket {
            capacity: limit,
            refill,
            period_us,
            police: random.one_in(3),
        },
        2 => Spec::FixedWindow { limit, period_us },
        // Long logs are slow to compare and hold no edge of their own.
        3 => Spec::SlidingWindowLog {
            limit: limit.min(300),
            period_us,
            count_denied: random.one_in(3),
        },
        4 => Spec::SlidingWindowCounter { limit, period_us },
        _ => Spec::Concurrency {
            limit: 1 + limit % 4,
            lease_us: period_us.min(DAY_US),
        },
    }
}
