//! Decisions from memory: the numbers of the last answer of the store, with the units on hand.

use std::{num::NonZeroU64, time::Duration};

use crate::decision::{Charged, Decision, LimitDecision, Outcome, RefundMark};
use crate::time::Timestamp;

/// The numbers of a grant of a single limit, from which hits are answered until the next grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantNumbers {
    limit: u64,
    /// The rest of the store, without the units of the grant.
    left: u64,
    reset_at: Timestamp,
    is_refundable: bool,
}

/// A hit on a single limit that prefetched units paid at `now`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefetchedCharge {
    limit: u64,
    remaining: u64,
    reset_after: Duration,
    now: Timestamp,
    slice: Timestamp,
    is_refundable: bool,
}

impl PrefetchedCharge {
    /// The answer to the hit.
    pub(crate) fn charged(self) -> Charged {
        let delay = Duration::ZERO;
        let limit = LimitDecision {
            remaining: self.remaining,
            reset_after: self.reset_after,
            ..LimitDecision::new(Outcome::Allowed { delay }, self.limit)
        };
        let mut decision = Decision::new(limit, self.now);
        decision.is_prefetched = true;
        let mark = mark_of_slice(self.slice, self.is_refundable);
        Charged {
            decision,
            marks: std::iter::once(mark).collect(),
        }
    }
}

/// The mark of units of a slice. A window finds a charge by its time, so any debt but 0 lets it be refunded.
const fn mark_of_slice(slice: Timestamp, is_refundable: bool) -> RefundMark {
    RefundMark {
        debt: if is_refundable { slice.as_micros() } else { 0 },
        refunded: slice.as_micros(),
    }
}

/// When the units were charged that paid a hit from memory, in microseconds; `None` for a hit that the store decided.
pub(crate) fn prefetched_slice(decision: &Decision, marks: &[RefundMark]) -> Option<NonZeroU64> {
    let mark = marks.first().filter(|_| decision.is_prefetched)?;
    NonZeroU64::new(mark.refunded)
}

impl GrantNumbers {
    /// The numbers of the answer to a grant of `units`; `None` for several limits.
    pub(crate) fn new(charged: &Charged, units: u64) -> Option<GrantNumbers> {
        let decision = &charged.decision;
        let is_plain = decision.is_allowed() && decision.delay().is_zero();
        (decision.several.is_empty() && is_plain).then(|| GrantNumbers {
            limit: decision.limit,
            left: decision.remaining.saturating_sub(units),
            reset_at: decision.now + decision.reset_after,
            is_refundable: charged.marks.iter().any(|mark| mark.debt > 0),
        })
    }

    /// The same numbers as [`Charged::prefetched`] without a copy of the last answer.
    #[inline]
    pub(crate) fn charge(&self, now: Timestamp, usable: u64, slice: Timestamp) -> PrefetchedCharge {
        PrefetchedCharge {
            limit: self.limit,
            remaining: (self.left + usable).min(self.limit),
            reset_after: self.reset_at.since(now),
            now,
            slice,
            is_refundable: self.is_refundable,
        }
    }
}

impl Charged {
    /// The answer to a hit that spent prefetched units at `now`.
    ///
    /// `self` is the answer to the grant, without its `units`; `usable` of them and of others are left. `slice` is the
    /// time at which the spent units were charged; [`prefetched_slice`] returns it.
    #[inline]
    pub(crate) fn prefetched(
        &self,
        now: Timestamp,
        units: u64,
        usable: u64,
        slice: Timestamp,
    ) -> Charged {
        let granted = &self.decision;
        let elapsed = now.since(granted.now);
        let limits = granted.limits().map(|limit| LimitDecision {
            remaining: on_hand(limit.remaining, limit.limit, units, usable),
            reset_after: limit.reset_after.saturating_sub(elapsed),
            // Units never use the headroom.
            is_over: false,
            ..limit
        });
        let mut decision = Decision::from_limits(now, limits);
        decision.is_prefetched = true;
        let marks = self.marks.iter();
        let marks = marks
            .map(|mark| mark_of_slice(slice, mark.debt > 0))
            .collect();
        Charged { decision, marks }
    }

    /// The denial of a hit from memory: each limit that has too little denies for its wait, at least for `pause`.
    pub(crate) fn prefetch_denial(
        &self,
        now: Timestamp,
        units: u64,
        usable: u64,
        pause: Duration,
        waits: impl Iterator<Item = Duration>,
    ) -> Charged {
        let prefetched = self.prefetched(now, units, usable, self.decision.now);
        let mut limits: Vec<LimitDecision> = prefetched.decision.limits().collect();
        let denied = |wait: Duration| Outcome::Denied {
            retry_after: wait.max(pause),
        };
        for (limit, wait) in limits.iter_mut().zip(waits) {
            if wait > Duration::ZERO {
                limit.outcome = denied(wait);
            }
        }
        let is_denied = |limit: &LimitDecision| !limit.outcome.is_allowed();
        if !limits.iter().any(is_denied)
            && let Some(least) = limits.iter_mut().min_by_key(|limit| limit.remaining)
        {
            least.outcome = denied(Duration::ZERO);
        }
        let mut decision = Decision::from_limits(now, limits.into_iter());
        decision.is_prefetched = true;
        decision.into()
    }

    /// The answer to a charge that only windows refund; `is_window` tells it of each limit. The place of prefetched
    /// units in the debt of a bucket is not that of the charge.
    pub(crate) fn refundable_in_windows(
        mut self,
        is_window: impl Iterator<Item = bool>,
    ) -> Charged {
        for (mark, is_window) in self.marks.iter_mut().zip(is_window) {
            mark.debt = if is_window { mark.debt.max(1) } else { 0 };
        }
        self
    }
}

impl Decision {
    /// The decision of a peek with `units` on hand added to what the store has left.
    pub(crate) fn with_units_on_hand(self, units: u64) -> Decision {
        self.with_limits(|_, limit| {
            limit.remaining = on_hand(limit.remaining, limit.limit, 0, units);
        })
    }
}

/// The store's rest without a slice of `units`, and the units on hand.
#[inline]
const fn on_hand(remaining: u64, limit: u64, units: u64, usable: u64) -> u64 {
    let total = remaining.saturating_sub(units) + usable;
    if total < limit { total } else { limit }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_charge_of_a_single_limit_is_the_general_decision(
            limit in 1..1_000_000_u64,
            remaining in 0..1_000_000_u64,
            reset in 0..2_000_000_u64,
            is_refundable: bool,
            is_over: bool,
            units in 0..1_000_000_u64,
            usable in 0..1_000_000_u64,
            elapsed in 0..3_000_000_u64,
        ) {
            let allowed = Outcome::Allowed { delay: Duration::ZERO };
            let limit = LimitDecision {
                remaining: remaining.min(limit),
                reset_after: Duration::from_micros(reset),
                is_over,
                ..LimitDecision::new(allowed, limit)
            };
            let mark = RefundMark::new(u64::from(is_refundable));
            let granted = Charged {
                decision: Decision::new(limit, Timestamp::from_secs(600)),
                marks: std::iter::once(mark).collect(),
            };
            let now = granted.decision.now + Duration::from_micros(elapsed);
            let slice = Timestamp::from_secs(599);

            let fast = GrantNumbers::new(&granted, units).unwrap().charge(now, usable, slice);

            prop_assert_eq!(fast.charged(), granted.prefetched(now, units, usable, slice));
        }
    }

    #[test]
    fn a_grant_of_several_limits_or_with_a_delay_has_no_charge_of_a_single_one() {
        let now = Timestamp::from_secs(600);
        let limit = |millis| {
            let delay = Duration::from_millis(millis);
            LimitDecision::new(Outcome::Allowed { delay }, 10)
        };
        let several = Decision::from_limits(now, [limit(0), limit(0)].into_iter());
        let single = |millis| Decision::new(limit(millis), now);
        assert!(GrantNumbers::new(&several.into(), 0).is_none());
        assert!(GrantNumbers::new(&single(5).into(), 0).is_none());
        assert!(GrantNumbers::new(&single(0).into(), 0).is_some());
    }
}
