//! The interface of the algorithms, and the one hit that it is made for.

use std::time::Duration;

use crate::algorithm::State;
use crate::{
    decision::{LimitDecision, Outcome, RefundMark},
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
    /// Units that must stay free in addition to the cost. An elastic throttle without capacity sets
    /// it to its headroom, so that the hit is compared with the plain limit and not the raised one.
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
    pub(crate) const fn total(self) -> u64 {
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

/// The effect of a hit on the states of its policy, decided once all limits have been compared: all
/// are charged, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The hit passes and has a cost: every state is charged and written.
    Charge,
    /// The hit is denied: states are written only to repair their time or to count the denial.
    Deny,
    /// The hit is a peek, a dry run, or can never pass: nothing is written.
    None,
}

/// One algorithm with its numbers, as pure arithmetic on its state.
///
/// [`advance`](Step::advance) computes a snapshot of a stored state at the present moment. Every
/// other method derives its result from a snapshot, the demand and the time. A script therefore has
/// to return no more than the snapshot, and Rust reports for both stores with the same code.
///
/// A hit calls `advance` and `fits`. If it passes, `charge` and `write` follow, else
/// `record_denial`. [`step_limit`] has the order.
pub(crate) trait Step {
    /// The state at one moment. It holds no reference into the store.
    type Snapshot: Copy;

    /// The most units that can be spent at once: the capacity, the limit, the slots or the denials.
    fn limit(&self) -> u64;

    /// Brings a stored state to the present. No state, or one of another algorithm, has spent
    /// nothing.
    ///
    /// The result includes the repair of a clock that stepped back. `demand` is read only by
    /// algorithms that look up one particular stamp or slot for `retry_after`.
    fn advance(&self, stored: Option<&State>, now: Timestamp, demand: Demand) -> Self::Snapshot;

    /// Whether `advance` moved a stored time that was too far ahead back to the present. A denied
    /// hit stores this repair.
    fn is_repaired(snapshot: Self::Snapshot) -> bool;

    /// Whether a demand of at most the limit fits now.
    fn fits(&self, snapshot: Self::Snapshot, demand: Demand) -> bool;

    /// The time until a demand that does not fit now will fit, exact to the microsecond.
    ///
    /// It is called only after `fits` returned false for the same snapshot, so its subtractions and
    /// divisions are safe.
    fn retry_after(&self, snapshot: Self::Snapshot, demand: Demand, now: Timestamp) -> Duration;

    /// The delay of a hit that fits now; zero for every algorithm but a shaping leaky bucket.
    fn delay(&self, _snapshot: Self::Snapshot, _now: Timestamp) -> Duration {
        Duration::ZERO
    }

    /// The snapshot after `units` more were charged.
    fn charge(&self, snapshot: Self::Snapshot, units: u64) -> Self::Snapshot;

    /// The snapshot with up to `units` less spent; `None` if nothing is, or if the limit counts no
    /// units.
    fn credit(&self, _snapshot: Self::Snapshot, _units: u64) -> Option<Self::Snapshot> {
        None
    }

    /// The units that are left.
    fn remaining(&self, snapshot: Self::Snapshot) -> u64;

    /// The time until the numbers reset; zero when nothing is spent.
    fn reset_after(&self, snapshot: Self::Snapshot, now: Timestamp) -> Duration;

    /// How long the state can influence an answer.
    fn ttl(&self, snapshot: Self::Snapshot, now: Timestamp) -> Duration {
        self.reset_after(snapshot, now)
    }

    /// Stores a snapshot, in place of whatever `slot` held.
    fn write(&self, slot: &mut Option<State>, snapshot: Self::Snapshot);

    /// Stores a denied hit, if this limit counts it. Returns the snapshot after it, so that
    /// `retry_after` stays exact.
    fn record_denial(
        &self,
        _slot: &mut Option<State>,
        _snapshot: Self::Snapshot,
        _demand: Demand,
    ) -> Option<Self::Snapshot> {
        None
    }

    /// The mark by which a charge that led to this snapshot can be refunded.
    fn mark(&self, _snapshot: Self::Snapshot, _now: Timestamp) -> RefundMark {
        RefundMark::NONE
    }

    /// Gives back part of an earlier charge. Returns whether the state changed.
    ///
    /// It never credits more than is left of that charge, and never prolongs the life of the state.
    fn refund(&self, _state: &mut State, _refund: Refund) -> bool {
        false
    }

    /// The snapshot that the numbers of a script mean, or `None` if they cannot be a state of this
    /// limit. A reply with such numbers is an error of that call.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "for scripts only"))]
    fn decode(&self, words: WireState) -> Option<Self::Snapshot>;
}

/// The result of one step: the decision of the limit, and what the store does with the new state.
pub(crate) struct StepResult {
    /// The decision of this limit alone, with the state after the hit.
    pub(crate) decision: LimitDecision,
    /// The mark of the charge.
    pub(crate) mark: RefundMark,
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

/// Compares a snapshot with the demand. A cost of 0 fits wherever it can ever fit, also into an
/// exhausted limit.
#[inline]
pub(crate) fn fit<S: Step>(limit: &S, snapshot: S::Snapshot, demand: Demand) -> Fit {
    if demand.total() > limit.limit() {
        Fit::Never
    } else if demand.cost == 0 || limit.fits(snapshot, demand) {
        Fit::Now
    } else {
        Fit::Later
    }
}

/// Applies one hit to the state in `slot`: advance, compare, then write what `spend` returns for
/// this fit.
///
/// With several limits the caller has compared them all before, and its closure ignores this fit;
/// with one limit it maps the fit directly and the state is advanced only once.
#[inline]
pub(crate) fn step_limit<S: Step>(
    limit: &S,
    slot: &mut Option<State>,
    now: Timestamp,
    demand: Demand,
    spend: impl FnOnce(Fit) -> Effect,
) -> StepResult {
    let mut before = limit.advance(slot.as_ref(), now, demand);
    let mut fits = fit(limit, before, demand);
    let mut after = before;
    let (charged, stored) = match spend(fits) {
        Effect::Charge => {
            after = limit.charge(before, demand.cost);
            limit.write(slot, after);
            (demand.cost, true)
        }
        Effect::Deny => {
            // The repair is written first: a counted denial is added to the repaired state.
            let is_repaired = S::is_repaired(before);
            if is_repaired {
                limit.write(slot, before);
            }
            let counted = limit.record_denial(slot, before, demand);
            if let Some(counted) = counted {
                // The denial that fills a penalty box starts its block.
                (before, after, fits) = (counted, counted, fit(limit, counted, demand));
            }
            (0, is_repaired || counted.is_some())
        }
        Effect::None => (0, false),
    };
    let mark = limit.mark(after, now);
    StepResult {
        decision: report(limit, before, after, fits, demand, now),
        mark: if charged > 0 { mark } else { RefundMark::NONE },
        ttl: limit.ttl(after, now),
        charged,
        stored,
        keeps_expiry: mark.refunded > 0,
    }
}

/// The decision of a limit, from the snapshots before and after the hit.
///
/// It is inlined into each caller: passing the decision on in memory takes longer than computing it.
#[inline(always)]
pub(crate) fn report<S: Step>(
    limit: &S,
    before: S::Snapshot,
    after: S::Snapshot,
    fit: Fit,
    demand: Demand,
    now: Timestamp,
) -> LimitDecision {
    let outcome = match fit {
        Fit::Now => Outcome::Allowed {
            delay: limit.delay(before, now),
        },
        Fit::Later => Outcome::Denied {
            retry_after: limit.retry_after(before, demand, now),
        },
        Fit::Never => Outcome::Impossible,
    };
    LimitDecision {
        remaining: limit.remaining(after),
        reset_after: limit.reset_after(after, now),
        ..LimitDecision::new(outcome, limit.limit())
    }
}
