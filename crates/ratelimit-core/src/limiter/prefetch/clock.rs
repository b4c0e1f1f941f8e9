//! The clock that measures the age of a block. No clock of an instance is compared with that of another.

use std::time::{Instant, SystemTime};

use crate::time::{Clock, Timestamp, micros};

/// Ages are lengthened by one part in this many, so that no unit lives too long by a slow clock.
const MAX_DRIFT: u64 = 1_024;

/// Reads [`Moment`]s.
#[derive(Clone)]
pub(super) enum AgeClock {
    /// The clocks of the process.
    Process { since: Instant },
    /// The manual clock that the store decides on, in tests.
    Manual(Clock),
}

/// A moment by two clocks, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    monotonic: u64,
    system: u64,
}

impl AgeClock {
    /// A clock for a store that decides on the manual `clock`, or on a real one.
    pub(super) fn new(clock: Option<Clock>) -> AgeClock {
        clock.map_or_else(
            || AgeClock::Process {
                since: Instant::now(),
            },
            AgeClock::Manual,
        )
    }

    /// The present moment.
    #[inline]
    pub(super) fn now(&self) -> Moment {
        match self {
            AgeClock::Process { since } => {
                let system = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                Moment {
                    monotonic: micros(since.elapsed()),
                    system: micros(system.unwrap_or_default()),
                }
            }
            AgeClock::Manual(clock) => Moment::at(clock.now()),
        }
    }
}

impl Moment {
    /// The moment at which both clocks show `now`.
    pub(super) const fn at(now: Timestamp) -> Moment {
        let micros = now.as_micros();
        Moment {
            monotonic: micros,
            system: micros,
        }
    }

    /// The microseconds since `earlier`, never too few: the larger age of both clocks, and a margin for a slow clock.
    ///
    /// The monotonic clock stands still while the machine is suspended, and the system clock may be set back.
    #[inline]
    pub(super) fn age_since(self, earlier: Moment) -> u64 {
        let monotonic = self.monotonic.saturating_sub(earlier.monotonic);
        let age = monotonic.max(self.system.saturating_sub(earlier.system));
        age + age / MAX_DRIFT
    }

    /// The monotonic clock, in microseconds.
    pub(super) const fn monotonic(self) -> u64 {
        self.monotonic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_the_larger_of_both_clocks() {
        let moment = |monotonic, system| Moment { monotonic, system };
        let sent = moment(1_000, 50_000);
        let suspended = moment(1_100, 50_900);
        assert_eq!(suspended.age_since(sent), 900);
        let set_back = moment(1_500, 10_000);
        assert_eq!(set_back.age_since(sent), 500);
        assert_eq!(moment(11_240, 50_000).age_since(sent), 10_250);
    }
}
