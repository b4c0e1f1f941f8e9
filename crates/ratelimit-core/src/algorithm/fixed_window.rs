//! Fixed window: so many in each window of the clock.

use std::time::Duration;

use super::{
    period::{Grain, InvalidLimit, Period, catch_up},
    state::{State, own_state},
    step::{Ask, Refund, Step, Words},
};
use crate::{decision::Mark, time::Timestamp};

/// So many in each window, the windows aligned to the Unix epoch.
///
/// The cheapest and the plainest: twice the limit can pass around the edge of two windows.
///
/// ```
/// use ratelimit_core::FixedWindow;
///
/// const LOGIN: FixedWindow = FixedWindow::per_minute(5);
/// assert_eq!(LOGIN.limit(), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    pub(crate) period: Period,
}

impl FixedWindow {
    /// `limit` in each window of `period`.
    ///
    /// # Errors
    ///
    /// When a number is zero, or too large to be counted exactly.
    pub const fn new(limit: u64, period: Duration) -> Result<FixedWindow, InvalidLimit> {
        match Period::fitting(limit, period) {
            Ok(period) => Ok(FixedWindow { limit, period }),
            Err(invalid) => Err(invalid),
        }
    }

    /// `limit` in each minute.
    ///
    /// # Panics
    ///
    /// When `limit` is zero or too large. In a `const` this is a compile error.
    pub const fn per_minute(limit: u64) -> FixedWindow {
        match FixedWindow::new(limit, Duration::from_secs(60)) {
            Ok(window) => window,
            Err(_) => panic!("the limit must be at least 1 and countable exactly"),
        }
    }

    /// What passes in one window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of a window.
    pub const fn period(&self) -> Duration {
        self.period.duration()
    }

    #[inline]
    fn window_end(&self, at: u64, now: Timestamp) -> Duration {
        let start = at - at % self.period.ticks;
        self.period.until(start + self.period.ticks, now)
    }
}

/// What a fixed window remembers: the count, and when it was last charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct Count {
    spent: u64,
    at: u64,
    grain: Grain,
}

/// The count of the present window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolled {
    at: u64,
    count: u64,
    repaired: bool,
}

impl Step for FixedWindow {
    type State = Count;
    type Rolled = Rolled;

    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn roll(&self, stored: Option<&Count>, now: Timestamp, _ask: Ask) -> Rolled {
        let now = self.period.tick(now);
        let Some(&stored) = stored else {
            return Rolled {
                at: now,
                count: 0,
                repaired: false,
            };
        };
        let stored_at = self.period.convert(stored.at, stored.grain);
        let (at, repaired) = catch_up(stored_at, now, self.period.ticks);
        let same_window = stored_at / self.period.ticks == at / self.period.ticks;
        let stands = repaired || same_window;
        Rolled {
            at,
            count: if stands {
                { stored.spent }.min(self.limit)
            } else {
                0
            },
            repaired,
        }
    }

    fn read(&self, [at, count, _, _]: Words) -> Option<Rolled> {
        let repaired = false;
        (count <= self.limit).then_some(Rolled {
            at,
            count,
            repaired,
        })
    }

    fn charged(&self, rolled: Rolled, units: u64) -> Rolled {
        Rolled {
            count: rolled.count + units,
            ..rolled
        }
    }

    #[inline]
    fn fits(&self, rolled: Rolled, ask: Ask) -> bool {
        rolled.count + ask.wanted() <= self.limit
    }

    #[inline]
    fn retry_after(&self, rolled: Rolled, _ask: Ask, now: Timestamp) -> Duration {
        self.window_end(rolled.at, now)
    }

    #[inline]
    fn remaining(&self, rolled: Rolled, charged: u64) -> u64 {
        self.limit - rolled.count - charged
    }

    #[inline]
    fn reset_after(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Duration {
        if rolled.count + charged == 0 {
            return Duration::ZERO;
        }
        self.window_end(rolled.at, now)
    }

    #[inline]
    fn was_repaired(rolled: Rolled) -> bool {
        rolled.repaired
    }

    #[inline]
    fn store(&self, slot: &mut Option<State>, rolled: Rolled, charged: u64) {
        let count = Count {
            spent: rolled.count + charged,
            at: rolled.at,
            grain: self.period.grain,
        };
        match slot {
            Some(State::FixedWindow(own)) => *own = count,
            _ => *slot = Some(State::FixedWindow(count)),
        }
    }

    #[inline]
    fn mark(&self, rolled: Rolled, _charged: u64, now: Timestamp) -> Mark {
        Mark::new(u64::from(rolled.at == self.period.tick(now)))
    }

    fn refund(&self, state: &mut Count, refund: Refund) -> bool {
        let window = |tick: u64| tick / self.period.ticks;
        let stored_at = self.period.convert(state.at, state.grain);
        let credit = refund.units.min(state.spent);
        if window(stored_at) != window(self.period.tick(refund.charged_at)) || credit == 0 {
            return false;
        }
        state.spent -= credit;
        true
    }

    own_state!(FixedWindow(Count));
}
