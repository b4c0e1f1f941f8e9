//! Sliding window log: so many in any window, remembered one by one.

use std::{collections::VecDeque, time::Duration};

use super::{
    period::{Grain, InvalidLimit, Period, catch_up},
    state::{State, own_state},
    step::{Ask, Refund, Step, Words},
};
use crate::{decision::Mark, time::Timestamp};

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
    pub const fn count_denied(self) -> SlidingWindowLog {
        SlidingWindowLog {
            count_denied: true,
            ..self
        }
    }

    /// Whether denied hits are remembered.
    pub const fn is_counting_denied(&self) -> bool {
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
    fn log<'a>(&self, slot: &'a mut Option<State>) -> &'a mut Log {
        self.own_mut(slot, || {
            State::SlidingWindowLog(Box::new(Log {
                stamps: VecDeque::new(),
                grain: self.period.grain,
            }))
        })
    }

    /// What answers need to know of `stamps`, whose live part starts at `first`.
    fn seen(&self, stamps: &VecDeque<u64>, first: usize, at: u64, wanted: u64) -> Rolled {
        let live = (stamps.len() - first) as u64;
        let over = (live + wanted.min(self.limit)).saturating_sub(self.limit);
        let stamp = |number: u64| {
            let place = first + usize::try_from(number - 1).unwrap_or(usize::MAX - first);
            stamps.get(place).copied().unwrap_or(at)
        };
        Rolled {
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
pub(crate) struct Log {
    stamps: VecDeque<u64>,
    grain: Grain,
}

impl Log {
    /// How many stamps there are.
    pub(crate) fn len(&self) -> usize {
        self.stamps.len()
    }
}

/// The part of a log that lies in the present window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolled {
    at: u64,
    live: u64,
    oldest: u64,
    /// The stamp that has to leave before the hit fits, where it does not.
    pivot: u64,
    newest: u64,
    repaired: bool,
}

impl Step for SlidingWindowLog {
    type State = Log;
    type Rolled = Rolled;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn roll(&self, stored: Option<&Log>, now: Timestamp, ask: Ask) -> Rolled {
        let now = self.period.tick(now);
        let Some((log, &newest)) = stored.and_then(|log| Some((log, log.stamps.back()?))) else {
            return Rolled {
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
        let seen = self.seen(&log.stamps, first, at, ask.wanted());
        let present = |stamp| if repaired { at } else { ours(stamp) };
        Rolled {
            oldest: present(seen.oldest),
            pivot: present(seen.pivot),
            newest: present(seen.newest),
            repaired,
            ..seen
        }
    }

    fn read(&self, [at, live, oldest, pivot]: Words) -> Option<Rolled> {
        // A lowered limit leaves more stamps than it would let in, so only the longest log bounds them.
        (live <= LONGEST_LOG).then_some(Rolled {
            at,
            live,
            oldest,
            pivot,
            newest: at,
            repaired: false,
        })
    }

    fn charged(&self, rolled: Rolled, units: u64) -> Rolled {
        Rolled {
            live: rolled.live + units,
            oldest: if rolled.live == 0 {
                rolled.at
            } else {
                rolled.oldest
            },
            newest: rolled.at,
            ..rolled
        }
    }

    fn fits(&self, rolled: Rolled, ask: Ask) -> bool {
        rolled.live + ask.wanted() <= self.limit
    }

    fn retry_after(&self, rolled: Rolled, _ask: Ask, now: Timestamp) -> Duration {
        self.period.until(rolled.pivot + self.period.ticks, now)
    }

    fn remaining(&self, rolled: Rolled, charged: u64) -> u64 {
        self.limit.saturating_sub(rolled.live + charged)
    }

    fn reset_after(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Duration {
        let oldest = match (rolled.live, charged) {
            (0, 0) => return Duration::ZERO,
            (0, _) => rolled.at,
            _ => rolled.oldest,
        };
        self.period.until(oldest + self.period.ticks, now)
    }

    fn need(&self, rolled: Rolled, charged: u64, now: Timestamp) -> Option<Duration> {
        let newest = match (rolled.live, charged) {
            (0, 0) => return None,
            (_, 0) => rolled.newest,
            _ => rolled.at,
        };
        Some(self.period.until(newest + self.period.ticks, now))
    }

    fn was_repaired(rolled: Rolled) -> bool {
        rolled.repaired
    }

    fn store(&self, slot: &mut Option<State>, rolled: Rolled, charged: u64) {
        let log = self.log(slot);
        if log.grain != self.period.grain {
            let grain = log.grain;
            for stamp in &mut log.stamps {
                *stamp = self.period.convert(*stamp, grain);
            }
            log.grain = self.period.grain;
        }
        let live = usize::try_from(rolled.live).unwrap_or(usize::MAX);
        log.stamps.drain(..log.stamps.len().saturating_sub(live));
        if rolled.repaired {
            log.stamps.iter_mut().for_each(|stamp| *stamp = rolled.at);
        }
        for _ in 0..charged {
            log.stamps.push_back(rolled.at);
        }
    }

    fn counts_denied(&self, _rolled: Rolled) -> bool {
        self.count_denied
    }

    fn count_denied(&self, slot: &mut Option<State>, rolled: Rolled, ask: Ask) -> Rolled {
        self.store(slot, rolled, ask.cost);
        let log = self.log(slot);
        let longest = usize::try_from(self.limit).unwrap_or(usize::MAX);
        log.stamps.drain(..log.stamps.len().saturating_sub(longest));
        self.seen(&log.stamps, 0, rolled.at, ask.wanted())
    }

    fn mark(&self, rolled: Rolled, _charged: u64, now: Timestamp) -> Mark {
        Mark::new(u64::from(rolled.at == self.period.tick(now)))
    }

    fn refund(&self, log: &mut Log, refund: Refund) -> bool {
        let charge_tick = self.period.tick(refund.charged_at);
        let grain = log.grain;
        let mut left = refund.units;
        log.stamps.retain(|&stamp| {
            let is_given_back = left > 0 && self.period.convert(stamp, grain) == charge_tick;
            left -= u64::from(is_given_back);
            !is_given_back
        });
        left < refund.units
    }

    own_state!(SlidingWindowLog(Log));
}
