//! Sliding window counter: an estimate over a sliding window, from the counts of two windows of the
//! clock.

use std::time::Duration;

use crate::algorithm::{
    State,
    period::{InvalidLimit, Period, catch_up},
    step::{Demand, Refund, Step, WireState},
};
use crate::{decision::RefundMark, time::Timestamp};

/// An estimate over a sliding window: the present window's count, plus the previous one weighted by
/// overlap.
///
/// - The previous window counts for the part of it that a window of one period up to now still
///   covers.
/// - The estimate takes its hits as evenly spread. If they all came at its end, up to `2 x limit -
///   1` pass in a span of one period; if hits come evenly, the limit.
/// - The state is two counts, whatever the limit. A [`SlidingWindowLog`](crate::SlidingWindowLog)
///   is exact, up to 10,000 units.
///
/// With `e` ticks of the present window elapsed, `P` the period in ticks and `room = limit - cur -
/// cost`:
///
/// ```text
/// passes when   prev x (P - e) <= room x P
/// remaining   = limit - cur - ceil(prev x (P - e) / P)
/// retry_after = P - floor(room x P / prev) - e               if room >= 0
///               2 P - floor((limit - cost) x P / cur) - e    else, in the next window
/// ```
///
/// ```
/// use ratelimit_core::{Clock, Key, Limiter, MemoryStore, Policy, SlidingWindowCounter, Timestamp};
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let clock = Clock::manual(Timestamp::from_secs(30));
/// let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
/// let limit = SlidingWindowCounter::new(100, Duration::from_secs(60))?;
/// let (api, alice) = (Policy::new("api", limit)?, Key::new("alice")?);
/// assert!(limiter.check_cost(&api, &alice, 80).await.is_allowed());
///
/// // 15 s into the next minute, 45 s of the last one still count: 80 x 45 / 60 = 60.
/// clock.set(Timestamp::from_secs(75));
/// let decision = limiter.check_cost(&api, &alice, 20).await;
/// assert_eq!(decision.decision().unwrap().remaining, 20);
/// # Ok(())
/// # }
/// ```
///
/// The page is `docs/algorithms/sliding_window_counter.md`, the Lua twin
/// `lua/sliding_window_counter.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindowCounter {
    limit: u64,
    /// The length of a window, in ticks.
    pub(crate) period: Period,
}

impl SlidingWindowCounter {
    /// Allows about `limit` units in any span of `period`.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit::Zero`] when `limit` is 0
    /// - [`InvalidLimit::Period`] when `period` lies outside 1 ms to 366 days
    /// - [`InvalidLimit::TooLarge`] or [`InvalidLimit::Uneven`] when `limit` x `period` cannot be
    ///   counted exactly
    pub const fn new(limit: u64, period: Duration) -> Result<SlidingWindowCounter, InvalidLimit> {
        match Period::fitting(limit, period) {
            Ok(period) => Ok(SlidingWindowCounter { limit, period }),
            Err(invalid) => Err(invalid),
        }
    }

    /// The units that pass in a window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of a window.
    pub const fn period(&self) -> Duration {
        self.period.duration()
    }

    /// The weight of the previous window in units, rounded up. The product is below 2^53: `prev` is
    /// at most the limit.
    #[inline]
    fn carried(&self, snapshot: CounterSnapshot) -> u64 {
        (snapshot.prev * (self.period.ticks - self.elapsed(snapshot))).div_ceil(self.period.ticks)
    }

    /// Two counts whose estimate at the tick `at` is `estimate`, with as much as possible in the
    /// previous window.
    ///
    /// It repairs a state that lay too far ahead (law 8). More in the present window would make a
    /// hit wait longer than one period; a smaller total would refill.
    /// `docs/decisions/0003-changed-limits.md` derives it, and `sliding_window_counter_laid_out` is
    /// its twin.
    fn laid_out(&self, estimate: u64, at: u64) -> CounterSnapshot {
        let period = self.period.ticks;
        let left = period - at % period;
        let estimate = estimate.min(self.limit);
        let carried = estimate.min((self.limit * left).div_ceil(period));
        // The least count whose weight, rounded up, is `carried`.
        let prev = match carried {
            0 => 0,
            _ => (carried - 1) * period / left + 1,
        };
        CounterSnapshot {
            at,
            prev,
            cur: estimate - carried,
            repaired: true,
        }
    }

    /// The ticks of the present window that have passed.
    #[inline]
    const fn elapsed(&self, snapshot: CounterSnapshot) -> u64 {
        snapshot.at % self.period.ticks
    }

    /// The time until `windows` windows have ended: 1 is the present one, 2 the next.
    #[inline]
    fn window_end(&self, snapshot: CounterSnapshot, windows: u64, now: Timestamp) -> Duration {
        let start = snapshot.at - self.elapsed(snapshot);
        self.period.until(start + windows * self.period.ticks, now)
    }
}

/// The stored counts of two windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterState {
    /// The units spent in the window before that of `at`.
    prev: u64,
    /// The units spent in the window of `at`.
    cur: u64,
    /// The tick of the last charge.
    at: u64,
    /// The period that wrote the state. Counts of another period cannot be split into windows
    /// again.
    period: Period,
}

impl CounterState {
    /// The estimate at the last charge, rounded up.
    ///
    /// A changed period turns it into the count of one window. It is taken at the last charge and
    /// not at the moment of reading: a denied hit writes nothing, so a later reading would give
    /// another estimate and `retry_after` would not be exact.
    const fn estimate(&self) -> u64 {
        let left = self.period.ticks - self.at % self.period.ticks;
        self.cur + (self.prev * left).div_ceil(self.period.ticks)
    }
}

/// The counts of the present window and the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterSnapshot {
    /// The present tick, or the later stored one while the clock is behind.
    at: u64,
    /// The units of the previous window, at most the limit.
    prev: u64,
    /// The units of the present window, at most the limit.
    cur: u64,
    /// Whether the stored tick lay more than one period ahead.
    repaired: bool,
}

impl Step for SlidingWindowCounter {
    type Snapshot = CounterSnapshot;

    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    /// Moves the counts by the number of windows that have begun since the last charge.
    ///
    /// The conversion comes first: with a changed period the estimate becomes the count of the
    /// window of the last charge, and then moves like any other count.
    #[inline]
    fn advance(&self, stored: Option<&State>, now: Timestamp, _demand: Demand) -> CounterSnapshot {
        let period = self.period.ticks;
        let now = self.period.tick(now);
        let Some(State::SlidingWindowCounter(stored)) = stored else {
            return CounterSnapshot {
                at: now,
                prev: 0,
                cur: 0,
                repaired: false,
            };
        };
        let stored_at = self.period.convert(stored.at, stored.period.grain);
        let (at, repaired) = catch_up(stored_at, now, period);
        if repaired {
            return self.laid_out(stored.estimate(), at);
        }
        let (prev, cur) = if stored.period.micros() == self.period.micros() {
            (stored.prev.min(self.limit), stored.cur.min(self.limit))
        } else {
            (0, stored.estimate().min(self.limit))
        };
        let (prev, cur) = match at / period - stored_at / period {
            0 => (prev, cur),
            1 => (cur, 0),
            _ => (0, 0),
        };
        CounterSnapshot {
            at,
            prev,
            cur,
            repaired: false,
        }
    }

    #[inline]
    fn is_repaired(snapshot: CounterSnapshot) -> bool {
        snapshot.repaired
    }

    /// Compares the weight of the previous window with the room that the present one leaves.
    #[inline]
    fn fits(&self, snapshot: CounterSnapshot, demand: Demand) -> bool {
        let taken = snapshot.cur + demand.total();
        // The first comparison keeps the subtraction in the second from underflow.
        taken <= self.limit && self.carried(snapshot) <= self.limit - taken
    }

    /// Solves the pass condition for the moment: in the present window as `prev` fades, or in the
    /// next one as `cur` fades.
    ///
    /// `prev` is above 0 in the first case and `cur` in the second, because otherwise the hit would
    /// fit.
    #[inline]
    fn retry_after(&self, snapshot: CounterSnapshot, demand: Demand, now: Timestamp) -> Duration {
        let period = self.period.ticks;
        let wanted = demand.total();
        let start = snapshot.at - self.elapsed(snapshot);
        // The divisions round down, so the result is the first tick at which the hit passes.
        let tick = if snapshot.cur + wanted <= self.limit {
            let room = self.limit - snapshot.cur - wanted;
            start + period - room * period / snapshot.prev
        } else {
            start + 2 * period - (self.limit - wanted) * period / snapshot.cur
        };
        self.period.until(tick, now)
    }

    #[inline]
    fn charge(&self, snapshot: CounterSnapshot, units: u64) -> CounterSnapshot {
        CounterSnapshot {
            cur: snapshot.cur + units,
            ..snapshot
        }
    }

    /// The present window gives first, then the previous one.
    fn credit(&self, snapshot: CounterSnapshot, units: u64) -> Option<CounterSnapshot> {
        let from_cur = units.min(snapshot.cur);
        let from_prev = (units - from_cur).min(snapshot.prev);
        (from_cur + from_prev > 0).then(|| CounterSnapshot {
            cur: snapshot.cur - from_cur,
            prev: snapshot.prev - from_prev,
            ..snapshot
        })
    }

    /// Zero, not negative, while a lowered limit leaves more weight than it admits.
    #[inline]
    fn remaining(&self, snapshot: CounterSnapshot) -> u64 {
        self.limit
            .saturating_sub(snapshot.cur + self.carried(snapshot))
    }

    /// The end of the present window: the previous count has no weight from then on.
    #[inline]
    fn reset_after(&self, snapshot: CounterSnapshot, now: Timestamp) -> Duration {
        if snapshot.prev + snapshot.cur == 0 {
            return Duration::ZERO;
        }
        self.window_end(snapshot, 1, now)
    }

    /// A count of the present window has a weight until the end of the next one.
    #[inline]
    fn ttl(&self, snapshot: CounterSnapshot, now: Timestamp) -> Duration {
        if snapshot.cur == 0 {
            return self.reset_after(snapshot, now);
        }
        self.window_end(snapshot, 2, now)
    }

    #[inline]
    fn write(&self, slot: &mut Option<State>, snapshot: CounterSnapshot) {
        let counts = CounterState {
            prev: snapshot.prev,
            cur: snapshot.cur,
            at: snapshot.at,
            period: self.period,
        };
        // The box of an existing state is reused, so a charge of a known key does not allocate.
        match slot {
            Some(State::SlidingWindowCounter(own)) => **own = counts,
            _ => *slot = Some(State::SlidingWindowCounter(Box::new(counts))),
        }
    }

    /// The window of the charge is known by its time, unless the clock is behind the state.
    #[inline]
    fn mark(&self, snapshot: CounterSnapshot, now: Timestamp) -> RefundMark {
        let is_now = snapshot.at == self.period.tick(now);
        RefundMark::new(if is_now { snapshot.cur } else { 0 })
    }

    /// Gives units back to the count of the window that was charged, the present or the previous
    /// one.
    fn refund(&self, state: &mut State, refund: Refund) -> bool {
        let State::SlidingWindowCounter(counts) = state else {
            return false;
        };
        if counts.period.micros() != self.period.micros() {
            return false;
        }
        let window = |tick: u64| tick / self.period.ticks;
        let stored_in = window(self.period.convert(counts.at, counts.period.grain));
        let charged_in = window(self.period.tick(refund.charged_at));
        // A charge from an earlier window has no weight any more.
        let count = match stored_in.checked_sub(charged_in) {
            Some(0) => &mut counts.cur,
            Some(1) => &mut counts.prev,
            _ => return false,
        };
        let credit = refund.units.min(*count);
        *count -= credit;
        credit > 0
    }

    /// Reads `at`, `prev` and `cur`; a count above the limit is not a state of this limit.
    fn decode(&self, [at, prev, cur, _]: WireState) -> Option<CounterSnapshot> {
        let possible = prev <= self.limit && cur <= self.limit;
        possible.then_some(CounterSnapshot {
            at,
            prev,
            cur,
            repaired: false,
        })
    }
}
