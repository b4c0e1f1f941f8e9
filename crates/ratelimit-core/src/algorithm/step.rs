//! What every algorithm can do with a state: bring it to the present, ask, charge, report.

use std::time::Duration;

use super::state::State;
use crate::{
    decision::{LimitDecision, Mark, Outcome},
    time::Timestamp,
};

/// The four numbers with which a script tells a rolled state.
pub(crate) type Words = [u64; 4];

/// What is asked of one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) cost: u64,
    /// What has to stay free beside the cost.
    pub(crate) reserve: u64,
    /// Under which number a concurrency limit knows the hit.
    pub(crate) slot: u64,
}

impl Ask {
    /// A look: it asks for nothing.
    pub(crate) const NOTHING: Ask = Ask {
        cost: 0,
        reserve: 0,
        slot: 0,
    };

    /// What must be free for the hit to pass.
    pub(super) const fn wanted(self) -> u64 {
        self.cost.saturating_add(self.reserve)
    }
}

/// What is given back of a charge that was made earlier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refund {
    pub(crate) units: u64,
    /// What the charge cost.
    pub(crate) cost: u64,
    /// When the charge was made, by the store's clock.
    pub(crate) charged_at: Timestamp,
    /// What [`LimitDecision`] remembered of the charge.
    pub(crate) mark: Mark,
    pub(crate) now: Timestamp,
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
    pub(crate) charged: u64,
    /// Whether the state is to be stored.
    pub(crate) wrote: bool,
    /// Whether the budget must not expire earlier than it would have before.
    pub(crate) keeps_expiry: bool,
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
    fn roll(&self, stored: Option<&Self::State>, now: Timestamp, ask: Ask) -> Self::Rolled;
    /// What a script's numbers say, if they can be a state of this limit.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for scripts only"))]
    fn read(&self, words: Words) -> Option<Self::Rolled>;

    /// The same state after `units` more were charged.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for scripts only"))]
    fn charged(&self, rolled: Self::Rolled, units: u64) -> Self::Rolled;

    /// Whether the limit can ever hold what is asked.
    fn is_possible(&self, ask: Ask) -> bool {
        ask.wanted() <= self.limit()
    }
    /// Whether what is possible fits now.
    fn fits(&self, rolled: Self::Rolled, ask: Ask) -> bool;
    /// When what does not fit now will.
    fn retry_after(&self, rolled: Self::Rolled, ask: Ask, now: Timestamp) -> Duration;
    fn remaining(&self, rolled: Self::Rolled, charged: u64) -> u64;
    fn reset_after(&self, rolled: Self::Rolled, charged: u64, now: Timestamp) -> Duration;
    /// How long the state after the charge means something, where that is not until it is reset.
    fn need(&self, _rolled: Self::Rolled, _charged: u64, _now: Timestamp) -> Option<Duration> {
        None
    }

    /// Whether the stored time lay so far ahead that it was set to the present.
    fn was_repaired(rolled: Self::Rolled) -> bool;
    /// Stores the rolled state, with `charged` added.
    fn store(&self, slot: &mut Option<State>, rolled: Self::Rolled, charged: u64);

    fn delay(&self, _rolled: Self::Rolled, _now: Timestamp) -> Duration {
        Duration::ZERO
    }

    /// Whether a denied hit is stored as well.
    fn counts_denied(&self, _rolled: Self::Rolled) -> bool {
        false
    }

    /// Stores a denied hit, and rolls anew.
    fn count_denied(
        &self,
        _slot: &mut Option<State>,
        rolled: Self::Rolled,
        _ask: Ask,
    ) -> Self::Rolled {
        rolled
    }

    /// Whether the state holds something that earlier receipts need for as long as it was stored for.
    fn keeps_expiry(_rolled: Self::Rolled) -> bool {
        false
    }

    /// What a refund of this charge will have to know; [`Mark::NONE`] when it cannot be given back.
    fn mark(&self, rolled: Self::Rolled, charged: u64, now: Timestamp) -> Mark;

    /// Whether a hit spends as many units of it as it costs, which can be given back and raised.
    fn has_units(&self) -> bool {
        true
    }

    /// Gives part of an earlier charge back, and tells whether that changed anything.
    fn refund(&self, _state: &mut Self::State, _refund: Refund) -> bool {
        false
    }

    /// Whether it speaks for its policy only when it denies.
    fn is_silent(&self) -> bool {
        false
    }

    /// The state, if it is of this algorithm.
    fn of<'a>(&self, state: &'a State) -> Option<&'a Self::State>;
    fn of_mut<'a>(&self, state: &'a mut State) -> Option<&'a mut Self::State>;

    #[inline]
    fn fit(&self, rolled: Self::Rolled, ask: Ask) -> Fit {
        if !self.is_possible(ask) {
            Fit::Never
        } else if ask.cost == 0 || self.fits(rolled, ask) {
            Fit::Now
        } else {
            Fit::Later
        }
    }

    /// Applies a hit to the state, once `spend` has said what it does that fits so.
    #[inline]
    fn step(
        &self,
        slot: &mut Option<State>,
        now: Timestamp,
        ask: Ask,
        spend: impl FnOnce(Fit) -> Spend,
    ) -> Stepped {
        let rolled = self.roll(self.own(slot.as_ref()), now, ask);
        let fit = self.fit(rolled, ask);
        let (rolled, fit, charged, wrote) = match spend(fit) {
            Spend::Deny => {
                let (rolled, fit, wrote) = self.deny(slot, rolled, fit, ask);
                (rolled, fit, 0, wrote)
            }
            Spend::Nothing => (rolled, fit, 0, false),
            Spend::Charge => {
                self.store(slot, rolled, ask.cost);
                (rolled, fit, ask.cost, true)
            }
        };
        let decision = self.report(rolled, fit, ask, charged, now);
        let need = self.need(rolled, charged, now);
        Stepped {
            decision,
            need: need.unwrap_or(decision.reset_after),
            charged,
            wrote,
            keeps_expiry: Self::keeps_expiry(rolled),
        }
    }

    /// Denies a hit, and tells whether that is stored: only repairs and counted denials are.
    #[inline]
    fn deny(
        &self,
        slot: &mut Option<State>,
        rolled: Self::Rolled,
        fit: Fit,
        ask: Ask,
    ) -> (Self::Rolled, Fit, bool) {
        let is_repaired = Self::was_repaired(rolled);
        if is_repaired {
            self.store(slot, rolled, 0);
        }
        if !self.counts_denied(rolled) {
            return (rolled, fit, is_repaired);
        }
        let counted = self.count_denied(slot, rolled, ask);
        (counted, self.fit(counted, ask), true)
    }

    #[inline(always)]
    fn report(
        &self,
        rolled: Self::Rolled,
        fit: Fit,
        ask: Ask,
        charged: u64,
        now: Timestamp,
    ) -> LimitDecision {
        let outcome = match fit {
            Fit::Now => Outcome::Allowed {
                delay: self.delay(rolled, now),
            },
            Fit::Later => Outcome::Denied {
                retry_after: self.retry_after(rolled, ask, now),
            },
            Fit::Never => Outcome::Impossible,
        };
        LimitDecision {
            remaining: self.remaining(rolled, charged),
            reset_after: self.reset_after(rolled, charged, now),
            mark: match charged {
                0 => Mark::NONE,
                _ => self.mark(rolled, charged, now),
            },
            is_silent: self.is_silent(),
            ..LimitDecision::new(outcome, self.limit())
        }
    }

    /// Charges as many of `units` as there is room for, and tells how long the state then means
    /// something; nothing when there was none.
    fn charge_more(
        &self,
        slot: &mut Option<State>,
        units: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let own = self.own(slot.as_ref());
        let is_of_another = slot.is_some() && own.is_none();
        let rolled = self.roll(own, now, Ask::NOTHING);
        let charged = units.min(self.remaining(rolled, 0));
        if charged == 0 || is_of_another || !self.has_units() {
            return None;
        }
        self.store(slot, rolled, charged);
        let need = self.need(rolled, charged, now);
        Some(need.unwrap_or_else(|| self.reset_after(rolled, charged, now)))
    }

    /// The stored state, where it is of this algorithm.
    fn own<'a>(&self, stored: Option<&'a State>) -> Option<&'a Self::State> {
        stored.and_then(|state| self.of(state))
    }

    /// The stored state to be changed, `fresh` where there is none of this algorithm.
    fn own_mut<'a>(
        &self,
        slot: &'a mut Option<State>,
        fresh: impl FnOnce() -> State,
    ) -> &'a mut Self::State {
        if self.own(slot.as_ref()).is_none() {
            *slot = Some(fresh());
        }
        let own = slot.as_mut().and_then(|state| self.of_mut(state));
        own.expect("a fresh state is of its algorithm")
    }
}
