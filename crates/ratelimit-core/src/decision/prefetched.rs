//! Decisions from memory: the numbers of the last answer of the store, with the units on hand.

use std::time::Duration;

use crate::decision::{Decision, IsOwed, Level, LimitDecision, Outcome, PerLimit};
use crate::time::Timestamp;

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
            is_over: self.is_over,
            is_prefetched: true,
            is_enforced: true,
            is_owed: IsOwed(false),
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
        }
        decision
    }

    /// When the units were charged that paid a hit from memory; `None` for a hit that the store decided.
    pub(crate) fn prefetched_slice(&self) -> Option<Timestamp> {
        self.is_prefetched
            .then(|| Timestamp::from_micros(self.level.spent))
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
