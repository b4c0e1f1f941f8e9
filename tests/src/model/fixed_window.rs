//! The fixed window.

use super::{
    settle::Refund,
    state::{Standing, State},
    tick::{Effective, LimitClock},
};

/// What is stored: a count, and when it was last charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FixedWindowState {
    count: u128,
    at: u128,
    grain: u128,
}

/// A fixed window at a moment.
#[derive(Debug)]
pub(super) struct FixedWindow {
    clock: LimitClock,
    time: Effective,
    limit: u128,
    count: u128,
}

impl FixedWindow {
    pub(super) fn read(clock: LimitClock, limit: u128, stored: Option<&FixedWindowState>) -> Self {
        let Some(state) = stored else {
            return Self {
                clock,
                time: clock.fresh(),
                limit,
                count: 0,
            };
        };
        let time = clock.effective(clock.convert(state.at, state.grain));
        let stands = time.at / clock.period == time.t / clock.period;
        let count = if stands { state.count.min(limit) } else { 0 };
        Self {
            clock,
            time,
            limit,
            count,
        }
    }

    fn end_us(&self) -> u128 {
        self.clock.until(self.clock.window_end(self.time.t))
    }
}

impl FixedWindowState {
    /// The state after giving back a charge of the same window, if there is any of it.
    pub(super) fn refunded(&self, clock: &LimitClock, refund: &Refund) -> Option<Self> {
        let at = clock.convert(self.at, self.grain);
        let given_back = refund.units.min(self.count);
        let same_window = at / clock.period == refund.tick / clock.period;
        (same_window && given_back > 0).then(|| Self {
            count: self.count - given_back,
            ..self.clone()
        })
    }
}

impl Standing for FixedWindow {
    fn repaired(&self) -> bool {
        self.time.repaired
    }

    fn is_ahead(&self) -> bool {
        self.time.is_ahead(&self.clock)
    }

    fn fits(&self, cost: u128) -> bool {
        self.count + cost <= self.limit
    }

    fn retry_after_us(&self, _cost: u128) -> u128 {
        self.end_us()
    }

    fn remaining(&self) -> u128 {
        self.limit - self.count
    }

    fn reset_after_us(&self) -> u128 {
        if self.count > 0 { self.end_us() } else { 0 }
    }

    fn need_us(&self) -> u128 {
        self.reset_after_us()
    }

    fn charge(&mut self, cost: u128) {
        self.count += cost;
    }

    fn store(&self) -> State {
        let Self {
            count, clock, time, ..
        } = *self;
        State::FixedWindow(FixedWindowState {
            count,
            at: time.t,
            grain: clock.grain,
        })
    }
}
