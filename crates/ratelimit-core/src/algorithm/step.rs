//! What every algorithm can do with a state: bring it to the present, ask, charge, report.

use std::time::Duration;

use crate::algorithm::state::State;
use crate::{
    decision::{LimitDecision, Outcome, RefundMark},
    time::Timestamp,
};

/// The four numbers with which a script tells a rolled state.
pub(crate) type WireState = [u64; 4];

/// What is asked of one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) cost: u64,
    /// What has to stay free beside the cost.
    pub(crate) reserve: u64,
    /// Under which number a concurrency limit knows the hit.
    pub(crate) slot: u64,
}

impl Demand {
    /// A look: it asks for nothing.
    pub(crate) const PEEK: Demand = Demand {
        cost: 0,
        reserve: 0,
        slot: 0,
    };

    /// What must be free for the hit to pass.
    pub(super) const fn total(self) -> u64 {
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
    pub(crate) mark: RefundMark,
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
pub(crate) enum Effect {
    /// It passed and costs something.
    Charge,
    /// It was denied: only repairs and counted denials are stored.
    Deny,
    /// It only looked, or can never pass.
    None,
}

/// What a limit answered, and what that means for the store.
pub(crate) struct StepResult {
    pub(crate) decision: LimitDecision,
    /// How long the state means something.
    pub(crate) ttl: Duration,
    pub(crate) charged: u64,
    /// Whether the state is to be stored.
    pub(crate) stored: bool,
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
    type Snapshot: Copy;

    fn limit(&self) -> u64;
    fn advance(
        &self,
        stored: Option<&Self::State>,
        now: Timestamp,
        demand: Demand,
    ) -> Self::Snapshot;
    /// What a script's numbers say, if they can be a state of this limit.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for scripts only"))]
    fn decode_wire(&self, words: WireState) -> Option<Self::Snapshot>;

    /// The same state after `units` more were charged.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for scripts only"))]
    fn with_charge(&self, snapshot: Self::Snapshot, units: u64) -> Self::Snapshot;

    /// Whether the limit can ever hold what is asked.
    fn can_ever_fit(&self, demand: Demand) -> bool {
        demand.total() <= self.limit()
    }
    /// Whether what is possible fits now.
    fn fits(&self, snapshot: Self::Snapshot, demand: Demand) -> bool;
    /// When what does not fit now will.
    fn retry_after(&self, snapshot: Self::Snapshot, demand: Demand, now: Timestamp) -> Duration;
    fn remaining(&self, snapshot: Self::Snapshot, charged: u64) -> u64;
    fn reset_after(&self, snapshot: Self::Snapshot, charged: u64, now: Timestamp) -> Duration;
    /// How long the state after the charge means something, where that is not until it is reset.
    fn ttl(&self, _rolled: Self::Snapshot, _charged: u64, _now: Timestamp) -> Option<Duration> {
        None
    }

    /// Whether the stored time lay so far ahead that it was set to the present.
    fn clock_was_repaired(snapshot: Self::Snapshot) -> bool;
    /// Stores the rolled state, with `charged` added.
    fn write(&self, slot: &mut Option<State>, snapshot: Self::Snapshot, charged: u64);

    fn delay(&self, _rolled: Self::Snapshot, _now: Timestamp) -> Duration {
        Duration::ZERO
    }

    /// Whether a denied hit is stored as well.
    fn records_denials(&self, _rolled: Self::Snapshot) -> bool {
        false
    }

    /// Stores a denied hit, and rolls anew.
    fn record_denial(
        &self,
        _slot: &mut Option<State>,
        snapshot: Self::Snapshot,
        _ask: Demand,
    ) -> Self::Snapshot {
        snapshot
    }

    /// Whether the state holds something that earlier receipts need for as long as it was stored for.
    fn keeps_expiry(_rolled: Self::Snapshot) -> bool {
        false
    }

    /// What a refund of this charge will have to know; [`RefundMark::NONE`] when it cannot be given back.
    fn refund_mark(&self, snapshot: Self::Snapshot, charged: u64, now: Timestamp) -> RefundMark;

    /// Whether a hit spends as many units of it as it costs, which can be given back and raised.
    fn counts_units(&self) -> bool {
        true
    }

    /// Gives part of an earlier charge back, and tells whether that changed anything.
    fn refund(&self, _state: &mut Self::State, _refund: Refund) -> bool {
        false
    }

    /// Whether it speaks for its policy only when it denies.
    fn reports_only_denials(&self) -> bool {
        false
    }

    /// The state, if it is of this algorithm.
    fn state_of<'a>(&self, state: &'a State) -> Option<&'a Self::State>;
    fn state_of_mut<'a>(&self, state: &'a mut State) -> Option<&'a mut Self::State>;

    #[inline]
    fn fit(&self, snapshot: Self::Snapshot, demand: Demand) -> Fit {
        if !self.can_ever_fit(demand) {
            Fit::Never
        } else if demand.cost == 0 || self.fits(snapshot, demand) {
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
        demand: Demand,
        spend: impl FnOnce(Fit) -> Effect,
    ) -> StepResult {
        let snapshot = self.advance(self.state(slot.as_ref()), now, demand);
        let fit = self.fit(snapshot, demand);
        let (snapshot, fit, charged, stored) = match spend(fit) {
            Effect::Deny => {
                let (snapshot, fit, stored) = self.deny(slot, snapshot, fit, demand);
                (snapshot, fit, 0, stored)
            }
            Effect::None => (snapshot, fit, 0, false),
            Effect::Charge => {
                self.write(slot, snapshot, demand.cost);
                (snapshot, fit, demand.cost, true)
            }
        };
        let decision = self.report(snapshot, fit, demand, charged, now);
        let ttl = self.ttl(snapshot, charged, now);
        StepResult {
            decision,
            ttl: ttl.unwrap_or(decision.reset_after),
            charged,
            stored,
            keeps_expiry: Self::keeps_expiry(snapshot),
        }
    }

    /// Denies a hit, and tells whether that is stored: only repairs and counted denials are.
    #[inline]
    fn deny(
        &self,
        slot: &mut Option<State>,
        snapshot: Self::Snapshot,
        fit: Fit,
        demand: Demand,
    ) -> (Self::Snapshot, Fit, bool) {
        let is_repaired = Self::clock_was_repaired(snapshot);
        if is_repaired {
            self.write(slot, snapshot, 0);
        }
        if !self.records_denials(snapshot) {
            return (snapshot, fit, is_repaired);
        }
        let counted = self.record_denial(slot, snapshot, demand);
        (counted, self.fit(counted, demand), true)
    }

    #[inline(always)]
    fn report(
        &self,
        snapshot: Self::Snapshot,
        fit: Fit,
        demand: Demand,
        charged: u64,
        now: Timestamp,
    ) -> LimitDecision {
        let outcome = match fit {
            Fit::Now => Outcome::Allowed {
                delay: self.delay(snapshot, now),
            },
            Fit::Later => Outcome::Denied {
                retry_after: self.retry_after(snapshot, demand, now),
            },
            Fit::Never => Outcome::Impossible,
        };
        LimitDecision {
            remaining: self.remaining(snapshot, charged),
            reset_after: self.reset_after(snapshot, charged, now),
            mark: match charged {
                0 => RefundMark::NONE,
                _ => self.refund_mark(snapshot, charged, now),
            },
            is_silent: self.reports_only_denials(),
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
        let own = self.state(slot.as_ref());
        let is_of_another = slot.is_some() && own.is_none();
        let snapshot = self.advance(own, now, Demand::PEEK);
        let charged = units.min(self.remaining(snapshot, 0));
        if charged == 0 || is_of_another || !self.counts_units() {
            return None;
        }
        self.write(slot, snapshot, charged);
        let ttl = self.ttl(snapshot, charged, now);
        Some(ttl.unwrap_or_else(|| self.reset_after(snapshot, charged, now)))
    }

    /// The stored state, where it is of this algorithm.
    fn state<'a>(&self, stored: Option<&'a State>) -> Option<&'a Self::State> {
        stored.and_then(|state| self.state_of(state))
    }

    /// The stored state to be changed, `fresh` where there is none of this algorithm.
    fn state_or_insert<'a>(
        &self,
        slot: &'a mut Option<State>,
        fresh: impl FnOnce() -> State,
    ) -> &'a mut Self::State {
        if self.state(slot.as_ref()).is_none() {
            *slot = Some(fresh());
        }
        let own = slot.as_mut().and_then(|state| self.state_of_mut(state));
        own.expect("a fresh state is of its algorithm")
    }
}
