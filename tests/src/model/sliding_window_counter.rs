//! The sliding window counter.

use super::{
    settle::Refund,
    state::{Standing, State},
    tick::{Effective, LimitClock},
};

/// What is stored: the counts of two windows, and the period they were counted in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlidingWindowCounterState {
    prev: u128,
    cur: u128,
    at: u128,
    period: u128,
    grain: u128,
}

/// A counter at a moment.
#[derive(Debug)]
pub(super) struct SlidingWindowCounter {
    clock: LimitClock,
    time: Effective,
    limit: u128,
    prev: u128,
    cur: u128,
}

impl SlidingWindowCounter {
    pub(super) fn read(
        clock: LimitClock,
        limit: u128,
        stored: Option<&SlidingWindowCounterState>,
    ) -> Self {
        let Some(state) = stored else {
            return Self {
                clock,
                time: clock.fresh(),
                limit,
                prev: 0,
                cur: 0,
            };
        };
        let time = clock.effective(clock.convert(state.at, state.grain));
        if time.repaired {
            let (prev, cur) = lay_out(state.estimate().min(limit), limit, clock, time.t);
            return Self {
                clock,
                time,
                limit,
                prev,
                cur,
            };
        }
        let same_period = state.period * state.grain == clock.period * clock.grain;
        let (prev, cur) = if same_period {
            (state.prev, state.cur)
        } else {
            (0, state.estimate())
        };
        let (prev, cur) = (prev.min(limit), cur.min(limit));
        let (prev, cur) = match time.t / clock.period - time.at / clock.period {
            0 => (prev, cur),
            1 => (cur, 0),
            _ => (0, 0),
        };
        Self {
            clock,
            time,
            limit,
            prev,
            cur,
        }
    }

    fn elapsed(&self) -> u128 {
        self.time.t % self.clock.period
    }

    /// The estimate, rounded up.
    fn spent(&self) -> u128 {
        self.cur + weigh(self.prev, self.elapsed(), self.clock.period)
    }
}

impl SlidingWindowCounterState {
    /// The estimate when it was last charged, rounded up.
    fn estimate(&self) -> u128 {
        self.cur + weigh(self.prev, self.at % self.period, self.period)
    }

    /// The state after giving back a charge of either window, if there is any of it.
    pub(super) fn refunded(&self, clock: &LimitClock, refund: &Refund) -> Option<Self> {
        if self.period * self.grain != clock.period * clock.grain {
            return None;
        }
        let at = clock.convert(self.at, self.grain);
        let windows_since = (at / clock.period).checked_sub(refund.tick / clock.period)?;
        let mut state = self.clone();
        let count = match windows_since {
            0 => &mut state.cur,
            1 => &mut state.prev,
            _ => return None,
        };
        let given_back = refund.units.min(*count);
        *count -= given_back;
        (given_back > 0).then_some(state)
    }
}

/// Counts that weigh exactly `estimate` at `t`, as much of it as can in the previous window.
fn lay_out(estimate: u128, limit: u128, clock: LimitClock, t: u128) -> (u128, u128) {
    let elapsed = t % clock.period;
    let carried = estimate.min(weigh(limit, elapsed, clock.period));
    let weighs_enough = |prev: &u128| weigh(*prev, elapsed, clock.period) >= carried;
    // The least such count, found by halving.
    let (mut low, mut high) = (0, limit);
    while low < high {
        let middle = u128::midpoint(low, high);
        if weighs_enough(&middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (low, estimate - carried)
}

/// What is still in sight of the previous window, rounded up.
fn weigh(prev: u128, elapsed: u128, period: u128) -> u128 {
    (prev * (period - elapsed)).div_ceil(period)
}

impl Standing for SlidingWindowCounter {
    fn repaired(&self) -> bool {
        self.time.repaired
    }

    fn is_ahead(&self) -> bool {
        self.time.is_ahead(&self.clock)
    }

    fn fits(&self, cost: u128) -> bool {
        let LimitClock { period, .. } = self.clock;
        self.prev * (period - self.elapsed()) + (self.cur + cost) * period <= self.limit * period
    }

    fn retry_after_us(&self, cost: u128) -> u128 {
        let LimitClock { period, .. } = self.clock;
        let window = self.time.t - self.elapsed();
        let passes = match self.limit.checked_sub(self.cur + cost) {
            Some(room) => window + period - room * period / self.prev,
            None => window + 2 * period - (self.limit - cost) * period / self.cur,
        };
        self.clock.until(passes)
    }

    fn remaining(&self) -> u128 {
        // A lowered limit and a repair both leave estimates above the limit.
        self.limit.saturating_sub(self.spent())
    }

    fn reset_after_us(&self) -> u128 {
        if self.spent() == 0 {
            0
        } else {
            self.clock.until(self.clock.window_end(self.time.t))
        }
    }

    fn need_us(&self) -> u128 {
        let end = self.clock.window_end(self.time.t);
        match (self.prev, self.cur) {
            (0, 0) => 0,
            (_, 0) => self.clock.until(end),
            _ => self.clock.until(end + self.clock.period),
        }
    }

    fn charge(&mut self, cost: u128) {
        self.cur += cost;
    }

    fn store(&self) -> State {
        let Self {
            prev,
            cur,
            clock: LimitClock { period, grain, .. },
            time,
            ..
        } = *self;
        State::SlidingWindowCounter(SlidingWindowCounterState {
            prev,
            cur,
            at: time.t,
            period,
            grain,
        })
    }
}
