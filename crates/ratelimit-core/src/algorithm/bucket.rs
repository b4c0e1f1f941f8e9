//! The arithmetic that the token bucket and the leaky bucket share: a debt that time forgives.

use std::time::Duration;

use super::{
    name::Algorithm,
    period::{InvalidLimit, Packed, Period, catch_up},
    state::State,
    step::{Ask, Refund, Step, Words},
};
use crate::{
    decision::{Charge, Mark},
    time::{MAX_EXACT, Timestamp},
};

/// What a bucket remembers: a debt, of which a token costs as much as the period has ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct Debt {
    owed: u64,
    at: u64,
    period: Packed,
}

/// What a bucket remembers of which something was refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefundedDebt {
    algorithm: Algorithm,
    debt: Debt,
    /// The tokens that were refunded since the budget was made; receipts carry how many it had been.
    refunded: u64,
}

/// A bucket's debt at the present moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolled {
    at: u64,
    debt: u64,
    refunded: u64,
    repaired: bool,
}

/// A token costs `period.ticks` of debt, and each tick of time forgives `refill` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(super) capacity: u64,
    pub(super) refill: u64,
    pub(crate) period: Period,
    /// Which of the two it is: their states are not each other's.
    pub(super) algorithm: Algorithm,
    /// Whether an admitted hit waits for its turn.
    pub(super) shapes: bool,
}

impl Bucket {
    pub(super) const fn new(
        capacity: u64,
        refill: u64,
        period: Duration,
        algorithm: Algorithm,
    ) -> Result<Bucket, InvalidLimit> {
        if refill == 0 {
            return Err(InvalidLimit::Zero);
        }
        if refill >= MAX_EXACT {
            return Err(InvalidLimit::Refill { refill });
        }
        match Period::fitting(capacity, period) {
            Ok(period) => Ok(Bucket {
                capacity,
                refill,
                period,
                algorithm,
                shapes: matches!(algorithm, Algorithm::LeakyBucket),
            }),
            Err(invalid) => Err(invalid),
        }
    }

    /// The debt of an empty bucket.
    #[inline]
    const fn full(&self) -> u64 {
        self.capacity * self.period.ticks
    }

    /// A debt of which a token cost `stored_unit`, in our unit: as many tokens, rounded up.
    #[inline]
    const fn convert(&self, owed: u64, stored_unit: u64) -> u64 {
        let unit = self.period.ticks;
        if stored_unit == unit {
            return owed;
        }
        match owed.checked_mul(unit) {
            Some(exact) if exact < MAX_EXACT => exact.div_ceil(stored_unit),
            _ => {
                let tokens = owed.div_ceil(stored_unit);
                if tokens < self.capacity {
                    tokens * unit
                } else {
                    self.full()
                }
            }
        }
    }

    #[inline]
    const fn after(&self, rolled: Rolled, charged: u64) -> u64 {
        rolled.debt + charged * self.period.ticks
    }

    #[inline]
    fn until_forgiven(&self, at: u64, debt: u64, now: Timestamp) -> Duration {
        if debt == 0 {
            return Duration::ZERO;
        }
        self.period.until(at + debt.div_ceil(self.refill), now)
    }
}

impl Bucket {
    /// Charges a state as [`Step::step`] does, where that is plain: the bucket itself wrote it, time went
    /// on since, nobody has to wait, and something is left. Otherwise nothing is done.
    #[inline(always)]
    pub(crate) fn charge_at_once(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: u64,
    ) -> Option<Charge> {
        let (State::TokenBucket(stored), Algorithm::TokenBucket) = (state, self.algorithm) else {
            return None;
        };
        let (tick, full) = (self.period.tick(now), self.full());
        let elapsed = tick.checked_sub(stored.at)?;
        if stored.period.period() != self.period || cost == 0 || cost >= self.capacity {
            return None;
        }
        let forgiven = elapsed.saturating_mul(self.refill);
        let debt = stored.owed.min(full).saturating_sub(forgiven) + cost * self.period.ticks;
        let room = full.checked_sub(debt)?;
        let whole_at = tick + debt.div_ceil(self.refill);
        let whole_at = whole_at.checked_mul(self.period.grain.micros())?;
        if room < self.period.ticks {
            return None;
        }
        stored.owed = debt;
        stored.at = tick;
        Some(Charge {
            limit: self.capacity,
            remaining: room / self.period.ticks,
            reset_micros: whole_at.saturating_sub(now.as_micros()),
            debt,
        })
    }
}

impl Step for Bucket {
    type State = State;
    type Rolled = Rolled;

    #[inline]
    fn limit(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn roll(&self, stored: Option<&State>, now: Timestamp, _ask: Ask) -> Rolled {
        let now = self.period.tick(now);
        let Some((stored, refunded)) = stored.and_then(debt_of) else {
            return Rolled {
                at: now,
                debt: 0,
                refunded: 0,
                repaired: false,
            };
        };
        let written = stored.period.period();
        let owed = self.convert(stored.owed, written.ticks).min(self.full());
        let stored_at = self.period.convert(stored.at, written.grain);
        let (at, repaired) = catch_up(stored_at, now, self.period.ticks);
        let forgiven = at.saturating_sub(stored_at).saturating_mul(self.refill);
        Rolled {
            at,
            debt: owed.saturating_sub(forgiven),
            refunded,
            repaired,
        }
    }

    fn read(&self, [at, debt, refunded, _]: Words) -> Option<Rolled> {
        (debt <= self.full()).then_some(Rolled {
            at,
            debt,
            refunded,
            repaired: false,
        })
    }

    fn charged(&self, rolled: Rolled, units: u64) -> Rolled {
        Rolled {
            debt: self.after(rolled, units),
            ..rolled
        }
    }

    #[inline]
    fn fits(&self, rolled: Rolled, ask: Ask) -> bool {
        self.after(rolled, ask.wanted()) <= self.full()
    }

    #[inline]
    fn retry_after(&self, rolled: Rolled, ask: Ask, now: Timestamp) -> Duration {
        let missing = self.after(rolled, ask.wanted()) - self.full();
        self.until_forgiven(rolled.at, missing, now)
    }

    #[inline]
    fn remaining(&self, rolled: Rolled, charged: u64) -> u64 {
        (self.full() - self.after(rolled, charged)) / self.period.ticks
    }

    #[inline]
    fn reset_after(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Duration {
        self.until_forgiven(rolled.at, self.after(rolled, charged), now)
    }

    #[inline]
    fn delay(&self, rolled: Rolled, now: Timestamp) -> Duration {
        if self.shapes {
            self.until_forgiven(rolled.at, rolled.debt, now)
        } else {
            Duration::ZERO
        }
    }

    #[inline]
    fn was_repaired(rolled: Rolled) -> bool {
        rolled.repaired
    }

    #[inline]
    fn store(&self, slot: &mut Option<State>, rolled: Rolled, charged: u64) {
        let debt = Debt {
            owed: self.after(rolled, charged),
            at: rolled.at,
            period: Packed::new(self.period),
        };
        match (self.algorithm, slot) {
            (Algorithm::TokenBucket, Some(State::TokenBucket(own)))
            | (Algorithm::LeakyBucket, Some(State::LeakyBucket(own))) => *own = debt,
            (_, slot) => *slot = Some(self.state(debt, rolled.refunded)),
        }
    }

    #[inline]
    fn keeps_expiry(rolled: Rolled) -> bool {
        rolled.refunded > 0
    }

    #[inline]
    fn mark(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Mark {
        if rolled.at != self.period.tick(now) {
            return Mark::NONE;
        }
        Mark {
            debt: self.after(rolled, charged),
            refunded: rolled.refunded,
        }
    }

    fn refund(&self, state: &mut State, refund: Refund) -> bool {
        let Some((mut stored, refunded)) = debt_of(state) else {
            return false;
        };
        let is_ours = stored.period.period() == self.period;
        let charge_tick = self.period.tick(refund.charged_at);
        // A state ahead of the clock has forgiven up to its own time.
        let forgiven_until = self.period.tick(refund.now).max(stored.at);
        let elapsed = forgiven_until.checked_sub(charge_tick);
        let (true, Some(elapsed)) = (is_ours, elapsed) else {
            return false;
        };
        // Time forgives the oldest debt first. What was refunded since the charge may have been older debt,
        // which time did not have to forgive before it came to this charge.
        let unit = self.period.ticks;
        let forgiven = elapsed.saturating_mul(self.refill);
        let older = refund
            .mark
            .debt
            .saturating_sub(refund.cost.saturating_mul(unit));
        let refunded_since = refunded.saturating_sub(refund.mark.refunded);
        let older_refunded = refunded_since.saturating_mul(unit).min(older);
        let gone = forgiven.saturating_add(older_refunded);
        let still_owed = refund.mark.debt.saturating_sub(gone);
        let asked = refund.units.saturating_mul(unit);
        let credit = asked.min(still_owed).min(stored.owed);
        if credit == 0 {
            return false;
        }
        stored.owed -= credit;
        *state = self.state(stored, refunded.saturating_add(credit.div_ceil(unit)));
        true
    }

    #[inline]
    fn of<'a>(&self, state: &'a State) -> Option<&'a State> {
        self.owns(state).then_some(state)
    }

    fn of_mut<'a>(&self, state: &'a mut State) -> Option<&'a mut State> {
        self.owns(state).then_some(state)
    }
}

impl Bucket {
    /// Whether a state is of the same of the two algorithms.
    #[inline]
    fn owns(&self, state: &State) -> bool {
        match (self.algorithm, state) {
            (Algorithm::TokenBucket, State::TokenBucket(_))
            | (Algorithm::LeakyBucket, State::LeakyBucket(_)) => true,
            (algorithm, State::RefundedBucket(refunded)) => refunded.algorithm == algorithm,
            _ => false,
        }
    }

    #[inline]
    fn state(&self, debt: Debt, refunded: u64) -> State {
        match self.algorithm {
            algorithm if refunded > 0 => State::RefundedBucket(Box::new(RefundedDebt {
                algorithm,
                debt,
                refunded,
            })),
            Algorithm::LeakyBucket => State::LeakyBucket(debt),
            _ => State::TokenBucket(debt),
        }
    }
}

/// The debt of a bucket, and the tokens that were refunded.
#[inline]
fn debt_of(state: &State) -> Option<(Debt, u64)> {
    match state {
        State::TokenBucket(debt) | State::LeakyBucket(debt) => Some((*debt, 0)),
        State::RefundedBucket(refunded) => Some((refunded.debt, refunded.refunded)),
        _ => None,
    }
}
