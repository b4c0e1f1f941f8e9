//! The penalty box.

use super::{
    state::{Standing, State},
    tick::LimitClock,
};

const MOST_LEVELS: u32 = 40;
const LONGEST_US: u128 = 366 * 86_400_000_000;

/// What is stored: the denials that count, and the last refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PenaltyBoxState {
    count: u128,
    first: u128,
    until: u128,
    level: u32,
}

/// A penalty box at a moment.
#[derive(Debug)]
pub(super) struct PenaltyBox {
    clock: LimitClock,
    denials: u128,
    refusal: u128,
    growing: bool,
    repaired: bool,
    state: PenaltyBoxState,
}

impl PenaltyBox {
    pub(super) fn read(
        clock: LimitClock,
        (denials, refusal_us, growing): (u64, u64, bool),
        stored: Option<&PenaltyBoxState>,
    ) -> Self {
        let mut standing = Self {
            clock,
            denials: u128::from(denials),
            refusal: u128::from(refusal_us) / clock.grain,
            growing,
            repaired: false,
            state: PenaltyBoxState::default(),
        };
        if let Some(state) = stored {
            standing.state.clone_from(state);
            standing.roll();
        }
        standing
    }

    fn roll(&mut self) {
        let LimitClock { now, period, .. } = self.clock;
        let latest_end = now + self.refused_for(self.state.level.max(1));
        if self.state.first > now + period {
            self.state.first = now;
            self.repaired = true;
        }
        if self.state.until > latest_end {
            self.state.until = latest_end;
            self.repaired = true;
        }
        if self.state.first + period <= now {
            self.state.count = 0;
        }
        if !self.is_boxed() && self.state.until + period <= now {
            self.state.level = 0;
            // Else a clock that steps back finds a refusal which no level keeps stored.
            self.state.until = 0;
        }
    }

    fn is_boxed(&self) -> bool {
        self.clock.now < self.state.until
    }

    /// How long the refusal of a level is, the first being number 1.
    fn refused_for(&self, level: u32) -> u128 {
        if self.growing {
            let longest = LONGEST_US / self.clock.grain;
            (self.refusal << (level - 1)).min(longest)
        } else {
            self.refusal
        }
    }
}

impl Standing for PenaltyBox {
    fn repaired(&self) -> bool {
        self.repaired
    }

    fn fits(&self, _needs: u128) -> bool {
        !self.is_boxed()
    }

    fn retry_after_us(&self, _needs: u128) -> u128 {
        self.clock.until(self.state.until)
    }

    fn remaining(&self) -> u128 {
        if self.is_boxed() {
            0
        } else {
            // Fewer denials may be too many now than when they were counted.
            self.denials.saturating_sub(self.state.count)
        }
    }

    fn reset_after_us(&self) -> u128 {
        if self.is_boxed() {
            self.clock.until(self.state.until)
        } else if self.state.count > 0 {
            self.clock.until(self.state.first + self.clock.period)
        } else {
            0
        }
    }

    fn need_us(&self) -> u128 {
        let after_a_period = |tick| self.clock.until(tick + self.clock.period);
        let level_need = match self.state.level {
            0 => 0,
            _ => after_a_period(self.state.until),
        };
        let count_need = match self.state.count {
            0 => 0,
            _ => after_a_period(self.state.first),
        };
        level_need.max(count_need)
    }

    fn charge(&mut self, _cost: u128) {}

    fn count_denied(&mut self, _cost: u128) -> bool {
        if self.is_boxed() {
            return false;
        }
        if self.state.count == 0 {
            self.state.first = self.clock.now;
        }
        self.state.count += 1;
        if self.state.count >= self.denials {
            self.state.level = (self.state.level + 1).min(MOST_LEVELS);
            self.state.until = self.clock.now + self.refused_for(self.state.level);
            self.state.count = 0;
        }
        true
    }

    fn store(&self) -> State {
        State::PenaltyBox(self.state.clone())
    }
}
