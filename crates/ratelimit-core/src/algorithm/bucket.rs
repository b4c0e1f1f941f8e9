//! The arithmetic that the token bucket and the leaky bucket share: a debt that time forgives. Lua twin:
//! `lua/token_bucket.lua`.

mod state;

use std::time::Duration;

use crate::algorithm::{
    State,
    kind::Algorithm,
    period::{InvalidLimit, PackedPeriod, Period, catch_up},
    step::{Demand, Refund, Step, WireState},
};
use crate::{
    decision::{LimitDecision, Outcome, RefundMark},
    time::{MAX_EXACT, Timestamp},
};

/// Added to the count of refunded tokens by each change of the unit. While a receipt is kept fewer than 2^32 tokens
/// are refunded, so a larger difference means that the unit has changed since the charge.
const UNIT_CHANGE: u64 = 1 << 32;
/// The count of refunded tokens wraps here, below 2^53.
const REFUND_COUNT_END: u64 = 1 << 52;

/// The debt of a bucket at its last charge. A token costs `period.ticks` of debt, so 0 is a full bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct BucketState {
    /// The debt at `at`. It may exceed `max_debt` of a bucket whose capacity was lowered since.
    debt: u64,
    /// The tick of the last charge, in the grain of `period`.
    at: u64,
    /// The period that wrote the state: the unit of `debt` and the grain of `at`.
    period: PackedPeriod,
}

/// A bucket state with the count that receipts need after a refund or a changed unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefundedBucketState {
    algorithm: Algorithm,
    bucket: BucketState,
    /// The tokens refunded since the budget was made, plus [`UNIT_CHANGE`] for each change of the unit. A receipt
    /// carries the count at its charge; the difference is what was refunded since.
    refunded: u64,
}

impl RefundedBucketState {
    /// The kind of bucket that wrote it.
    pub(super) const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// The debt at the tick `at`, at most `max_debt`; `at` is later than now only while the clock is behind the state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketSnapshot {
    at: u64,
    debt: u64,
    refunded: u64,
    repaired: bool,
}

/// The parameters of a bucket. A token costs `period.ticks` of debt and each tick forgives `refill` of it, so nothing
/// is divided before it is reported. GCRA's theoretical arrival time is `at + debt / refill`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(super) capacity: u64,
    pub(super) refill: u64,
    pub(crate) period: Period,
    /// The kind of bucket: a token bucket does not read the state of a leaky bucket, nor the reverse.
    pub(super) algorithm: Algorithm,
    /// Whether an admitted hit gets a delay (leaky bucket without `police`).
    pub(super) shapes: bool,
}

impl Bucket {
    /// `Zero`, `Refill`, or an error of [`Period::fitting`]. `capacity` x `period` bounds the debt below 2^53.
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

    /// The debt of an empty bucket, below 2^53.
    #[inline]
    const fn max_debt(&self) -> u64 {
        self.capacity * self.period.ticks
    }

    /// Converts a debt of another unit: the same number of tokens, rounded up, so that a change never refills.
    #[inline]
    const fn convert_debt(&self, debt: u64, stored_unit: u64) -> u64 {
        let unit = self.period.ticks;
        if stored_unit == unit {
            return debt;
        }
        match debt.checked_mul(unit) {
            // Lua computes the same product, and is exact only below 2^53. A larger debt is rounded up to whole
            // tokens first.
            Some(exact) if exact < MAX_EXACT => exact.div_ceil(stored_unit),
            _ => {
                let tokens = debt.div_ceil(stored_unit);
                if tokens < self.capacity {
                    tokens * unit
                } else {
                    self.max_debt()
                }
            }
        }
    }

    /// The debt after `charged` tokens. Demands above the capacity never come here, so the product cannot overflow.
    #[inline]
    const fn debt_after(&self, snapshot: BucketSnapshot, charged: u64) -> u64 {
        snapshot.debt + charged * self.period.ticks
    }

    /// The time until `debt` is forgiven, from `at`, where forgiving stands still while the clock is behind.
    #[inline]
    fn time_to_forgive(&self, at: u64, debt: u64, now: Timestamp) -> Duration {
        if debt == 0 {
            return Duration::ZERO;
        }
        self.period.until(at + debt.div_ceil(self.refill), now)
    }
}

impl Bucket {
    /// Fast path: charges as [`step_limit`](crate::algorithm::step_limit) does, for a token bucket of the same period, a
    /// state not ahead of the clock, and at least one token left afterwards. Returns `None` and changes nothing otherwise.
    #[inline(always)]
    pub(crate) fn try_charge_fast(
        &self,
        state: &mut State,
        now: Timestamp,
        cost: u64,
    ) -> Option<(LimitDecision, RefundMark)> {
        let (State::TokenBucket(stored), Algorithm::TokenBucket) = (state, self.algorithm) else {
            return None;
        };
        let (tick, full) = (self.period.tick(now), self.max_debt());
        let elapsed = tick.checked_sub(stored.at)?;
        // Another period needs a conversion, and a cost of the whole capacity leaves no token.
        if stored.period.period() != self.period || cost == 0 || cost >= self.capacity {
            return None;
        }
        let forgiven = elapsed.saturating_mul(self.refill);
        let debt = stored.debt.min(full).saturating_sub(forgiven) + cost * self.period.ticks;
        // An exhausted key takes the general path, which moves the entry to the exhausted part of the memory store.
        let left = full.checked_sub(debt)?;
        if left < self.period.ticks {
            return None;
        }
        (stored.debt, stored.at) = (debt, tick);
        let delay = Duration::ZERO;
        let decision = LimitDecision {
            remaining: left / self.period.ticks,
            reset_after: self.time_to_forgive(tick, debt, now),
            ..LimitDecision::new(Outcome::Allowed { delay }, self.capacity)
        };
        Some((decision, RefundMark::new(debt)))
    }
}

impl Step for Bucket {
    type Snapshot = BucketSnapshot;

    #[inline]
    fn limit(&self) -> u64 {
        self.capacity
    }

    /// Converts the stored debt into this unit, cuts it to the capacity, then forgives it at this rate from the last
    /// charge on.
    ///
    /// The order is that of `docs/decisions/0003-changed-limits.md`. A store does not know when a rate changed, so
    /// the new rate applies to the whole time since the last charge.
    #[inline]
    fn advance(&self, stored: Option<&State>, now: Timestamp, _demand: Demand) -> BucketSnapshot {
        let now = self.period.tick(now);
        let Some((stored, refunded)) = stored.and_then(|state| self.bucket_of(state)) else {
            return BucketSnapshot {
                at: now,
                debt: 0,
                refunded: 0,
                repaired: false,
            };
        };
        let written = stored.period.period();
        let stored_debt = self
            .convert_debt(stored.debt, written.ticks)
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
            debt: stored_debt.saturating_sub(forgiven),
            refunded,
            repaired,
        }
    }

    #[inline]
    fn is_repaired(snapshot: BucketSnapshot) -> bool {
        snapshot.repaired
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

    /// The delay is the time until the debt before the hit is forgiven: the queue that stands before it.
    #[inline]
    fn delay(&self, snapshot: BucketSnapshot, now: Timestamp) -> Duration {
        if self.shapes {
            self.time_to_forgive(snapshot.at, snapshot.debt, now)
        } else {
            Duration::ZERO
        }
    }

    #[inline]
    fn charge(&self, snapshot: BucketSnapshot, units: u64) -> BucketSnapshot {
        BucketSnapshot {
            debt: self.debt_after(snapshot, units),
            ..snapshot
        }
    }

    /// The credit counts as a refund: a receipt of a later charge must not give the same older debt back again.
    fn credit(&self, snapshot: BucketSnapshot, units: u64) -> Option<BucketSnapshot> {
        let unit = self.period.ticks;
        let credit = units.saturating_mul(unit).min(snapshot.debt);
        (credit > 0).then(|| BucketSnapshot {
            debt: snapshot.debt - credit,
            refunded: (snapshot.refunded + credit.div_ceil(unit)) % REFUND_COUNT_END,
            ..snapshot
        })
    }

    #[inline]
    fn remaining(&self, snapshot: BucketSnapshot) -> u64 {
        (self.max_debt() - snapshot.debt) / self.period.ticks
    }

    #[inline]
    fn reset_after(&self, snapshot: BucketSnapshot, now: Timestamp) -> Duration {
        self.time_to_forgive(snapshot.at, snapshot.debt, now)
    }

    #[inline]
    fn write(&self, slot: &mut Option<State>, snapshot: BucketSnapshot) {
        let bucket = BucketState {
            debt: snapshot.debt,
            at: snapshot.at,
            period: PackedPeriod::new(self.period),
        };
        match (self.algorithm, slot) {
            (Algorithm::TokenBucket, Some(State::TokenBucket(own)))
            | (Algorithm::LeakyBucket, Some(State::LeakyBucket(own)))
                if snapshot.refunded == 0 =>
            {
                *own = bucket;
            }
            (_, slot) => *slot = Some(self.stored_state(bucket, snapshot.refunded)),
        }
    }

    /// A state ahead of the clock gives no mark: the age of its charge would be unknown.
    #[inline]
    fn mark(&self, snapshot: BucketSnapshot, now: Timestamp) -> RefundMark {
        let is_now = snapshot.at == self.period.tick(now);
        RefundMark {
            debt: if is_now { snapshot.debt } else { 0 },
            refunded: snapshot.refunded,
        }
    }

    /// Lowers the debt by what is left of the charge, and errs towards strict (`docs/decisions/0008-settling.md`).
    fn refund(&self, state: &mut State, refund: Refund) -> bool {
        let Some((mut stored, refunded)) = self.bucket_of(state) else {
            return false;
        };
        let is_ours = stored.period.period() == self.period;
        let charge_tick = self.period.tick(refund.charged_at);
        // A state ahead of the clock has forgiven debt up to its own time.
        let forgiven_until = self.period.tick(refund.now).max(stored.at);
        let elapsed = forgiven_until.checked_sub(charge_tick);
        let (true, Some(elapsed)) = (is_ours, elapsed) else {
            return false;
        };
        let unit = self.period.ticks;
        // `older` is the debt that stood before the charge. A mark below the charge itself is of another unit.
        let charged = refund.cost.saturating_mul(unit);
        let older = refund.mark.debt.checked_sub(charged);
        // An instance of an earlier release drops the count of refunds, and a changed unit makes it jump by 2^32.
        let refunded_since = refunded.checked_sub(refund.mark.refunded);
        let refunded_since = refunded_since.filter(|since| *since < UNIT_CHANGE);
        let (Some(older), Some(refunded_since)) = (older, refunded_since) else {
            return false;
        };
        // Time forgives the oldest debt first. A refund since the charge may have removed older debt, which time then
        // did not have to forgive before it reached this charge.
        let forgiven = elapsed.saturating_mul(self.refill);
        let older_refunded = refunded_since.saturating_mul(unit).min(older);
        let gone = forgiven.saturating_add(older_refunded);
        let left_of_charge = refund.mark.debt.saturating_sub(gone);
        let requested = refund.units.saturating_mul(unit);
        let credit = requested.min(left_of_charge).min(stored.debt);
        if credit == 0 {
            return false;
        }
        stored.debt -= credit;
        let refunded = (refunded + credit.div_ceil(unit)) % REFUND_COUNT_END;
        *state = self.stored_state(stored, refunded);
        true
    }

    /// Reads `at`, the debt and the count of refunded tokens. No bucket has a debt above `max_debt`.
    fn decode(&self, [at, debt, refunded, _]: WireState) -> Option<BucketSnapshot> {
        (debt <= self.max_debt()).then_some(BucketSnapshot {
            at,
            debt,
            refunded,
            repaired: false,
        })
    }
}
