//! The clock by which slices age. No clock of an instance is compared with another's.

use std::time::Instant;

use crate::time::{Clock, micros};

/// The system clock is derived and may be this far behind: 0.1 ms.
const SYSTEM_SLACK: u64 = 100;
/// Ages are lengthened by one part in this many, so that a slow clock makes no unit live too long.
const MAX_DRIFT: u64 = 1_024;

/// Reads [`Moment`]s.
#[derive(Clone)]
pub(super) enum PrefetchClock {
    /// The monotonic clock and the system clock of the process.
    Process { since: Instant, system: Clock },
    /// The manual clock that the store decides on, in tests.
    Manual(Clock),
}

/// A moment by both clocks of the process, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    monotonic: u64,
    system: u64,
}

impl PrefetchClock {
    /// A clock for a store that decides on the manual `clock`, or on a real one.
    pub(super) fn new(clock: Option<Clock>) -> PrefetchClock {
        match clock {
            Some(clock) => PrefetchClock::Manual(clock),
            None => PrefetchClock::Process {
                since: Instant::now(),
                system: Clock::system(),
            },
        }
    }

    /// The present moment.
    #[inline]
    pub(super) fn now(&self) -> Moment {
        match self {
            PrefetchClock::Process { since, system } => Moment {
                monotonic: micros(since.elapsed()),
                system: system.now().as_micros() + SYSTEM_SLACK,
            },
            PrefetchClock::Manual(clock) => Moment::at(clock.now().as_micros()),
        }
    }
}

impl Moment {
    /// A moment at which both clocks show the same.
    pub(super) const fn at(micros: u64) -> Moment {
        Moment {
            monotonic: micros,
            system: micros,
        }
    }

    /// The time since an earlier moment, in microseconds: the larger age of both clocks.
    ///
    /// The monotonic clock stands still while the machine is suspended, and the system clock may be set back.
    #[inline]
    pub(super) fn since(self, earlier: Moment) -> u64 {
        let monotonic = self.monotonic.saturating_sub(earlier.monotonic);
        // Each reading has the slack, so an age has it once at most if the earlier one is taken without.
        monotonic.max(self.system.saturating_sub(earlier.system))
    }

    /// The same, never too short: lengthened by the drift that a clock may have.
    #[inline]
    pub(super) fn age_since(self, earlier: Moment) -> u64 {
        let age = self.since(earlier);
        age + age / MAX_DRIFT
    }

    /// The moment of a sending: a reading of the system clock that is certainly not late.
    pub(super) const fn as_sent(self) -> Moment {
        Moment {
            monotonic: self.monotonic,
            system: self.system.saturating_sub(SYSTEM_SLACK),
        }
    }

    /// The lowest bits of the monotonic clock, for counts that wrap around.
    pub(super) const fn low_bits(self, mask: u64) -> u64 {
        self.monotonic & mask
    }

    /// The moment `micros` microseconds earlier.
    pub(super) const fn before(self, micros: u64) -> Moment {
        Moment {
            monotonic: self.monotonic.saturating_sub(micros),
            system: self.system.saturating_sub(micros),
        }
    }

    /// A number that differs from moment to moment, to spread calls of several instances.
    pub(super) const fn jitter(self) -> u64 {
        let mixed =
            (self.monotonic ^ self.system.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed >> 40
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_the_larger_of_both_clocks() {
        let sent = Moment {
            monotonic: 100,
            system: 5_000,
        };
        let suspended = Moment {
            monotonic: 110,
            system: 9_000,
        };
        assert_eq!(suspended.since(sent), 4_000);
        let set_back = Moment {
            monotonic: 600,
            system: 1_000,
        };
        assert_eq!(set_back.since(sent), 500);
        assert_eq!(Moment::at(10_240).age_since(Moment::at(0)), 10_250);
    }
}
