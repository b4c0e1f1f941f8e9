//! Fixed window: so many in each window of the clock.

use std::time::Duration;

use crate::algorithm::{
    period::{Grain, InvalidLimit, Period, catch_up},
    state::{State, own_state},
    step::{Demand, Refund, Step, WireState},
};
use crate::{decision::RefundMark, time::Timestamp};

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
pub(crate) struct WindowState {
    spent: u64,
    at: u64,
    grain: Grain,
}

/// The count of the present window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowSnapshot {
    at: u64,
    count: u64,
    repaired: bool,
}

impl Step for FixedWindow {
    type State = WindowState;
    type Snapshot = WindowSnapshot;

    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn advance(
        &self,
        stored: Option<&WindowState>,
        now: Timestamp,
        _ask: Demand,
    ) -> WindowSnapshot {
        let now = self.period.tick(now);
        let Some(&stored) = stored else {
            return WindowSnapshot {
                at: now,
                count: 0,
                repaired: false,
            };
        };
        let stored_at = self.period.convert(stored.at, stored.grain);
        let (at, repaired) = catch_up(stored_at, now, self.period.ticks);
        let same_window = stored_at / self.period.ticks == at / self.period.ticks;
        let stands = repaired || same_window;
        WindowSnapshot {
            at,
            count: if stands {
                { stored.spent }.min(self.limit)
            } else {
                0
            },
            repaired,
        }
    }

    fn decode_wire(&self, [at, count, _, _]: WireState) -> Option<WindowSnapshot> {
        let repaired = false;
        (count <= self.limit).then_some(WindowSnapshot {
            at,
            count,
            repaired,
        })
    }

    fn with_charge(&self, snapshot: WindowSnapshot, units: u64) -> WindowSnapshot {
        WindowSnapshot {
            count: snapshot.count + units,
            ..snapshot
        }
    }

    #[inline]
    fn fits(&self, snapshot: WindowSnapshot, demand: Demand) -> bool {
        snapshot.count + demand.total() <= self.limit
    }

    #[inline]
    fn retry_after(&self, snapshot: WindowSnapshot, _ask: Demand, now: Timestamp) -> Duration {
        self.window_end(snapshot.at, now)
    }

    #[inline]
    fn remaining(&self, snapshot: WindowSnapshot, charged: u64) -> u64 {
        self.limit - snapshot.count - charged
    }

    #[inline]
    fn reset_after(&self, snapshot: WindowSnapshot, charged: u64, now: Timestamp) -> Duration {
        if snapshot.count + charged == 0 {
            return Duration::ZERO;
        }
        self.window_end(snapshot.at, now)
    }

    #[inline]
    fn clock_was_repaired(snapshot: WindowSnapshot) -> bool {
        snapshot.repaired
    }

    #[inline]
    fn write(&self, slot: &mut Option<State>, snapshot: WindowSnapshot, charged: u64) {
        let count = WindowState {
            spent: snapshot.count + charged,
            at: snapshot.at,
            grain: self.period.grain,
        };
        match slot {
            Some(State::FixedWindow(own)) => *own = count,
            _ => *slot = Some(State::FixedWindow(count)),
        }
    }

    #[inline]
    fn refund_mark(&self, snapshot: WindowSnapshot, _charged: u64, now: Timestamp) -> RefundMark {
        RefundMark::new(u64::from(snapshot.at == self.period.tick(now)))
    }

    fn refund(&self, state: &mut WindowState, refund: Refund) -> bool {
        let window = |tick: u64| tick / self.period.ticks;
        let stored_at = self.period.convert(state.at, state.grain);
        let credit = refund.units.min(state.spent);
        if window(stored_at) != window(self.period.tick(refund.charged_at)) || credit == 0 {
            return false;
        }
        state.spent -= credit;
        true
    }

    own_state!(FixedWindow(WindowState));
}
