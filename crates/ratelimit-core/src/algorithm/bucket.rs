//! The arithmetic that the token bucket and the leaky bucket share: a debt that time forgives.

use std::time::Duration;

use super::{
    name::Algorithm,
    period::{Grain, InvalidLimit, Period, catch_up},
    step::{Ask, Refund, State, Step, Words, own_state},
};
use crate::time::{MAX_EXACT, Timestamp};

/// What a bucket remembers: a debt, in units of which a token costs `unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Debt {
    owed: u64,
    unit: u64,
    at: u64,
    grain: Grain,
    algorithm: Algorithm,
}

/// A bucket's debt at the present moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolled {
    at: u64,
    debt: u64,
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
    const fn full(&self) -> u64 {
        self.capacity * self.period.ticks
    }

    /// The stored debt in our unit: as many tokens as were owed, rounded up.
    fn convert(&self, stored: &Debt) -> u64 {
        let unit = self.period.ticks;
        if stored.unit == unit {
            return stored.owed;
        }
        match stored.owed.checked_mul(unit) {
            Some(exact) if exact < MAX_EXACT => exact.div_ceil(stored.unit),
            _ => stored.owed.div_ceil(stored.unit).min(self.capacity) * unit,
        }
    }

    const fn after(&self, rolled: Rolled, charged: u64) -> u64 {
        rolled.debt + charged * self.period.ticks
    }

    fn until_forgiven(&self, at: u64, debt: u64, now: Timestamp) -> Duration {
        if debt == 0 {
            return Duration::ZERO;
        }
        self.period.until(at + debt.div_ceil(self.refill), now)
    }
}

impl Step for Bucket {
    type State = Debt;
    type Rolled = Rolled;

    fn limit(&self) -> u64 {
        self.capacity
    }

    fn roll(&self, stored: Option<&Debt>, now: Timestamp, _ask: Ask) -> Rolled {
        let now = self.period.tick(now);
        let Some(stored) = stored.filter(|stored| stored.algorithm == self.algorithm) else {
            return Rolled {
                at: now,
                debt: 0,
                repaired: false,
            };
        };
        let owed = self.convert(stored).min(self.full());
        let stored_at = self.period.convert(stored.at, stored.grain);
        let (at, repaired) = catch_up(stored_at, now, self.period.ticks);
        let forgiven = at.saturating_sub(stored_at).saturating_mul(self.refill);
        Rolled {
            at,
            debt: owed.saturating_sub(forgiven),
            repaired,
        }
    }

    fn read(&self, [at, debt, _, _]: Words) -> Option<Rolled> {
        let repaired = false;
        (debt <= self.full()).then_some(Rolled { at, debt, repaired })
    }

    fn charged(&self, rolled: Rolled, units: u64) -> Rolled {
        Rolled {
            debt: self.after(rolled, units),
            ..rolled
        }
    }

    fn fits(&self, rolled: Rolled, ask: Ask) -> bool {
        self.after(rolled, ask.wanted()) <= self.full()
    }

    fn retry_after(&self, rolled: Rolled, ask: Ask, now: Timestamp) -> Duration {
        let missing = self.after(rolled, ask.wanted()) - self.full();
        self.until_forgiven(rolled.at, missing, now)
    }

    fn remaining(&self, rolled: Rolled, charged: u64) -> u64 {
        (self.full() - self.after(rolled, charged)) / self.period.ticks
    }

    fn reset_after(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Duration {
        self.until_forgiven(rolled.at, self.after(rolled, charged), now)
    }

    fn need(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Duration {
        self.reset_after(rolled, charged, now)
    }

    fn delay(&self, rolled: Rolled, now: Timestamp) -> Duration {
        if self.shapes {
            self.until_forgiven(rolled.at, rolled.debt, now)
        } else {
            Duration::ZERO
        }
    }

    fn was_repaired(rolled: Rolled) -> bool {
        rolled.repaired
    }

    fn store(&self, slot: &mut Option<Debt>, rolled: Rolled, charged: u64) {
        *slot = Some(Debt {
            owed: self.after(rolled, charged),
            unit: self.period.ticks,
            at: rolled.at,
            grain: self.period.grain,
            algorithm: self.algorithm,
        });
    }

    fn mark(&self, rolled: Rolled, charged: u64, now: Timestamp) -> u64 {
        if rolled.at == self.period.tick(now) {
            self.after(rolled, charged)
        } else {
            0
        }
    }

    fn refund(&self, state: &mut Debt, refund: Refund) -> bool {
        let same = state.algorithm == self.algorithm
            && state.unit == self.period.ticks
            && state.grain == self.period.grain;
        let charge_tick = self.period.tick(refund.charged_at);
        // A state ahead of the clock has forgiven up to its own time.
        let forgiven_until = self.period.tick(refund.now).max(state.at);
        let elapsed = forgiven_until.checked_sub(charge_tick);
        let (true, Some(elapsed)) = (same, elapsed) else {
            return false;
        };
        // Time forgives the oldest debt first, and what it forgave of this charge is not given twice.
        let forgiven = elapsed.saturating_mul(self.refill);
        let still_owed = refund.mark.saturating_sub(forgiven);
        let asked = refund.units.saturating_mul(self.period.ticks);
        let credit = asked.min(still_owed).min(state.owed);
        state.owed -= credit;
        credit > 0
    }

    fn owns(&self, state: &State) -> bool {
        Bucket::of(state).is_some_and(|debt| debt.algorithm == self.algorithm)
    }

    own_state!(Bucket(Debt));
}
