//! The fixed window.

use super::{
    moment::{Effective, Moment},
    settle::Refund,
    state::{Standing, State},
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
    moment: Moment,
    time: Effective,
    limit: u128,
    count: u128,
}

impl FixedWindow {
    pub(super) fn read(moment: Moment, limit: u128, stored: Option<&FixedWindowState>) -> Self {
        let Some(state) = stored else {
            return Self {
                moment,
                time: moment.fresh(),
                limit,
                count: 0,
            };
        };
        let time = moment.effective(moment.convert(state.at, state.grain));
        let stands = time.at / moment.period == time.t / moment.period;
        let count = if stands { state.count.min(limit) } else { 0 };
        Self {
            moment,
            time,
            limit,
            count,
        }
    }

    fn end_us(&self) -> u128 {
        self.moment.until(self.moment.window_end(self.time.t))
    }
}

impl FixedWindowState {
    /// The state after giving back a charge of the same window, if there is any of it.
    pub(super) fn refunded(&self, moment: &Moment, refund: &Refund) -> Option<Self> {
        let at = moment.convert(self.at, self.grain);
        let given_back = refund.units.min(self.count);
        let same_window = at / moment.period == refund.tick / moment.period;
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
        self.time.is_ahead(&self.moment)
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
            count,
            moment,
            time,
            ..
        } = *self;
        State::FixedWindow(FixedWindowState {
            count,
            at: time.t,
            grain: moment.grain,
        })
    }
}
