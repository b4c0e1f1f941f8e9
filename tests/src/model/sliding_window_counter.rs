//! The sliding window counter.

use super::{
    moment::{Effective, Moment},
    settle::Refund,
    state::{Standing, State},
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
    moment: Moment,
    time: Effective,
    limit: u128,
    prev: u128,
    cur: u128,
}

impl SlidingWindowCounter {
    pub(super) fn read(
        moment: Moment,
        limit: u128,
        stored: Option<&SlidingWindowCounterState>,
    ) -> Self {
        let Some(state) = stored else {
            return Self {
                moment,
                time: moment.fresh(),
                limit,
                prev: 0,
                cur: 0,
            };
        };
        let time = moment.effective(moment.convert(state.at, state.grain));
        if time.repaired {
            let (prev, cur) = lay_out(state.estimate().min(limit), limit, moment, time.t);
            return Self {
                moment,
                time,
                limit,
                prev,
                cur,
            };
        }
        let same_period = state.period * state.grain == moment.period * moment.grain;
        let (prev, cur) = if same_period {
            (state.prev, state.cur)
        } else {
            (0, state.estimate())
        };
        let (prev, cur) = (prev.min(limit), cur.min(limit));
        let (prev, cur) = match time.t / moment.period - time.at / moment.period {
            0 => (prev, cur),
            1 => (cur, 0),
            _ => (0, 0),
        };
        Self {
            moment,
            time,
            limit,
            prev,
            cur,
        }
    }

    fn elapsed(&self) -> u128 {
        self.time.t % self.moment.period
    }

    /// The estimate, rounded up.
    fn spent(&self) -> u128 {
        self.cur + weigh(self.prev, self.elapsed(), self.moment.period)
    }
}

impl SlidingWindowCounterState {
    /// The estimate when it was last charged, rounded up.
    fn estimate(&self) -> u128 {
        self.cur + weigh(self.prev, self.at % self.period, self.period)
    }

    /// The state after giving back a charge of either window, if there is any of it.
    pub(super) fn refunded(&self, moment: &Moment, refund: &Refund) -> Option<Self> {
        if self.period * self.grain != moment.period * moment.grain {
            return None;
        }
        let at = moment.convert(self.at, self.grain);
        let windows_since = (at / moment.period).checked_sub(refund.tick / moment.period)?;
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
fn lay_out(estimate: u128, limit: u128, moment: Moment, t: u128) -> (u128, u128) {
    let elapsed = t % moment.period;
    let carried = estimate.min(weigh(limit, elapsed, moment.period));
    let weighs_enough = |prev: &u128| weigh(*prev, elapsed, moment.period) >= carried;
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
        self.time.is_ahead(&self.moment)
    }

    fn fits(&self, cost: u128) -> bool {
        let Moment { period, .. } = self.moment;
        self.prev * (period - self.elapsed()) + (self.cur + cost) * period <= self.limit * period
    }

    fn retry_after_us(&self, cost: u128) -> u128 {
        let Moment { period, .. } = self.moment;
        let window = self.time.t - self.elapsed();
        let passes = match self.limit.checked_sub(self.cur + cost) {
            Some(room) => window + period - room * period / self.prev,
            None => window + 2 * period - (self.limit - cost) * period / self.cur,
        };
        self.moment.until(passes)
    }

    fn remaining(&self) -> u128 {
        // A lowered limit and a repair both leave estimates above the limit.
        self.limit.saturating_sub(self.spent())
    }

    fn reset_after_us(&self) -> u128 {
        if self.spent() == 0 {
            0
        } else {
            self.moment.until(self.moment.window_end(self.time.t))
        }
    }

    fn need_us(&self) -> u128 {
        let end = self.moment.window_end(self.time.t);
        match (self.prev, self.cur) {
            (0, 0) => 0,
            (_, 0) => self.moment.until(end),
            _ => self.moment.until(end + self.moment.period),
        }
    }

    fn charge(&mut self, cost: u128) {
        self.cur += cost;
    }

    fn store(&self) -> State {
        let Self {
            prev,
            cur,
            moment: Moment { period, grain, .. },
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
