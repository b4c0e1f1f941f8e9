//! Fixed window: one count for each window of the clock.

use std::time::Duration;

use crate::algorithm::{
    State,
    period::{Grain, InvalidLimit, Period, catch_up},
    step::{Demand, Refund, Step, WireState},
};
use crate::{decision::RefundMark, time::Timestamp};

/// One count for each window of the clock; the count begins at zero when a window begins.
///
/// - Windows are aligned to the Unix epoch, for every key alike. A window of a day begins at 00:00
///   UTC, a window of seven days on a Thursday.
/// - Up to twice the limit passes in a span of one period: the limit on each side of an edge. Use a
///   [`SlidingWindowCounter`](crate::SlidingWindowCounter) or
///   [`SlidingWindowLog`](crate::SlidingWindowLog) where that does harm.
/// - It has the smallest state of all rates.
///
/// ```
/// use ratelimit_core::{Clock, FixedWindow, Key, Limiter, MemoryStore, Policy, Timestamp};
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let clock = Clock::manual(Timestamp::from_secs(59));
/// let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
/// let login = Policy::new("login", FixedWindow::per_minute(5))?;
/// let alice = Key::new("alice")?;
///
/// assert!(limiter.check_cost(&login, &alice, 5).await.is_allowed());
/// assert!(!limiter.check(&login, &alice).await.is_allowed());
/// clock.advance(Duration::from_secs(1));
/// assert!(limiter.check_cost(&login, &alice, 5).await.is_allowed());
/// # Ok(())
/// # }
/// ```
///
/// The page is `docs/algorithms/fixed_window.md`, the Lua twin `lua/fixed_window.lua`.
#[doc(alias = "quota")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    /// The length of a window, in ticks.
    pub(crate) period: Period,
}

impl FixedWindow {
    /// Allows `limit` units in each window of `period`.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit::Zero`] when `limit` is 0
    /// - [`InvalidLimit::Period`] when `period` lies outside 1 ms to 366 days
    /// - [`InvalidLimit::TooLarge`] or [`InvalidLimit::Uneven`] when `limit` x `period` cannot be
    ///   counted exactly
    pub const fn new(limit: u64, period: Duration) -> Result<FixedWindow, InvalidLimit> {
        match Period::fitting(limit, period) {
            Ok(period) => Ok(FixedWindow { limit, period }),
            Err(invalid) => Err(invalid),
        }
    }

    /// Allows `limit` units in each minute of the clock.
    ///
    /// # Panics
    ///
    /// When `limit` is zero or too large to be counted exactly. In a `const` this is a compile
    /// error.
    pub const fn per_minute(limit: u64) -> FixedWindow {
        match FixedWindow::new(limit, Duration::from_secs(60)) {
            Ok(window) => window,
            Err(_) => panic!("the limit must be at least 1 and countable exactly"),
        }
    }

    /// The units that pass in one window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of a window.
    pub const fn period(&self) -> Duration {
        self.period.duration()
    }

    /// The time until the window of the tick `at` ends.
    #[inline]
    fn window_end(&self, at: u64, now: Timestamp) -> Duration {
        let start = at - at % self.period.ticks;
        self.period.until(start + self.period.ticks, now)
    }
}

/// The stored count of a fixed window.
///
/// The time of the last charge is stored instead of the number of the window. A changed period then
/// needs no conversion: the count stands if that time lies in the present window of the new period
/// (law 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct WindowState {
    /// The units spent in the window of `at`.
    spent: u64,
    /// The tick of the last charge.
    at: u64,
    /// The grain of `at`.
    grain: Grain,
}

/// The count of the present window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowSnapshot {
    /// The present tick, or the later stored one while the clock is behind.
    at: u64,
    /// The units spent, at most the limit.
    count: u64,
    /// Whether the stored tick lay more than one period ahead.
    repaired: bool,
}

impl Step for FixedWindow {
    type Snapshot = WindowSnapshot;

    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    /// Keeps the count if the last charge lies in the present window, and cuts it to the present
    /// limit.
    #[inline]
    fn advance(&self, stored: Option<&State>, now: Timestamp, _demand: Demand) -> WindowSnapshot {
        let now = self.period.tick(now);
        let Some(&State::FixedWindow(stored)) = stored else {
            return WindowSnapshot {
                at: now,
                count: 0,
                repaired: false,
            };
        };
        let stored_at = self.period.convert(stored.at, stored.grain);
        let (at, repaired) = catch_up(stored_at, now, self.period.ticks);
        let same_window = stored_at / self.period.ticks == at / self.period.ticks;
        // A repaired state keeps its count: a clock that steps back must not refill the window.
        let stands = repaired || same_window;
        WindowSnapshot {
            at,
            count: if stands {
                // The braces copy the field: Rust allows no reference to a field of a packed
                // struct.
                { stored.spent }.min(self.limit)
            } else {
                0
            },
            repaired,
        }
    }

    #[inline]
    fn is_repaired(snapshot: WindowSnapshot) -> bool {
        snapshot.repaired
    }

    #[inline]
    fn fits(&self, snapshot: WindowSnapshot, demand: Demand) -> bool {
        snapshot.count + demand.total() <= self.limit
    }

    /// The whole count ends with its window, so every denied demand waits for the same moment.
    #[inline]
    fn retry_after(&self, snapshot: WindowSnapshot, _demand: Demand, now: Timestamp) -> Duration {
        self.window_end(snapshot.at, now)
    }

    #[inline]
    fn charge(&self, snapshot: WindowSnapshot, units: u64) -> WindowSnapshot {
        WindowSnapshot {
            count: snapshot.count + units,
            ..snapshot
        }
    }

    fn credit(&self, snapshot: WindowSnapshot, units: u64) -> Option<WindowSnapshot> {
        let count = snapshot.count.saturating_sub(units);
        (count < snapshot.count).then_some(WindowSnapshot { count, ..snapshot })
    }

    /// The count is at most the limit, also after the limit was lowered, so this does not
    /// underflow.
    #[inline]
    fn remaining(&self, snapshot: WindowSnapshot) -> u64 {
        self.limit - snapshot.count
    }

    /// Zero for an unused window: nothing is spent that could reset.
    #[inline]
    fn reset_after(&self, snapshot: WindowSnapshot, now: Timestamp) -> Duration {
        if snapshot.count == 0 {
            return Duration::ZERO;
        }
        self.window_end(snapshot.at, now)
    }

    #[inline]
    fn write(&self, slot: &mut Option<State>, snapshot: WindowSnapshot) {
        let count = WindowState {
            spent: snapshot.count,
            at: snapshot.at,
            grain: self.period.grain,
        };
        // A state of this algorithm is overwritten in place, which spares the drop of the old
        // variant.
        match slot {
            Some(State::FixedWindow(own)) => *own = count,
            _ => *slot = Some(State::FixedWindow(count)),
        }
    }

    /// The window of a charge is known by its time; a charge made while the
    /// clock was behind the state cannot be refunded.
    #[inline]
    fn mark(&self, snapshot: WindowSnapshot, now: Timestamp) -> RefundMark {
        let is_now = snapshot.at == self.period.tick(now);
        RefundMark::new(if is_now { snapshot.count } else { 0 })
    }

    /// Gives units back to the window that was charged, as long as no later window replaced its
    /// count.
    fn refund(&self, state: &mut State, refund: Refund) -> bool {
        let State::FixedWindow(state) = state else {
            return false;
        };
        let window = |tick: u64| tick / self.period.ticks;
        let stored_at = self.period.convert(state.at, state.grain);
        let credit = refund.units.min(state.spent);
        if window(stored_at) != window(self.period.tick(refund.charged_at)) || credit == 0 {
            return false;
        }
        state.spent -= credit;
        true
    }

    /// Reads `at` and the count; the other two numbers are 0.
    fn decode(&self, [at, count, _, _]: WireState) -> Option<WindowSnapshot> {
        let repaired = false;
        (count <= self.limit).then_some(WindowSnapshot {
            at,
            count,
            repaired,
        })
    }
}
