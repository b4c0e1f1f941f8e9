//! Decisions from memory: the numbers of the last answer of the store, with the units on hand.

use std::{num::NonZeroU64, time::Duration};

use crate::decision::{Decision, FastCharge, Level, LimitDecision, Outcome, PerLimit};
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
    charge: FastCharge,
    now: Timestamp,
    is_refundable: bool,
    /// Whether the policy enforces it; the limiter sets it.
    pub(crate) is_enforced: bool,
}

impl PrefetchedCharge {
    /// The decision of the hit.
    #[inline]
    pub(crate) const fn decision(self) -> Decision {
        let mut decision = Decision::from_fast_charge(self.charge, self.now);
        decision.is_prefetched = true;
        decision.is_refundable = self.is_refundable;
        decision.is_enforced = self.is_enforced;
        decision
    }
}

impl GrantNumbers {
    /// The numbers of the decision of a grant of `units`; `None` for several limits.
    pub(crate) fn new(decision: &Decision, units: u64) -> Option<GrantNumbers> {
        let is_single = decision.several.as_slice().is_empty();
        let is_plain = decision.is_allowed() && decision.delay().is_zero();
        (is_single && is_plain).then(|| GrantNumbers {
            limit: decision.limit,
            left: decision.remaining.saturating_sub(units),
            reset_at: decision.now + decision.reset_after,
            is_refundable: decision.is_refundable,
        })
    }

    /// Fast path: the same numbers as [`Decision::prefetched`] in six words, from which the decision is built when the
    /// check is polled. With decisions in its place a prefetched hit costs 959 instead of 776 instructions
    /// (`cargo xtask gate`).
    #[inline]
    pub(crate) fn charge(&self, now: Timestamp, usable: u64, slice: Timestamp) -> PrefetchedCharge {
        let reset_micros = self.reset_at.as_micros().saturating_sub(now.as_micros());
        PrefetchedCharge {
            charge: FastCharge {
                limit: self.limit,
                remaining: (self.left + usable).min(self.limit),
                reset_micros,
                debt: slice.as_micros(),
            },
            now,
            is_refundable: self.is_refundable,
            is_enforced: true,
        }
    }
}

impl Decision {
    /// The decision of a hit that spent prefetched units at `now`.
    ///
    /// `self` is the decision of the grant, without its `units`; `usable` of them and of others are left. `slice` is the
    /// time at which the spent units were charged; [`prefetched_slice`](Decision::prefetched_slice) returns it.
    #[inline]
    pub(crate) fn prefetched(
        &self,
        now: Timestamp,
        units: u64,
        usable: u64,
        slice: Timestamp,
    ) -> Decision {
        let elapsed = now.since(self.now);
        let mut decision = Decision {
            outcome: self.outcome,
            limit: self.limit,
            remaining: on_hand(self.remaining, self.limit, units, usable),
            reset_after: self.reset_after.saturating_sub(elapsed),
            now,
            speaker: self.speaker,
            // Units never use the headroom.
            is_over: false,
            is_prefetched: true,
            is_enforced: true,
            is_refundable: self.is_refundable,
            // A window finds a charge by its time, so any mark but 0 lets it be refunded.
            level: Level::new(slice.as_micros()),
            several: PerLimit::NONE,
        };
        if !self.several.as_slice().is_empty() {
            decision.several = self.several.clone();
        }
        for limit in decision.several.as_mut_slice() {
            limit.remaining = on_hand(limit.remaining, limit.limit, units, usable);
            limit.reset_after = limit.reset_after.saturating_sub(elapsed);
            limit.level = Level::new(slice.as_micros());
            limit.is_over = false;
        }
        decision
    }

    /// When the units were charged that paid a hit from memory, in microseconds; `None` for a hit that the store decided.
    #[inline]
    pub(crate) const fn prefetched_slice(&self) -> Option<NonZeroU64> {
        if self.is_prefetched {
            NonZeroU64::new(self.level.spent)
        } else {
            None
        }
    }

    /// The denial of a hit from memory: each limit that has too little denies for its wait, at least for `pause`.
    pub(crate) fn prefetch_denial(
        &self,
        now: Timestamp,
        units: u64,
        usable: u64,
        pause: Duration,
        waits: impl Iterator<Item = Duration>,
    ) -> Decision {
        let mut decision = self.prefetched(now, units, usable, self.now);
        let denied = |wait: Duration| Outcome::Denied {
            retry_after: wait.max(pause),
        };
        if decision.several.as_slice().is_empty() {
            decision.outcome = denied(waits.max().unwrap_or_default());
            decision.is_refundable = false;
            return decision;
        }
        let limits = decision.several.as_mut_slice();
        for (limit, wait) in limits.iter_mut().zip(waits) {
            if wait > Duration::ZERO {
                limit.outcome = denied(wait);
            }
            limit.is_refundable = false;
        }
        let is_denied = |limit: &LimitDecision| !limit.outcome.is_allowed();
        if !limits.iter().any(is_denied)
            && let Some(least) = limits.iter_mut().min_by_key(|limit| limit.remaining)
        {
            least.outcome = denied(Duration::ZERO);
        }
        decision.select_binding_limit();
        decision.is_prefetched = true;
        decision
    }

    /// The decision of a charge that only windows refund; `is_window` tells it of each limit. The place of prefetched
    /// units in the debt of a bucket is not that of the charge.
    pub(crate) fn refundable_in_windows(
        mut self,
        mut is_window: impl Iterator<Item = bool>,
    ) -> Decision {
        if self.several.as_slice().is_empty() {
            self.is_refundable = is_window.next().unwrap_or(false);
            return self;
        }
        for (decision, is_window) in self.several.as_mut_slice().iter_mut().zip(is_window) {
            decision.is_refundable = is_window;
        }
        self
    }

    /// The decision of a peek with `units` on hand added to what the store has left.
    pub(crate) fn with_units_on_hand(mut self, units: u64) -> Decision {
        self.remaining = on_hand(self.remaining, self.limit, 0, units);
        for limit in self.several.as_mut_slice() {
            limit.remaining = on_hand(limit.remaining, limit.limit, 0, units);
        }
        self
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
            is_enforced: bool,
            units in 0..1_000_000_u64,
            usable in 0..1_000_000_u64,
            elapsed in 0..3_000_000_u64,
        ) {
            let allowed = Outcome::Allowed { delay: Duration::ZERO };
            let limit = LimitDecision {
                remaining: remaining.min(limit),
                reset_after: Duration::from_micros(reset),
                is_refundable,
                is_over,
                ..LimitDecision::new(allowed, limit)
            };
            let granted = Decision::new(limit, Timestamp::from_secs(600));
            let now = granted.now + Duration::from_micros(elapsed);
            let slice = Timestamp::from_secs(599);

            let mut charge = GrantNumbers::new(&granted, units).unwrap().charge(now, usable, slice);
            charge.is_enforced = is_enforced;
            let fast = charge.decision();

            let general = granted.prefetched(now, units, usable, slice).with_enforcement(is_enforced);
            prop_assert_eq!(&fast, &general);
            // Equal decisions may differ in these.
            prop_assert_eq!(fast.is_refundable, general.is_refundable);
            prop_assert_eq!(fast.level.spent, general.level.spent);
            prop_assert_eq!(fast.level.earlier, general.level.earlier);
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
        assert!(GrantNumbers::new(&several, 0).is_none());
        assert!(GrantNumbers::new(&Decision::new(limit(5), now), 0).is_none());
        assert!(GrantNumbers::new(&Decision::new(limit(0), now), 0).is_some());
    }
}
