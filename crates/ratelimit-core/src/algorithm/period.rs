//! A limit's period, cut into ticks so that every product stays exact.

use std::{fmt, time::Duration};

use crate::time::{MAX_EXACT, Timestamp};

const SHORTEST: u64 = 1_000;
const LONGEST: u64 = 366 * 86_400 * 1_000_000;

/// The finest unit of time in which a limit's arithmetic stays below 2^53.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Grain {
    Microsecond,
    Millisecond,
    Second,
}

impl Grain {
    pub(crate) const fn micros(self) -> u64 {
        match self {
            Grain::Microsecond => 1,
            Grain::Millisecond => 1_000,
            Grain::Second => 1_000_000,
        }
    }
}

/// How long a limit's period is, in ticks of its grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) ticks: u64,
    pub(crate) grain: Grain,
}

impl Period {
    /// The period of a limit that counts to `limit`, in the finest grain that fits.
    pub(crate) const fn fitting(limit: u64, period: Duration) -> Result<Period, InvalidLimit> {
        let micros = period.as_micros();
        if micros < SHORTEST as u128 || micros > LONGEST as u128 {
            return Err(InvalidLimit::Period { period });
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most LONGEST, checked above"
        )]
        let micros = micros as u64;
        if limit == 0 {
            return Err(InvalidLimit::Zero);
        }
        let grains = [Grain::Microsecond, Grain::Millisecond, Grain::Second];
        let mut finest = 0;
        while finest < grains.len() {
            let grain = grains[finest];
            let ticks = micros / grain.micros();
            if (limit as u128) * (ticks as u128) < MAX_EXACT as u128 {
                let whole = micros.is_multiple_of(grain.micros())
                    && period.subsec_nanos().is_multiple_of(1_000);
                return if whole {
                    Ok(Period { ticks, grain })
                } else {
                    Err(InvalidLimit::Uneven { limit, period })
                };
            }
            finest += 1;
        }
        Err(InvalidLimit::TooLarge { limit, period })
    }

    pub(crate) const fn micros(self) -> u64 {
        self.ticks * self.grain.micros()
    }

    pub(crate) const fn duration(self) -> Duration {
        Duration::from_micros(self.micros())
    }

    /// The tick that `moment` lies in.
    #[inline]
    pub(crate) const fn tick(self, moment: Timestamp) -> u64 {
        // By a number that the compiler knows, because a division takes as long as all the rest.
        match self.grain {
            Grain::Microsecond => moment.as_micros(),
            Grain::Millisecond => moment.as_micros() / Grain::Millisecond.micros(),
            Grain::Second => moment.as_micros() / Grain::Second.micros(),
        }
    }

    /// A tick counted in another limit's grain, in ours.
    #[inline]
    pub(crate) const fn convert(self, tick: u64, grain: Grain) -> u64 {
        if grain as u8 == self.grain as u8 {
            return tick;
        }
        tick.saturating_mul(grain.micros()) / self.grain.micros()
    }

    /// The time from `now` until `tick` begins.
    #[inline]
    pub(crate) fn until(self, tick: u64, now: Timestamp) -> Duration {
        if let Some(micros) = tick.checked_mul(self.grain.micros()) {
            return Duration::from_micros(micros.saturating_sub(now.as_micros()));
        }
        self.until_far(tick, now)
    }

    /// The same centuries ahead, where only slow buckets of many tokens reach.
    #[cold]
    fn until_far(self, tick: u64, now: Timestamp) -> Duration {
        let micros = u128::from(tick) * u128::from(self.grain.micros());
        let left = micros.saturating_sub(u128::from(now.as_micros()));
        let secs = u64::try_from(left / 1_000_000).unwrap_or(u64::MAX);
        let micros = u32::try_from(left % 1_000_000).unwrap_or(0);
        Duration::new(secs, micros * 1_000)
    }
}

/// A period in the fewest bytes, for states that are kept by the million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(super) struct PackedPeriod {
    low: u32,
    high: u16,
    grain: Grain,
}

impl PackedPeriod {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "no period has 2^48 ticks, and the rest is meant to be cut off"
    )]
    pub(super) const fn new(period: Period) -> PackedPeriod {
        PackedPeriod {
            low: period.ticks as u32,
            high: (period.ticks >> 32) as u16,
            grain: period.grain,
        }
    }

    pub(super) const fn period(self) -> Period {
        Period {
            ticks: self.low as u64 | (self.high as u64) << 32,
            grain: self.grain,
        }
    }
}

/// Brings a stored tick to the present (law 8 of the design).
///
/// A tick at most one period ahead stands still until the clock catches up; one further ahead
/// becomes the present, and what was spent is kept.
#[inline]
pub(crate) const fn catch_up(stored: u64, now: u64, period: u64) -> (u64, bool) {
    if stored > now + period {
        (now, true)
    } else if stored > now {
        (stored, false)
    } else {
        (now, false)
    }
}

/// Why numbers cannot be a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// A limit, capacity or refill of zero would let nothing pass, ever.
    Zero,
    /// The period lies outside 1 ms to 366 days.
    Period {
        /// The refused period.
        period: Duration,
    },
    /// No grain of time keeps limit x period below 2^53.
    TooLarge {
        /// The refused limit.
        limit: u64,
        /// Its period.
        period: Duration,
    },
    /// The only grain that keeps limit x period below 2^53 does not divide the period.
    Uneven {
        /// The refused limit.
        limit: u64,
        /// Its period.
        period: Duration,
    },
    /// The refill of a bucket is 2^53 or more.
    Refill {
        /// The refused refill.
        refill: u64,
    },
    /// A log remembers every hit, so it holds at most 10,000.
    LogTooLong {
        /// The refused limit.
        limit: u64,
    },
    /// Every slot of a concurrency limit is remembered, so it has at most 10,000.
    TooManySlots {
        /// The refused limit.
        limit: u64,
    },
    /// The lease of a concurrency limit lies outside 1 ms to one day.
    Lease {
        /// The refused lease.
        lease: Duration,
    },
    /// A penalty box counts to 10,000 at the most.
    TooManyDenials {
        /// The refused number.
        denials: u64,
    },
    /// The times of a penalty box are whole milliseconds up to 366 days.
    Penalty {
        /// Within which denials would count.
        within: Duration,
        /// How long the refusal would be.
        refused_for: Duration,
    },
}

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidLimit::Zero => f.write_str("a limit must be at least 1, not 0"),
            InvalidLimit::Period { period } => {
                write!(f, "the period {period:?} must be from 1 ms to 366 days")
            }
            InvalidLimit::TooLarge { limit, period } => write!(
                f,
                "{limit} per {period:?} is too large: the limit times the period in seconds must \
                 be below 2^53 = {MAX_EXACT}"
            ),
            InvalidLimit::Uneven { limit, period } => {
                let grain = if period.subsec_nanos() % 1_000 != 0 {
                    "microseconds"
                } else if u128::from(*limit) * period.as_millis() < u128::from(MAX_EXACT) {
                    "milliseconds"
                } else {
                    "seconds"
                };
                write!(
                    f,
                    "{limit} per {period:?} needs a period of whole {grain} to be counted \
                     exactly (below 2^53)"
                )
            }
            InvalidLimit::Refill { refill } => {
                write!(
                    f,
                    "the refill {refill} is too large: it must be below 2^53 = {MAX_EXACT}"
                )
            }
            InvalidLimit::LogTooLong { limit } => write!(
                f,
                "a sliding window log of {limit} is too long: it remembers every hit, so at most \
                 {} (a sliding_window_counter has no such bound)",
                super::sliding_window_log::LONGEST_LOG
            ),
            InvalidLimit::TooManySlots { limit } => write!(
                f,
                "a concurrency limit of {limit} is too large: every slot is remembered, so at most 10000"
            ),
            InvalidLimit::Lease { lease } => {
                write!(f, "the lease {lease:?} must be from 1 ms to one day")
            }
            InvalidLimit::TooManyDenials { denials } => {
                write!(
                    f,
                    "a penalty box counts to at most 10000 denials, not {denials}"
                )
            }
            InvalidLimit::Penalty {
                within,
                refused_for,
            } => write!(
                f,
                "the times of a penalty box, {within:?} and {refused_for:?}, must be whole \
                 milliseconds up to 366 days"
            ),
        }
    }
}

impl std::error::Error for InvalidLimit {}
