//! The arithmetic that the token bucket and the leaky bucket share: a debt that time forgives.

use std::time::Duration;

use crate::algorithm::{
    kind::Algorithm,
    period::{InvalidLimit, PackedPeriod, Period, catch_up},
    state::State,
    step::{Demand, Refund, Step, WireState},
};
use crate::{
    decision::{FastCharge, RefundMark},
    time::{MAX_EXACT, Timestamp},
};

/// What a change of the unit adds to the tokens refunded. Fewer are refunded while a receipt is kept, so that a
/// receipt from before the change is known by the difference.
const UNIT_CHANGE: u64 = 1 << 32;
/// The tokens refunded are counted up to here, and from zero again.
const REFUND_COUNT_END: u64 = 1 << 52;

/// What a bucket remembers: a debt, of which a token costs as much as the period has ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct BucketState {
    owed: u64,
    at: u64,
    period: PackedPeriod,
}

/// What a bucket remembers of which something was refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefundedBucketState {
    algorithm: Algorithm,
    debt: BucketState,
    /// The tokens that were refunded since the budget was made, and [`UNIT_CHANGE`] for each change of the unit;
    /// receipts carry how many it had been.
    refunded: u64,
}

/// A bucket's debt at the present moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketSnapshot {
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
    const fn max_debt(&self) -> u64 {
        self.capacity * self.period.ticks
    }

    /// A debt of which a token cost `stored_unit`, in our unit: as many tokens, rounded up.
    #[inline]
    const fn convert_debt(&self, owed: u64, stored_unit: u64) -> u64 {
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
                    self.max_debt()
                }
            }
        }
    }

    #[inline]
    const fn debt_after(&self, snapshot: BucketSnapshot, charged: u64) -> u64 {
        snapshot.debt + charged * self.period.ticks
    }

    #[inline]
    fn time_to_forgive(&self, at: u64, debt: u64, now: Timestamp) -> Duration {
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
    pub(crate) fn try_charge_fast(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: u64,
    ) -> Option<FastCharge> {
        let (State::TokenBucket(stored), Algorithm::TokenBucket) = (state, self.algorithm) else {
            return None;
        };
        let (tick, full) = (self.period.tick(now), self.max_debt());
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
        Some(FastCharge {
            limit: self.capacity,
            remaining: room / self.period.ticks,
            reset_micros: whole_at.saturating_sub(now.as_micros()),
            debt,
        })
    }
}

impl Step for Bucket {
    type State = State;
    type Snapshot = BucketSnapshot;

    #[inline]
    fn limit(&self) -> u64 {
        self.capacity
    }

    #[inline]
    fn advance(&self, stored: Option<&State>, now: Timestamp, _ask: Demand) -> BucketSnapshot {
        let now = self.period.tick(now);
        let Some((stored, refunded)) = stored.and_then(debt_of_state) else {
            return BucketSnapshot {
                at: now,
                debt: 0,
                refunded: 0,
                repaired: false,
            };
        };
        let written = stored.period.period();
        let owed = self
            .convert_debt(stored.owed, written.ticks)
            .min(self.max_debt());
        let stored_at = self.period.convert(stored.at, written.grain);
        let (at, repaired) = catch_up(stored_at, now, self.period.ticks);
        let forgiven = at.saturating_sub(stored_at).saturating_mul(self.refill);
        let refunded = if written == self.period {
            refunded
        } else {
            (refunded + UNIT_CHANGE) % REFUND_COUNT_END
        };
        BucketSnapshot {
            at,
            debt: owed.saturating_sub(forgiven),
            refunded,
            repaired,
        }
    }

    fn decode_wire(&self, [at, debt, refunded, _]: WireState) -> Option<BucketSnapshot> {
        (debt <= self.max_debt()).then_some(BucketSnapshot {
            at,
            debt,
            refunded,
            repaired: false,
        })
    }

    fn with_charge(&self, snapshot: BucketSnapshot, units: u64) -> BucketSnapshot {
        BucketSnapshot {
            debt: self.debt_after(snapshot, units),
            ..snapshot
        }
    }

    #[inline]
    fn fits(&self, snapshot: BucketSnapshot, demand: Demand) -> bool {
        self.debt_after(snapshot, demand.total()) <= self.max_debt()
    }

    #[inline]
    fn retry_after(&self, snapshot: BucketSnapshot, demand: Demand, now: Timestamp) -> Duration {
        let missing = self.debt_after(snapshot, demand.total()) - self.max_debt();
        self.time_to_forgive(snapshot.at, missing, now)
    }

    #[inline]
    fn remaining(&self, snapshot: BucketSnapshot, charged: u64) -> u64 {
        (self.max_debt() - self.debt_after(snapshot, charged)) / self.period.ticks
    }

    #[inline]
    fn reset_after(&self, snapshot: BucketSnapshot, charged: u64, now: Timestamp) -> Duration {
        self.time_to_forgive(snapshot.at, self.debt_after(snapshot, charged), now)
    }

    #[inline]
    fn delay(&self, snapshot: BucketSnapshot, now: Timestamp) -> Duration {
        if self.shapes {
            self.time_to_forgive(snapshot.at, snapshot.debt, now)
        } else {
            Duration::ZERO
        }
    }

    #[inline]
    fn clock_was_repaired(snapshot: BucketSnapshot) -> bool {
        snapshot.repaired
    }

    #[inline]
    fn write(&self, slot: &mut Option<State>, snapshot: BucketSnapshot, charged: u64) {
        let debt = BucketState {
            owed: self.debt_after(snapshot, charged),
            at: snapshot.at,
            period: PackedPeriod::new(self.period),
        };
        match (self.algorithm, slot) {
            (Algorithm::TokenBucket, Some(State::TokenBucket(own)))
            | (Algorithm::LeakyBucket, Some(State::LeakyBucket(own)))
                if snapshot.refunded == 0 =>
            {
                *own = debt;
            }
            (_, slot) => *slot = Some(self.stored_state(debt, snapshot.refunded)),
        }
    }

    #[inline]
    fn keeps_expiry(snapshot: BucketSnapshot) -> bool {
        snapshot.refunded > 0
    }

    #[inline]
    fn refund_mark(&self, snapshot: BucketSnapshot, charged: u64, now: Timestamp) -> RefundMark {
        if snapshot.at != self.period.tick(now) {
            return RefundMark::NONE;
        }
        RefundMark {
            debt: self.debt_after(snapshot, charged),
            refunded: snapshot.refunded,
        }
    }

    fn refund(&self, state: &mut State, refund: Refund) -> bool {
        let Some((mut stored, refunded)) = debt_of_state(state) else {
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
        let unit = self.period.ticks;
        // Debt that stood before the charge; a mark below the charge itself is of another unit.
        let charged = refund.cost.saturating_mul(unit);
        let older = refund.mark.debt.checked_sub(charged);
        // An instance of an earlier version drops the count of refunds, and a changed unit makes it jump.
        let refunded_since = refunded.checked_sub(refund.mark.refunded);
        let refunded_since = refunded_since.filter(|since| *since < UNIT_CHANGE);
        let (Some(older), Some(refunded_since)) = (older, refunded_since) else {
            return false;
        };
        // Time forgives the oldest debt first. What was refunded since the charge may have been older debt,
        // which time did not have to forgive before it came to this charge.
        let forgiven = elapsed.saturating_mul(self.refill);
        let older_refunded = refunded_since.saturating_mul(unit).min(older);
        let gone = forgiven.saturating_add(older_refunded);
        let still_owed = refund.mark.debt.saturating_sub(gone);
        let params = refund.units.saturating_mul(unit);
        let credit = params.min(still_owed).min(stored.owed);
        if credit == 0 {
            return false;
        }
        stored.owed -= credit;
        let refunded = (refunded + credit.div_ceil(unit)) % REFUND_COUNT_END;
        *state = self.stored_state(stored, refunded);
        true
    }

    #[inline]
    fn state_of<'a>(&self, state: &'a State) -> Option<&'a State> {
        self.owns(state).then_some(state)
    }

    fn state_of_mut<'a>(&self, state: &'a mut State) -> Option<&'a mut State> {
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
    fn stored_state(&self, debt: BucketState, refunded: u64) -> State {
        match self.algorithm {
            algorithm if refunded > 0 => State::RefundedBucket(Box::new(RefundedBucketState {
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
fn debt_of_state(state: &State) -> Option<(BucketState, u64)> {
    match state {
        State::TokenBucket(debt) | State::LeakyBucket(debt) => Some((*debt, 0)),
        State::RefundedBucket(refunded) => Some((refunded.debt, refunded.refunded)),
        _ => None,
    }
}
