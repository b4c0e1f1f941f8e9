//! Sliding window log: so many in any window, remembered one by one.

use std::{collections::VecDeque, time::Duration};

use crate::algorithm::{
    period::{Grain, InvalidLimit, Period, catch_up},
    state::{State, is_oversized, own_state},
    step::{Demand, Refund, Step, WireState},
};
use crate::{decision::RefundMark, time::Timestamp};

/// The most hits that a log remembers for one key.
pub(super) const LONGEST_LOG: u64 = 10_000;

/// So many in any window: every hit is remembered until it is one period old.
///
/// ```
/// use ratelimit_core::SlidingWindowLog;
/// use std::time::Duration;
///
/// let exact = SlidingWindowLog::new(100, Duration::from_secs(60))?;
/// assert_eq!(exact.limit(), 100);
/// # Ok::<(), ratelimit_core::InvalidLimit>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindowLog {
    limit: u64,
    pub(crate) period: Period,
    count_denied: bool,
}

impl SlidingWindowLog {
    /// `limit` in any `period`; at most 10,000, because each hit is remembered.
    ///
    /// # Errors
    ///
    /// When a number is zero, or too large.
    pub const fn new(limit: u64, period: Duration) -> Result<SlidingWindowLog, InvalidLimit> {
        if limit > LONGEST_LOG {
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

    /// Remembers denied hits as well: who keeps asking keeps waiting.
    #[must_use]
    pub const fn counting_denied(self) -> SlidingWindowLog {
        SlidingWindowLog {
            count_denied: true,
            ..self
        }
    }

    /// Whether denied hits are remembered.
    pub const fn counts_denied(&self) -> bool {
        self.count_denied
    }

    /// What passes in any window.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The length of the window.
    pub const fn period(&self) -> Duration {
        self.period.duration()
    }

    /// The log in `slot`, an empty one where there was none.
    fn log<'a>(&self, slot: &'a mut Option<State>) -> &'a mut LogState {
        self.state_or_insert(slot, || {
            State::SlidingWindowLog(Box::new(LogState {
                stamps: VecDeque::new(),
                grain: self.period.grain,
            }))
        })
    }

    /// What answers need to know of `stamps`, whose live part starts at `first`.
    fn seen(&self, stamps: &VecDeque<u64>, first: usize, at: u64, wanted: u64) -> LogSnapshot {
        let live = (stamps.len() - first) as u64;
        let over = (live + wanted.min(self.limit)).saturating_sub(self.limit);
        let stamp = |number: u64| {
            let index = first + usize::try_from(number - 1).unwrap_or(usize::MAX - first);
            stamps.get(index).copied().unwrap_or(at)
        };
        LogSnapshot {
            at,
            live,
            oldest: stamp(1),
            pivot: stamp(over.max(1)),
            newest: stamp(live.max(1)),
            repaired: false,
        }
    }
}

/// What a log remembers: the tick of each hit, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogState {
    stamps: VecDeque<u64>,
    grain: Grain,
}

impl LogState {
    /// How many stamps there is memory for.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.stamps.capacity()
    }

    /// Drops stamps until `len` are left, and gives memory back when most of it is unused.
    fn keep_newest(&mut self, len: usize) {
        let excess = self.stamps.len().saturating_sub(len);
        if excess > 0 {
            self.stamps.drain(..excess);
            self.shrink_if_oversized();
        }
    }

    #[inline]
    fn shrink_if_oversized(&mut self) {
        if is_oversized(self.stamps.capacity(), self.stamps.len()) {
            self.shrink();
        }
    }

    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        self.stamps.shrink_to(2 * self.stamps.len());
    }
}

/// The part of a log that lies in the present window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSnapshot {
    at: u64,
    live: u64,
    oldest: u64,
    /// The stamp that has to leave before the hit fits, where it does not.
    pivot: u64,
    newest: u64,
    repaired: bool,
}

impl Step for SlidingWindowLog {
    type State = LogState;
    type Snapshot = LogSnapshot;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn advance(&self, stored: Option<&LogState>, now: Timestamp, demand: Demand) -> LogSnapshot {
        let now = self.period.tick(now);
        let Some((log, &newest)) = stored.and_then(|log| Some((log, log.stamps.back()?))) else {
            return LogSnapshot {
                at: now,
                live: 0,
                oldest: now,
                pivot: now,
                newest: now,
                repaired: false,
            };
        };
        let ours = |stamp: u64| self.period.convert(stamp, log.grain);
        let newest = ours(newest);
        let (at, repaired) = catch_up(newest, now, self.period.ticks);
        let window_end = if repaired { newest } else { at };
        let first = log
            .stamps
            .partition_point(|&stamp| ours(stamp) + self.period.ticks <= window_end);
        let seen = self.seen(&log.stamps, first, at, demand.total());
        let present = |stamp| if repaired { at } else { ours(stamp) };
        LogSnapshot {
            oldest: present(seen.oldest),
            pivot: present(seen.pivot),
            newest: present(seen.newest),
            repaired,
            ..seen
        }
    }

    fn decode_wire(&self, [at, live, oldest, pivot]: WireState) -> Option<LogSnapshot> {
        // A lowered limit leaves more stamps than it would let in, so only the longest log bounds them.
        (live <= LONGEST_LOG).then_some(LogSnapshot {
            at,
            live,
            oldest,
            pivot,
            newest: at,
            repaired: false,
        })
    }

    fn with_charge(&self, snapshot: LogSnapshot, units: u64) -> LogSnapshot {
        LogSnapshot {
            live: snapshot.live + units,
            oldest: if snapshot.live == 0 {
                snapshot.at
            } else {
                snapshot.oldest
            },
            newest: snapshot.at,
            ..snapshot
        }
    }

    fn fits(&self, snapshot: LogSnapshot, demand: Demand) -> bool {
        snapshot.live + demand.total() <= self.limit
    }

    fn retry_after(&self, snapshot: LogSnapshot, _ask: Demand, now: Timestamp) -> Duration {
        self.period.until(snapshot.pivot + self.period.ticks, now)
    }

    fn remaining(&self, snapshot: LogSnapshot, charged: u64) -> u64 {
        self.limit.saturating_sub(snapshot.live + charged)
    }

    fn reset_after(&self, snapshot: LogSnapshot, charged: u64, now: Timestamp) -> Duration {
        let oldest = match (snapshot.live, charged) {
            (0, 0) => return Duration::ZERO,
            (0, _) => snapshot.at,
            _ => snapshot.oldest,
        };
        self.period.until(oldest + self.period.ticks, now)
    }

    fn ttl(&self, snapshot: LogSnapshot, charged: u64, now: Timestamp) -> Option<Duration> {
        let newest = match (snapshot.live, charged) {
            (0, 0) => return None,
            (_, 0) => snapshot.newest,
            _ => snapshot.at,
        };
        Some(self.period.until(newest + self.period.ticks, now))
    }

    fn clock_was_repaired(snapshot: LogSnapshot) -> bool {
        snapshot.repaired
    }

    fn write(&self, slot: &mut Option<State>, snapshot: LogSnapshot, charged: u64) {
        let log = self.log(slot);
        if log.grain != self.period.grain {
            let grain = log.grain;
            for stamp in &mut log.stamps {
                *stamp = self.period.convert(*stamp, grain);
            }
            log.grain = self.period.grain;
        }
        let live = usize::try_from(snapshot.live).unwrap_or(usize::MAX);
        log.keep_newest(live);
        if snapshot.repaired {
            log.stamps.iter_mut().for_each(|stamp| *stamp = snapshot.at);
        }
        for _ in 0..charged {
            log.stamps.push_back(snapshot.at);
        }
    }

    fn records_denials(&self, _rolled: LogSnapshot) -> bool {
        self.count_denied
    }

    fn record_denial(
        &self,
        slot: &mut Option<State>,
        snapshot: LogSnapshot,
        demand: Demand,
    ) -> LogSnapshot {
        self.write(slot, snapshot, demand.cost);
        let log = self.log(slot);
        let longest = usize::try_from(self.limit).unwrap_or(usize::MAX);
        log.keep_newest(longest);
        self.seen(&log.stamps, 0, snapshot.at, demand.total())
    }

    fn refund_mark(&self, snapshot: LogSnapshot, _charged: u64, now: Timestamp) -> RefundMark {
        RefundMark::new(u64::from(snapshot.at == self.period.tick(now)))
    }

    fn refund(&self, log: &mut LogState, refund: Refund) -> bool {
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

    own_state!(SlidingWindowLog(LogState));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Effect;

    fn charge(log: &SlidingWindowLog, state: &mut Option<State>, secs: u64, cost: u64) {
        let demand = Demand {
            cost,
            ..Demand::PEEK
        };
        log.step(state, Timestamp::from_secs(secs), demand, |_| {
            Effect::Charge
        });
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
        let Some(State::SlidingWindowLog(stored)) = &mut state else {
            panic!("a log is stored");
        };

        let is_given_back = log.refund(
            stored,
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
