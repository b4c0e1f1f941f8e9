//! The result of the fast path, and the decision that it stands for.
//!
//! A property test compares the fast path with the general one, field by field (`budget/tests.rs`).

use std::time::Duration;

use crate::decision::{Decision, Level, Outcome, PerLimit};
use crate::time::Timestamp;

/// The result of the fast path: one token bucket allowed a hit without delay and has tokens left.
///
/// It is four words long. A [`Decision`] is about 100 bytes, and copying it right after it was
/// written stalls on store forwarding; it is built from this only when a caller reads it.
///
/// The general path decides instead, with the same result, in these cases:
///
/// - several limits, another algorithm, a throttle with headroom, states of unknown limits;
/// - a dry run, a cost of 0, or a cost of the whole capacity or more;
/// - an expired budget, a state of another period or ahead of the clock, a bucket with refunds;
/// - fewer than one token left after the hit: the memory store must move the entry to its exhausted
///   part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastCharge {
    /// The capacity of the bucket, in tokens.
    pub(crate) limit: u64,
    /// The tokens left after the hit, at least 1.
    pub(crate) remaining: u64,
    /// The time until the bucket is full again, in microseconds. The expiry of the budget is
    /// derived from it.
    pub(crate) reset_micros: u64,
    /// The debt of the bucket after the charge, for the refund mark; a token costs as much as the
    /// period has ticks.
    pub(crate) debt: u64,
}

impl Decision {
    /// The decision of a hit that the fast path charged at `now`. The fast path never charges a
    /// bucket with refunds, so the mark has none.
    #[inline]
    pub(crate) const fn from_fast_charge(charge: FastCharge, now: Timestamp) -> Decision {
        Decision {
            outcome: Outcome::Allowed {
                delay: Duration::ZERO,
            },
            limit: charge.limit,
            remaining: charge.remaining,
            reset_after: Duration::from_micros(charge.reset_micros),
            now,
            speaker: 0,
            is_over: false,
            is_prefetched: false,
            is_enforced: true,
            is_refundable: true,
            level: Level::new(charge.debt),
            several: PerLimit::NONE,
        }
    }
}
