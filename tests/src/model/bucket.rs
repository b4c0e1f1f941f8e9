//! The token bucket, and the leaky bucket, which counts alike and shapes.

use super::{
    settle::Refund,
    state::{Standing, State},
    tick::{Effective, LimitClock},
};

/// A change of the unit adds this to the tokens refunded: more than are refunded while a receipt is kept.
const UNIT_CHANGE: u128 = 1 << 32;
/// The tokens refunded are counted up to here, and from zero again.
const REFUND_COUNT_END: u128 = 1 << 52;

/// What is stored: a debt, and how much of it one token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketState {
    debt: u128,
    unit: u128,
    at: u128,
    grain: u128,
    /// In tokens, since the value was made.
    refunded: u128,
}

/// A bucket at a moment.
#[derive(Debug)]
pub(super) struct Bucket {
    clock: LimitClock,
    time: Effective,
    capacity: u128,
    refill: u128,
    debt: u128,
    refunded: u128,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Token,
    LeakyShape,
    LeakyPolice,
}

impl Bucket {
    pub(super) fn read(
        clock: LimitClock,
        capacity: u128,
        refill: u64,
        stored: Option<&BucketState>,
    ) -> Self {
        let refill = u128::from(refill);
        let (time, stored_debt) = match stored {
            None => (clock.fresh(), 0),
            Some(state) => (
                clock.effective(clock.convert(state.at, state.grain)),
                state.convert(clock.period, capacity),
            ),
        };
        let forgiven = (time.t - time.at) * refill;
        let debt = stored_debt.saturating_sub(forgiven);
        let refunded = stored.map_or(0, |state| {
            if (state.unit, state.grain) == (clock.period, clock.grain) {
                state.refunded
            } else {
                (state.refunded + UNIT_CHANGE) % REFUND_COUNT_END
            }
        });
        Self {
            clock,
            time,
            capacity,
            refill,
            debt,
            refunded,
            kind: Kind::Token,
        }
    }

    pub(super) fn token(self) -> Self {
        Self {
            kind: Kind::Token,
            ..self
        }
    }

    pub(super) fn leaky(self, police: bool) -> Self {
        let kind = if police {
            Kind::LeakyPolice
        } else {
            Kind::LeakyShape
        };
        Self { kind, ..self }
    }

    /// The state after giving back what is left of a charge, if there is any of it.
    pub(super) fn refunded(mut self, stored: &BucketState, refund: &Refund) -> Option<State> {
        let LimitClock {
            now, period, grain, ..
        } = self.clock;
        if (stored.unit, stored.grain) != (period, grain) {
            return None;
        }
        let forgiven_until = now.max(stored.at);
        let forgiven = forgiven_until.checked_sub(refund.tick)? * self.refill;
        // Refunds since the charge may have been of debt that time would have forgiven before this one's.
        let refunded_since = stored.refunded.checked_sub(refund.refunded)?;
        // A mark below the charge itself is of another unit.
        let older = refund.mark.checked_sub(refund.cost * period)?;
        if refunded_since >= UNIT_CHANGE {
            return None;
        }
        let older_refunded = older.min(refunded_since * period);
        let left = refund.mark.saturating_sub(forgiven + older_refunded);
        let credit = left.min(refund.units * period).min(stored.debt);
        self.debt = stored.debt - credit;
        self.refunded = (self.refunded + credit.div_ceil(period)) % REFUND_COUNT_END;
        self.time.t = stored.at;
        (credit > 0).then(|| self.store())
    }

    fn full(&self) -> u128 {
        self.capacity * self.clock.period
    }

    /// The time until a debt is forgiven, 0 when there is none.
    fn forgiven_after_us(&self, debt: u128) -> u128 {
        match debt {
            0 => 0,
            _ => self.clock.until(self.time.t + debt.div_ceil(self.refill)),
        }
    }
}

impl BucketState {
    /// The debt when a token costs `period`: exact, or in whole tokens where that would overflow.
    fn convert(&self, period: u128, capacity: u128) -> u128 {
        let debt = if self.unit == period {
            self.debt
        } else if self.debt * period < 1 << 53 {
            (self.debt * period).div_ceil(self.unit)
        } else {
            self.debt.div_ceil(self.unit).min(capacity) * period
        };
        debt.min(capacity * period)
    }
}

impl Standing for Bucket {
    fn repaired(&self) -> bool {
        self.time.repaired
    }

    fn is_ahead(&self) -> bool {
        self.time.is_ahead(&self.clock)
    }

    fn fits(&self, cost: u128) -> bool {
        self.debt + cost * self.clock.period <= self.full()
    }

    fn delay_us(&self) -> u128 {
        match self.kind {
            Kind::LeakyShape => self.forgiven_after_us(self.debt),
            Kind::LeakyPolice | Kind::Token => 0,
        }
    }

    fn retry_after_us(&self, cost: u128) -> u128 {
        self.forgiven_after_us(self.debt + cost * self.clock.period - self.full())
    }

    fn remaining(&self) -> u128 {
        (self.full() - self.debt) / self.clock.period
    }

    fn reset_after_us(&self) -> u128 {
        self.forgiven_after_us(self.debt)
    }

    fn need_us(&self) -> u128 {
        self.reset_after_us()
    }

    fn charge(&mut self, cost: u128) {
        self.debt += cost * self.clock.period;
    }

    fn mark(&self) -> u128 {
        self.debt
    }

    fn refunded(&self) -> u128 {
        self.refunded
    }

    fn store(&self) -> State {
        let LimitClock {
            period: unit,
            grain,
            ..
        } = self.clock;
        let state = BucketState {
            debt: self.debt,
            unit,
            at: self.time.t,
            grain,
            refunded: self.refunded,
        };
        match self.kind {
            Kind::Token => State::TokenBucket(state),
            Kind::LeakyShape | Kind::LeakyPolice => State::LeakyBucket(state),
        }
    }
}
