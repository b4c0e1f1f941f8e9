//! Sliding window counter: so many in any window, estimated from two counts.

use std::time::Duration;

use crate::algorithm::{
    period::{InvalidLimit, Period, catch_up},
    state::{State, own_state},
    step::{Demand, Refund, Step, WireState},
};
use crate::{decision::RefundMark, time::Timestamp};

/// So many in any window, estimated from the counts of this window and the one before.
///
/// The last window counts for the part of it that the sliding window still covers.
///
/// ```
/// use ratelimit_core::SlidingWindowCounter;
/// use std::time::Duration;
///
/// let hourly = SlidingWindowCounter::new(1_000, Duration::from_secs(3_600))?;
/// assert_eq!(hourly.limit(), 1_000);
/// # Ok::<(), ratelimit_core::InvalidLimit>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindowCounter {
    limit: u64,
    pub(crate) period: Period,
}

impl SlidingWindowCounter {
    /// `limit` in any `period`.
    ///
    /// # Errors
    ///
    /// When a number is zero, or too large to be counted exactly.
    pub const fn new(limit: u64, period: Duration) -> Result<SlidingWindowCounter, InvalidLimit> {
        match Period::fitting(limit, period) {
            Ok(period) => Ok(SlidingWindowCounter { limit, period }),
            Err(invalid) => Err(invalid),
        }
    }

    /// What passes in a window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of a window.
    pub const fn period(&self) -> Duration {
        self.period.duration()
    }

    /// What the last window still counts for, rounded up.
    #[inline]
    fn carried(&self, snapshot: CounterSnapshot) -> u64 {
        (snapshot.prev * (self.period.ticks - self.elapsed(snapshot))).div_ceil(self.period.ticks)
    }

    /// Counts that come to `estimate` at `at`, as much of it as possible in the last window.
    ///
    /// Less in the last window would make a hit wait longer than a period; more would refill.
    fn laid_out(&self, estimate: u64, at: u64) -> CounterSnapshot {
        let period = self.period.ticks;
        let left = period - at % period;
        let estimate = estimate.min(self.limit);
        let carried = estimate.min((self.limit * left).div_ceil(period));
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

    #[inline]
    const fn elapsed(&self, snapshot: CounterSnapshot) -> u64 {
        snapshot.at % self.period.ticks
    }

    #[inline]
    fn window_end(&self, snapshot: CounterSnapshot, windows: u64, now: Timestamp) -> Duration {
        let start = snapshot.at - self.elapsed(snapshot);
        self.period.until(start + windows * self.period.ticks, now)
    }
}

/// What a sliding window counter remembers: two counts, and when they were last charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterState {
    prev: u64,
    cur: u64,
    at: u64,
    period: Period,
}

impl CounterState {
    /// All that counted at the last charge, rounded up.
    const fn estimate(&self) -> u64 {
        let left = self.period.ticks - self.at % self.period.ticks;
        self.cur + (self.prev * left).div_ceil(self.period.ticks)
    }
}

/// The counts of the present window and the one before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterSnapshot {
    at: u64,
    prev: u64,
    cur: u64,
    repaired: bool,
}

impl Step for SlidingWindowCounter {
    type State = CounterState;
    type Snapshot = CounterSnapshot;

    #[inline]
    fn limit(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn advance(
        &self,
        stored: Option<&CounterState>,
        now: Timestamp,
        _ask: Demand,
    ) -> CounterSnapshot {
        let period = self.period.ticks;
        let now = self.period.tick(now);
        let Some(stored) = stored else {
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

    fn decode_wire(&self, [at, prev, cur, _]: WireState) -> Option<CounterSnapshot> {
        let possible = prev <= self.limit && cur <= self.limit;
        possible.then_some(CounterSnapshot {
            at,
            prev,
            cur,
            repaired: false,
        })
    }

    fn with_charge(&self, snapshot: CounterSnapshot, units: u64) -> CounterSnapshot {
        CounterSnapshot {
            cur: snapshot.cur + units,
            ..snapshot
        }
    }

    #[inline]
    fn fits(&self, snapshot: CounterSnapshot, demand: Demand) -> bool {
        let taken = snapshot.cur + demand.total();
        taken <= self.limit && self.carried(snapshot) <= self.limit - taken
    }

    #[inline]
    fn retry_after(&self, snapshot: CounterSnapshot, demand: Demand, now: Timestamp) -> Duration {
        let period = self.period.ticks;
        let wanted = demand.total();
        let start = snapshot.at - self.elapsed(snapshot);
        let tick = if snapshot.cur + wanted <= self.limit {
            let room = self.limit - snapshot.cur - wanted;
            start + period - room * period / snapshot.prev
        } else {
            start + 2 * period - (self.limit - wanted) * period / snapshot.cur
        };
        self.period.until(tick, now)
    }

    #[inline]
    fn remaining(&self, snapshot: CounterSnapshot, charged: u64) -> u64 {
        self.limit
            .saturating_sub(snapshot.cur + charged + self.carried(snapshot))
    }

    #[inline]
    fn reset_after(&self, snapshot: CounterSnapshot, charged: u64, now: Timestamp) -> Duration {
        if snapshot.prev + snapshot.cur + charged == 0 {
            return Duration::ZERO;
        }
        self.window_end(snapshot, 1, now)
    }

    #[inline]
    fn ttl(&self, snapshot: CounterSnapshot, charged: u64, now: Timestamp) -> Option<Duration> {
        let counts_in_the_next = snapshot.cur + charged > 0;
        counts_in_the_next.then(|| self.window_end(snapshot, 2, now))
    }

    #[inline]
    fn clock_was_repaired(snapshot: CounterSnapshot) -> bool {
        snapshot.repaired
    }

    #[inline]
    fn write(&self, slot: &mut Option<State>, snapshot: CounterSnapshot, charged: u64) {
        let counts = CounterState {
            prev: snapshot.prev,
            cur: snapshot.cur + charged,
            at: snapshot.at,
            period: self.period,
        };
        match slot {
            Some(State::SlidingWindowCounter(own)) => **own = counts,
            _ => *slot = Some(State::SlidingWindowCounter(Box::new(counts))),
        }
    }

    #[inline]
    fn refund_mark(&self, snapshot: CounterSnapshot, _charged: u64, now: Timestamp) -> RefundMark {
        RefundMark::new(u64::from(snapshot.at == self.period.tick(now)))
    }

    fn refund(&self, counts: &mut CounterState, refund: Refund) -> bool {
        if counts.period.micros() != self.period.micros() {
            return false;
        }
        let window = |tick: u64| tick / self.period.ticks;
        let stored_in = window(self.period.convert(counts.at, counts.period.grain));
        let charged_in = window(self.period.tick(refund.charged_at));
        let count = match stored_in.checked_sub(charged_in) {
            Some(0) => &mut counts.cur,
            Some(1) => &mut counts.prev,
            _ => return false,
        };
        let credit = refund.units.min(*count);
        *count -= credit;
        credit > 0
    }

    own_state!(SlidingWindowCounter(CounterState));
}
