//! Sliding window log: a timestamp for each unit spent, exact over any span of one period.

mod state;

use std::{collections::VecDeque, time::Duration};

pub(crate) use self::state::LogState;
use crate::algorithm::{
    MAX_LOG, State,
    period::{InvalidLimit, Period, catch_up},
    step::{Demand, Refund, Step, WireState},
};
use crate::{decision::RefundMark, time::Timestamp};

/// A log of one timestamp per unit; no more than the limit passes in any span of one period.
///
/// - The window is `(now - period, now]`: a stamp leaves when it is exactly one period old.
/// - A hit of cost `n` writes `n` stamps, so the limit is at most 10,000. Larger limits use a
///   [`SlidingWindowCounter`](crate::SlidingWindowCounter).
/// - [`counting_denied`](SlidingWindowLog::counting_denied) logs denied hits as well.
///
/// ```
/// use ratelimit_core::{Clock, Key, Limiter, MemoryStore, Policy, SlidingWindowLog, Timestamp};
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let clock = Clock::manual(Timestamp::from_secs(1));
/// let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
/// let limit = SlidingWindowLog::new(1, Duration::from_secs(60))?;
/// let (send, alice) = (Policy::new("send", limit)?, Key::new("alice")?);
///
/// assert!(limiter.check(&send, &alice).await.is_allowed());
/// clock.advance(Duration::from_secs(40));
/// let denied = limiter.check(&send, &alice).await;
/// assert_eq!(denied.decision().unwrap().retry_after(), Some(Duration::from_secs(20)));
/// # Ok(())
/// # }
/// ```
///
/// The page is `docs/algorithms/sliding_window_log.md`, the Lua twin `lua/sliding_window_log.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindowLog {
    limit: u64,
    pub(crate) period: Period,
    count_denied: bool,
}

impl SlidingWindowLog {
    /// Allows `limit` units in any span of `period`.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit::Zero`] when `limit` is 0
    /// - [`InvalidLimit::LogTooLong`] when `limit` is above 10,000
    /// - [`InvalidLimit::Period`] when `period` lies outside 1 ms to 366 days
    /// - [`InvalidLimit::Uneven`] when `period` is not a whole number of microseconds, or of
    ///   milliseconds if `limit` x `period` in microseconds reaches 2^53
    pub const fn new(limit: u64, period: Duration) -> Result<SlidingWindowLog, InvalidLimit> {
        if limit > MAX_LOG {
            return Err(InvalidLimit::LogTooLong { limit });
        }
        match Period::fitting(limit, period) {
            Ok(period) => Ok(SlidingWindowLog {
                limit,
                period,
                count_denied: false,
            }),
            Err(invalid) => Err(invalid),
        }
    }

    /// Logs denied hits as well, so that a client which keeps sending stays blocked.
    ///
    /// The newest `limit` stamps are kept. `retry_after` is that of the log after the denied hit.
    #[doc(alias = "count-denied")]
    #[must_use]
    pub const fn counting_denied(self) -> SlidingWindowLog {
        SlidingWindowLog {
            count_denied: true,
            ..self
        }
    }

    /// Whether denied hits are logged.
    pub const fn counts_denied(&self) -> bool {
        self.count_denied
    }

    /// The units that pass in any span of one period.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of the window.
    pub const fn period(&self) -> Duration {
        self.period.duration()
    }

    /// The log in `slot`; an empty one replaces an absent state or one of another algorithm.
    fn log<'a>(&self, slot: &'a mut Option<State>) -> &'a mut LogState {
        if !matches!(slot, Some(State::SlidingWindowLog(_))) {
            *slot = Some(State::SlidingWindowLog(Box::new(LogState {
                stamps: VecDeque::new(),
                grain: self.period.grain,
            })));
        }
        let Some(State::SlidingWindowLog(log)) = slot else {
            unreachable!("a log was stored");
        };
        log
    }

    /// The snapshot of the live stamps, those from the index `first` on, for a demand of `wanted`
    /// units.
    ///
    /// `pivot` is the stamp whose departure makes room: with `over` units too many, the stamp
    /// number `over`.
    fn seen(&self, log: &LogState, first: usize, at: u64, wanted: u64) -> LogSnapshot {
        let live = (log.stamps.len() - first) as u64;
        let over = (live + wanted.min(self.limit)).saturating_sub(self.limit);
        // Stamps are numbered from 1, the oldest live one. An empty log has none, and `at` takes
        // its place.
        let stamp = |number: u64| {
            let index = first + usize::try_from(number - 1).unwrap_or(usize::MAX - first);
            log.stamps.get(index).copied().unwrap_or(at)
        };
        LogSnapshot {
            at,
            live,
            oldest: stamp(1),
            pivot: stamp(over.max(1)),
            newest: stamp(live.max(1)),
            added: 0,
            repaired: false,
        }
    }
}

/// The part of a log that lies in the present window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSnapshot {
    /// The present tick, or the newest stamp while the clock is behind it.
    at: u64,
    /// The number of stamps in the window. It exceeds the limit after the limit was lowered.
    live: u64,
    /// The oldest live stamp; `at` when there is none.
    oldest: u64,
    /// The stamp that must leave before the hit fits.
    pivot: u64,
    /// The newest live stamp; it bounds the life of the state.
    newest: u64,
    /// The live stamps that were charged since the log was read. Each is `at`.
    added: u64,
    /// Whether the newest stamp lay more than one period ahead.
    repaired: bool,
}

impl Step for SlidingWindowLog {
    type Snapshot = LogSnapshot;

    fn limit(&self) -> u64 {
        self.limit
    }

    /// Finds the live stamps by binary search; the newest stamp shows whether the clock stepped
    /// back.
    fn advance(&self, stored: Option<&State>, now: Timestamp, demand: Demand) -> LogSnapshot {
        let now = self.period.tick(now);
        let log = match stored {
            Some(State::SlidingWindowLog(log)) => log.stamps.back().map(|newest| (log, *newest)),
            _ => None,
        };
        let Some((log, newest)) = log else {
            return LogSnapshot {
                at: now,
                live: 0,
                oldest: now,
                pivot: now,
                newest: now,
                added: 0,
                repaired: false,
            };
        };
        let ours = |stamp: u64| self.period.convert(stamp, log.grain);
        let newest = ours(newest);
        let (at, repaired) = catch_up(newest, now, self.period.ticks);
        // A repaired log keeps the stamps that were live when the newest was written. They all
        // become `at`.
        let window_end = if repaired { newest } else { at };
        let first = log.expired(|stamp| ours(stamp) + self.period.ticks <= window_end);
        let seen = self.seen(log, first, at, demand.total());
        let present = |stamp| if repaired { at } else { ours(stamp) };
        LogSnapshot {
            oldest: present(seen.oldest),
            pivot: present(seen.pivot),
            newest: present(seen.newest),
            repaired,
            ..seen
        }
    }

    fn is_repaired(snapshot: LogSnapshot) -> bool {
        snapshot.repaired
    }

    fn fits(&self, snapshot: LogSnapshot, demand: Demand) -> bool {
        snapshot.live + demand.total() <= self.limit
    }

    /// The hit fits when the pivot is one period old.
    fn retry_after(&self, snapshot: LogSnapshot, _demand: Demand, now: Timestamp) -> Duration {
        self.period.until(snapshot.pivot + self.period.ticks, now)
    }

    /// Charged units get the stamp `at`. The first of them is the oldest if the log was empty.
    fn charge(&self, snapshot: LogSnapshot, units: u64) -> LogSnapshot {
        LogSnapshot {
            live: snapshot.live + units,
            oldest: if snapshot.live == 0 {
                snapshot.at
            } else {
                snapshot.oldest
            },
            newest: snapshot.at,
            added: snapshot.added + units,
            ..snapshot
        }
    }

    /// The oldest stamps are removed, which would leave first: no unit is free for longer than the hit that it is
    /// given back for would have taken it.
    fn credit(&self, snapshot: LogSnapshot, units: u64) -> Option<LogSnapshot> {
        let live = snapshot.live.saturating_sub(units);
        (live < snapshot.live).then_some(LogSnapshot { live, ..snapshot })
    }

    /// Zero while a lowered limit has more stamps than it admits.
    fn remaining(&self, snapshot: LogSnapshot) -> u64 {
        self.limit.saturating_sub(snapshot.live)
    }

    fn reset_after(&self, snapshot: LogSnapshot, now: Timestamp) -> Duration {
        if snapshot.live == 0 {
            return Duration::ZERO;
        }
        self.period.until(snapshot.oldest + self.period.ticks, now)
    }

    /// The state is needed until its newest stamp leaves, while `reset_after` is the time of the
    /// oldest.
    fn ttl(&self, snapshot: LogSnapshot, now: Timestamp) -> Duration {
        if snapshot.live == 0 {
            return Duration::ZERO;
        }
        self.period.until(snapshot.newest + self.period.ticks, now)
    }

    /// Converts the grain, drops expired stamps, applies the repair, then appends one stamp per
    /// charged unit.
    ///
    /// The conversion comes first: the live stamps are the newest ones in either grain.
    fn write(&self, slot: &mut Option<State>, snapshot: LogSnapshot) {
        let log = self.log(slot);
        if log.grain != self.period.grain {
            let grain = log.grain;
            // The limit changed its grain since the last write.
            for stamp in &mut log.stamps {
                *stamp = self.period.convert(*stamp, grain);
            }
            log.grain = self.period.grain;
        }
        let kept = usize::try_from(snapshot.live - snapshot.added).unwrap_or(usize::MAX);
        log.keep_newest(kept);
        if snapshot.repaired {
            log.stamps.iter_mut().for_each(|stamp| *stamp = snapshot.at);
        }
        for _ in 0..snapshot.added {
            log.stamps.push_back(snapshot.at);
        }
    }

    /// Appends the denied hit and keeps the newest `limit` stamps.
    fn record_denial(
        &self,
        slot: &mut Option<State>,
        snapshot: LogSnapshot,
        demand: Demand,
    ) -> Option<LogSnapshot> {
        if !self.count_denied {
            return None;
        }
        self.write(slot, self.charge(snapshot, demand.cost));
        let log = self.log(slot);
        let max_len = usize::try_from(self.limit).unwrap_or(usize::MAX);
        log.keep_newest(max_len);
        Some(self.seen(log, 0, snapshot.at, demand.total()))
    }

    /// Stamps carry the tick of their charge, unless the clock is behind the log.
    fn mark(&self, snapshot: LogSnapshot, now: Timestamp) -> RefundMark {
        let is_now = snapshot.at == self.period.tick(now);
        RefundMark::new(if is_now { snapshot.live } else { 0 })
    }

    /// Removes up to `units` stamps with the tick of the charge.
    ///
    /// Stamps of other hits in the same tick are equal, and removing one of them has the same
    /// effect.
    fn refund(&self, state: &mut State, refund: Refund) -> bool {
        let State::SlidingWindowLog(log) = state else {
            return false;
        };
        let charge_tick = self.period.tick(refund.charged_at);
        let grain = log.grain;
        let mut left = refund.units;
        log.stamps.retain(|&stamp| {
            let is_given_back = left > 0 && self.period.convert(stamp, grain) == charge_tick;
            left -= u64::from(is_given_back);
            !is_given_back
        });
        let is_changed = left < refund.units;
        if is_changed {
            log.shrink_if_oversized();
        }
        is_changed
    }

    fn decode(&self, [at, live, oldest, pivot]: WireState) -> Option<LogSnapshot> {
        // A lowered limit leaves more stamps than it admits, so only the longest log bounds them.
        (live <= MAX_LOG).then_some(LogSnapshot {
            at,
            live,
            oldest,
            pivot,
            newest: at,
            added: 0,
            repaired: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{Effect, step::step_limit};

    fn charge(log: &SlidingWindowLog, state: &mut Option<State>, secs: u64, cost: u64) {
        let demand = Demand {
            cost,
            ..Demand::PEEK
        };
        let now = Timestamp::from_secs(secs);
        step_limit(log, state, now, demand, |_| Effect::Charge);
    }

    fn allocated(state: Option<&State>) -> usize {
        match state {
            Some(State::SlidingWindowLog(log)) => log.stamps.capacity(),
            _ => 0,
        }
    }

    #[test]
    fn a_log_gives_the_memory_of_old_stamps_back() {
        let log = SlidingWindowLog::new(10_000, Duration::from_secs(3_600)).unwrap();
        let mut state = None;
        charge(&log, &mut state, 0, 9_000);
        charge(&log, &mut state, 1_800, 1);
        assert!(allocated(state.as_ref()) >= 9_001);

        charge(&log, &mut state, 3_601, 1);

        assert!(
            allocated(state.as_ref()) <= 64,
            "{}",
            allocated(state.as_ref())
        );
    }

    #[test]
    fn a_log_gives_the_memory_of_refunded_stamps_back() {
        let log = SlidingWindowLog::new(10_000, Duration::from_secs(3_600)).unwrap();
        let mut state = None;
        charge(&log, &mut state, 0, 9_000);

        let is_given_back = log.refund(
            state.as_mut().unwrap(),
            Refund {
                units: 9_000,
                cost: 9_000,
                charged_at: Timestamp::from_secs(0),
                mark: RefundMark::new(1),
                now: Timestamp::from_secs(1),
            },
        );

        assert!(is_given_back);
        assert!(
            allocated(state.as_ref()) <= 64,
            "{}",
            allocated(state.as_ref())
        );
    }
}
