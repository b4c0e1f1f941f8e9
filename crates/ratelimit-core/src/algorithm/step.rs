//! What every algorithm can do with a state: bring it to the present, ask, charge, report.

use std::time::Duration;

use super::{
    bucket::Debt, fixed_window::Count, sliding_window_counter::Counts, sliding_window_log::Log,
};
use crate::{
    decision::{LimitDecision, Outcome},
    time::Timestamp,
};

/// The four numbers with which a script tells a rolled state.
pub(crate) type Words = [u64; 4];

/// What one limit remembers of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Bucket(Debt),
    FixedWindow(Count),
    SlidingWindowLog(Log),
    SlidingWindowCounter(Counts),
}

/// Whether a hit fits into a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    Now,
    Later,
    Never,
}

/// What a hit does to the states of its policy, once all limits were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spend {
    /// It passed and costs something.
    Charge,
    /// It was denied: only repairs and counted denials are stored.
    Deny,
    /// It only looked, or can never pass.
    Nothing,
}

/// What a limit answered, and what that means for the store.
pub(crate) struct Stepped {
    pub(crate) decision: LimitDecision,
    /// How long the state means something.
    pub(crate) need: Duration,
}

/// One algorithm with its numbers, as pure arithmetic on its state.
///
/// `roll` brings a stored state to the present. Everything else is derived from what it gives, so
/// that a script needs to send back no more than that.
pub(crate) trait Step {
    type State;
    /// The state at the present moment, before the hit.
    type Rolled: Copy;

    fn limit(&self) -> u64;
    fn roll(&self, stored: Option<&Self::State>, now: Timestamp, cost: u64) -> Self::Rolled;
    /// What a script's numbers say, if they can be a state of this limit.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for scripts only"))]
    fn read(&self, words: Words) -> Option<Self::Rolled>;

    /// Whether a cost that is at most the limit fits.
    fn fits(&self, rolled: Self::Rolled, cost: u64) -> bool;
    /// When a cost that does not fit now will.
    fn retry_after(&self, rolled: Self::Rolled, cost: u64, now: Timestamp) -> Duration;
    fn remaining(&self, rolled: Self::Rolled, charged: u64) -> u64;
    fn reset_after(&self, rolled: Self::Rolled, charged: u64, now: Timestamp) -> Duration;
    /// How long the state after the charge means something.
    fn need(&self, rolled: Self::Rolled, charged: u64, now: Timestamp) -> Duration;

    /// Whether the stored time lay so far ahead that it was set to the present.
    fn was_repaired(rolled: Self::Rolled) -> bool;
    /// Stores the rolled state, with `charged` added.
    fn store(&self, slot: &mut Option<Self::State>, rolled: Self::Rolled, charged: u64);

    fn delay(&self, _rolled: Self::Rolled, _now: Timestamp) -> Duration {
        Duration::ZERO
    }

    /// Whether denied hits are stored as well.
    fn counts_denied(&self) -> bool {
        false
    }

    /// Stores a denied hit, and rolls anew.
    fn count_denied(
        &self,
        _slot: &mut Option<Self::State>,
        rolled: Self::Rolled,
        _cost: u64,
    ) -> Self::Rolled {
        rolled
    }

    fn of(state: &State) -> Option<&Self::State>;
    fn take(state: State) -> Option<Self::State>;
    fn wrap(state: Self::State) -> State;

    fn fit(&self, rolled: Self::Rolled, cost: u64) -> Fit {
        if cost > self.limit() {
            Fit::Never
        } else if cost == 0 || self.fits(rolled, cost) {
            Fit::Now
        } else {
            Fit::Later
        }
    }

    fn step(&self, slot: &mut Option<State>, now: Timestamp, cost: u64, spend: Spend) -> Stepped {
        let rolled = self.roll(slot.as_ref().and_then(Self::of), now, cost);
        let fit = self.fit(rolled, cost);
        match spend {
            Spend::Nothing => Stepped {
                decision: self.report(rolled, fit, cost, 0, now),
                need: Duration::ZERO,
            },
            Spend::Charge => {
                self.replace(slot, |own| self.store(own, rolled, cost));
                Stepped {
                    decision: self.report(rolled, fit, cost, cost, now),
                    need: self.need(rolled, cost, now),
                }
            }
            Spend::Deny => {
                if Self::was_repaired(rolled) {
                    self.replace(slot, |own| self.store(own, rolled, 0));
                }
                let (rolled, fit) = if self.counts_denied() {
                    let counted = self.replace(slot, |own| self.count_denied(own, rolled, cost));
                    (counted, self.fit(counted, cost))
                } else {
                    (rolled, fit)
                };
                Stepped {
                    decision: self.report(rolled, fit, cost, 0, now),
                    need: self.need(rolled, 0, now),
                }
            }
        }
    }

    fn report(
        &self,
        rolled: Self::Rolled,
        fit: Fit,
        cost: u64,
        charged: u64,
        now: Timestamp,
    ) -> LimitDecision {
        let outcome = match fit {
            Fit::Now => Outcome::Allowed {
                delay: self.delay(rolled, now),
            },
            Fit::Later => Outcome::Denied {
                retry_after: self.retry_after(rolled, cost, now),
            },
            Fit::Never => Outcome::Impossible,
        };
        LimitDecision {
            outcome,
            limit: self.limit(),
            remaining: self.remaining(rolled, charged),
            reset_after: self.reset_after(rolled, charged, now),
        }
    }

    /// Lets `change` work on the slot's state, seen as this algorithm's own.
    fn replace<T>(
        &self,
        slot: &mut Option<State>,
        change: impl FnOnce(&mut Option<Self::State>) -> T,
    ) -> T {
        let mut own = slot.take().and_then(Self::take);
        let changed = change(&mut own);
        *slot = own.map(Self::wrap);
        changed
    }
}
