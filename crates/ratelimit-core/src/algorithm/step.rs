//! The interface of the algorithms: bring a state to the present, compare, charge and report.

use std::time::Duration;

use crate::algorithm::State;
use crate::{
    decision::{Level, LimitDecision, Outcome, RefundMark},
    time::Timestamp,
};

/// The four numbers that a script returns for one limit: the tick `at`, then up to three numbers of
/// the algorithm.
///
/// `lua/README.md` lists them for each algorithm. Numbers that an algorithm does not have are 0.
pub(crate) type WireState = [u64; 4];

/// The units that one hit requires of one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// The units that the hit spends if it passes; 0 only reads.
    pub(crate) cost: u64,
    /// Units that must stay free beside the cost. An elastic throttle without capacity sets it to
    /// its headroom, so that the hit is compared with the plain limit and not with the raised one.
    pub(crate) reserve: u64,
    /// The id of the concurrency slot of this hit; 0 where no limit has slots.
    pub(crate) slot: u64,
}

impl Demand {
    /// The demand of a peek: it requires nothing and fits into every state.
    pub(crate) const PEEK: Demand = Demand {
        cost: 0,
        reserve: 0,
        slot: 0,
    };

    /// The units that must be free for the hit to pass; saturates at `u64::MAX`.
    pub(super) const fn total(self) -> u64 {
        self.cost.saturating_add(self.reserve)
    }
}

/// A refund of all or part of an earlier charge, as one limit sees it
/// (`docs/decisions/0008-settling.md`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refund {
    /// The units to give back. A [`Limiter`](crate::Limiter) passes at most `cost`; a larger number
    /// is not rejected here.
    pub(crate) units: u64,
    /// The units that the hit was charged.
    pub(crate) cost: u64,
    /// The time of the charge by the clock of the store; it selects the window, the stamp or the
    /// age of the debt.
    pub(crate) charged_at: Timestamp,
    /// The mark that the decision returned for this limit.
    pub(crate) mark: RefundMark,
    /// The present time of the store.
    pub(crate) now: Timestamp,
}

/// Whether a hit fits into a limit. The order matters: the fit of a policy is the maximum over its
/// limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// It fits at the present moment.
    Now,
    /// It does not fit now, and will after a wait.
    Later,
    /// The demand is above the limit, so no wait helps.
    Never,
}

/// The effect of a hit on the states of its policy, decided once all limits have been compared (law
/// 2: all or nothing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The hit passes and has a cost: every state is charged and written.
    Charge,
    /// The hit is denied: states are written only to repair their time or to count the denial.
    Deny,
    /// The hit is a peek, a dry run, or can never pass: nothing is written.
    None,
}

/// The result of one step: the decision of the limit, and what the store does with the new state.
pub(crate) struct StepResult {
    /// The decision of this limit alone, with the state after the hit.
    pub(crate) decision: LimitDecision,
    /// How long the state can still influence an answer; the expiry of the budget is the longest of
    /// its limits.
    pub(crate) ttl: Duration,
    /// The units that were charged; 0 when nothing was.
    pub(crate) charged: u64,
    /// Whether the state changed and must be stored.
    pub(crate) stored: bool,
    /// Whether the budget must not expire earlier than before this hit, because earlier receipts
    /// depend on the state.
    pub(crate) keeps_expiry: bool,
}

/// One algorithm with its numbers, as pure arithmetic on its state.
///
/// [`advance`](Step::advance) computes a snapshot of a stored state at the present moment. Every
/// other method derives its result from that snapshot, the demand and the time. A script therefore
/// has to return no more than the snapshot, and Rust reports for both stores with the same code.
///
/// The order of one step is fixed:
///
/// 1. `advance` converts the grain, applies the clock rule (law 8) and forgives what has expired.
/// 2. `fit` compares the snapshot with the demand.
/// 3. The caller turns the fits of all limits into one [`Effect`].
/// 4. `write` stores the charge, or `deny` stores a repair or a counted denial.
/// 5. `report` builds the decision from the snapshot and the charged units, without reading the
///    state again.
pub(crate) trait Step {
    /// The stored state of this algorithm, as `state_of` finds it in a [`State`](enum@State).
    type State;
    /// The state at the present moment, before the hit is charged. It is `Copy` and holds no
    /// reference into the store.
    type Snapshot: Copy;

    /// The most units that can be spent at once: the capacity, the limit, the slots or the denials.
    fn limit(&self) -> u64;

    /// Brings a stored state to the present; `None` is a key that has spent nothing.
    ///
    /// The result includes the repair of a clock that stepped back. `demand` is read only by
    /// algorithms that look up one particular stamp or slot for `retry_after`.
    fn advance(
        &self,
        stored: Option<&Self::State>,
        now: Timestamp,
        demand: Demand,
    ) -> Self::Snapshot;

    /// The snapshot that the numbers of a script mean, or `None` if they cannot be a state of this
    /// limit. A reply with such numbers is an error of that call.
    fn decode_wire(&self, words: WireState) -> Option<Self::Snapshot>;

    /// The snapshot after `units` more were charged.
    ///
    /// Hits of one batch on the same key share one reply. Each is reported as if it came alone,
    /// after those before it.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "for scripts only"))]
    fn with_charge(&self, snapshot: Self::Snapshot, units: u64) -> Self::Snapshot;

    /// Whether the limit can ever hold the demand; a hit for which it cannot is `Impossible`.
    fn can_ever_fit(&self, demand: Demand) -> bool {
        demand.total() <= self.limit()
    }

    /// Whether the demand fits now. The caller has checked [`can_ever_fit`](Step::can_ever_fit).
    fn fits(&self, snapshot: Self::Snapshot, demand: Demand) -> bool;

    /// The time until a demand that does not fit now will fit, exact to the microsecond (law 3).
    ///
    /// It is called only after `fits` returned false for the same snapshot, so its subtractions and
    /// divisions are safe.
    fn retry_after(&self, snapshot: Self::Snapshot, demand: Demand, now: Timestamp) -> Duration;

    /// The units that are left after `charged` were spent (law 4).
    fn remaining(&self, snapshot: Self::Snapshot, charged: u64) -> u64;

    /// The time until the numbers reset after `charged` were spent; zero when nothing is spent (law
    /// 4).
    fn reset_after(&self, snapshot: Self::Snapshot, charged: u64, now: Timestamp) -> Duration;

    /// How long the state after the charge can influence an answer, where that differs from
    /// `reset_after`.
    fn ttl(&self, _snapshot: Self::Snapshot, _charged: u64, _now: Timestamp) -> Option<Duration> {
        None
    }

    /// Whether `advance` moved a stored time that was too far ahead back to the present. A denied
    /// hit stores this repair.
    fn clock_was_repaired(snapshot: Self::Snapshot) -> bool;

    /// Stores the snapshot with `charged` units added, in place of whatever `slot` held.
    fn write(&self, slot: &mut Option<State>, snapshot: Self::Snapshot, charged: u64);

    /// The delay of a hit that fits now; zero for every algorithm but a shaping leaky bucket.
    fn delay(&self, _snapshot: Self::Snapshot, _now: Timestamp) -> Duration {
        Duration::ZERO
    }

    /// Whether a hit that is denied at this snapshot is counted in the state.
    fn records_denials(&self, _snapshot: Self::Snapshot) -> bool {
        false
    }

    /// Stores a denied hit and returns the snapshot after it, so that `retry_after` stays exact.
    fn record_denial(
        &self,
        _slot: &mut Option<State>,
        snapshot: Self::Snapshot,
        _demand: Demand,
    ) -> Self::Snapshot {
        snapshot
    }

    /// Whether earlier receipts need this state until the moment for which it was stored before.
    fn keeps_expiry(_snapshot: Self::Snapshot) -> bool {
        false
    }

    /// Whether a charge at this snapshot can be refunded later.
    fn is_refundable(&self, snapshot: Self::Snapshot, now: Timestamp) -> bool;

    /// The level after `charged` units were spent, which a decision carries to the local fallback.
    fn level(&self, snapshot: Self::Snapshot, charged: u64) -> Level;

    /// Whether a hit spends its cost in units. Only such limits take part in refunds and later
    /// charges.
    fn counts_units(&self) -> bool {
        true
    }

    /// Gives back part of an earlier charge. Returns whether the state changed.
    ///
    /// It never credits more than is left of that charge, and never prolongs the life of the state.
    fn refund(&self, _state: &mut Self::State, _refund: Refund) -> bool {
        false
    }

    /// Whether this limit gives the numbers of a decision only when it denies.
    fn reports_only_denials(&self) -> bool {
        false
    }

    /// The state, if this algorithm wrote it.
    fn state_of<'a>(&self, state: &'a State) -> Option<&'a Self::State>;

    /// The state for a change in place, if this algorithm wrote it.
    fn state_of_mut<'a>(&self, state: &'a mut State) -> Option<&'a mut Self::State>;

    /// Compares the snapshot with the demand. A cost of 0 fits wherever it can ever fit, also into
    /// an exhausted limit.
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

    /// Applies one hit to the state in `slot`: advance, compare, then write what `spend` returns
    /// for this fit.
    ///
    /// `spend` decides between the comparison and the write. With several limits the caller has
    /// compared them all before, and its closure ignores this fit; with one limit it maps the fit
    /// directly and the state is advanced only once.
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
        // The snapshot stays that of the moment before the charge; `charged` is added by each
        // report function.
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

    /// Applies a denial. Returns the snapshot to report, its fit, and whether the state was
    /// written.
    ///
    /// The repair is written first: a counted denial is added to the repaired state. The fit is
    /// taken again afterwards, because the denial that fills a penalty box starts its block.
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

    /// Builds the decision of this limit from the snapshot before the hit and the units charged to
    /// it.
    ///
    /// It is inlined into each caller: passing the decision on in memory takes longer than
    /// computing it.
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
            level: self.level(snapshot, charged),
            is_refundable: charged > 0 && self.is_refundable(snapshot, now),
            is_silent: self.reports_only_denials(),
            ..LimitDecision::new(outcome, self.limit())
        }
    }

    /// The snapshot with up to `units` less spent; `None` if nothing is, and for a limit that counts no units.
    fn with_credit(&self, _snapshot: Self::Snapshot, _units: u64) -> Option<Self::Snapshot> {
        None
    }

    /// Charges up to `units` later than the hit, as far as there is room (`settle` with more than
    /// was reserved).
    ///
    /// Returns how long the state is needed, or `None` if nothing was charged. The rest is
    /// forgiven: the response has been sent, and a debt beyond the limit would break "remaining is
    /// at least 0". A state of another algorithm is left alone.
    fn charge_more(
        &self,
        slot: &mut Option<State>,
        units: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let own = self.state(slot.as_ref());
        // Another version of the policy wrote this state and may read it again.
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

    /// The stored state, if this algorithm wrote it.
    fn state<'a>(&self, stored: Option<&'a State>) -> Option<&'a Self::State> {
        stored.and_then(|state| self.state_of(state))
    }

    /// The stored state for a change in place; `fresh` replaces an absent state or one of another
    /// algorithm.
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
