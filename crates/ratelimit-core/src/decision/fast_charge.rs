//! A decision in few words.

use std::time::Duration;

use crate::decision::{Decision, Outcome, PerLimit, RefundMark};
use crate::time::Timestamp;

/// What the one limit of a policy says of a hit that passed and has not to wait.
///
/// It is four words long, because a decision is dear to hand on just after it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FastCharge {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_micros: u64,
    /// The debt with the charge.
    pub(crate) debt: u64,
}

impl Decision {
    /// That of a hit which was charged so.
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
            is_enforced: true,
            mark: RefundMark::new(charge.debt),
            several: PerLimit::NONE,
        }
    }
}
