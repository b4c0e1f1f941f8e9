//! Periods in ticks of a grain, the clock rule, and the errors of limits.

use std::{fmt, time::Duration};

use crate::time::{MAX_EXACT, Timestamp};

/// The shortest period: 1 ms, in microseconds.
const MIN_PERIOD_MICROS: u64 = 1_000;
/// The longest period: 366 days, in microseconds.
const MAX_PERIOD_MICROS: u64 = 366 * 86_400 * 1_000_000;

/// The unit of time in which a limit counts: the finest in which its arithmetic stays below 2^53.
///
/// | limit | grain |
/// |---|---|
/// | `100/min` | 1 us |
/// | `1000000/d` | 1 ms |
/// | `1000000/366d` | 1 s |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Grain {
    /// 1 us; nearly every limit.
    Microsecond,
    /// 1 ms; large limits over long periods, and every penalty box.
    Millisecond,
    /// 1 s; the largest.
    Second,
}

impl Grain {
    /// The length of one tick in microseconds.
    pub(crate) const fn micros(self) -> u64 {
        match self {
            Grain::Microsecond => 1,
            Grain::Millisecond => 1_000,
            Grain::Second => 1_000_000,
        }
    }
}

/// The period of a limit as a whole number of ticks; for a concurrency limit its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Period {
    /// The length in ticks. For a bucket it is also the debt that one token costs.
    pub(crate) ticks: u64,
    /// The length of a tick.
    pub(crate) grain: Grain,
}

impl Period {
    /// Chooses the finest grain in which `limit` x `period` stays below 2^53.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit::Period`] outside 1 ms to 366 days
    /// - [`InvalidLimit::Zero`] for a limit of 0
    /// - [`InvalidLimit::Uneven`] if the period is not a whole number of ticks of that grain
    /// - [`InvalidLimit::TooLarge`] if no grain fits
    pub(crate) const fn fitting(limit: u64, period: Duration) -> Result<Period, InvalidLimit> {
        let micros = period.as_micros();
        if micros < MIN_PERIOD_MICROS as u128 || micros > MAX_PERIOD_MICROS as u128 {
            return Err(InvalidLimit::Period { period });
        }
        #[allow(
            clippy::cast_possible_truncation,
            reason = "at most MAX_PERIOD_MICROS, checked above"
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
                // A coarser grain would divide the period no better, so the first grain that fits
                // decides.
                let is_even = micros.is_multiple_of(grain.micros())
                    && period.subsec_nanos().is_multiple_of(1_000);
                return if is_even {
                    Ok(Period { ticks, grain })
                } else {
                    Err(InvalidLimit::Uneven { limit, period })
                };
            }
            finest += 1;
        }
        Err(InvalidLimit::TooLarge { limit, period })
    }

    /// The period in microseconds.
    pub(crate) const fn micros(self) -> u64 {
        self.ticks * self.grain.micros()
    }

    /// The period as a [`Duration`].
    pub(crate) const fn duration(self) -> Duration {
        Duration::from_micros(self.micros())
    }

    /// The tick that `moment` lies in, rounded down.
    #[inline]
    pub(crate) const fn tick(self, moment: Timestamp) -> u64 {
        // Each arm divides by a constant, which compiles to a multiplication. A 64-bit division by
        // a variable would take as long as the rest of the step.
        match self.grain {
            Grain::Microsecond => moment.as_micros(),
            Grain::Millisecond => moment.as_micros() / Grain::Millisecond.micros(),
            Grain::Second => moment.as_micros() / Grain::Second.micros(),
        }
    }

    /// The moment at which `tick` begins.
    #[cfg(feature = "tokio")]
    pub(crate) const fn start_of(self, tick: u64) -> Timestamp {
        Timestamp::from_micros(tick.saturating_mul(self.grain.micros()))
    }

    /// The end of the window that contains the tick `at`.
    #[cfg(feature = "tokio")]
    pub(crate) const fn window_end(self, at: u64) -> Timestamp {
        self.start_of(at - at % self.ticks + self.ticks)
    }

    /// Converts a tick of another grain into this one, rounded down. A state written under other
    /// numbers is read so.
    #[inline]
    pub(crate) const fn convert(self, tick: u64, grain: Grain) -> u64 {
        if grain as u8 == self.grain as u8 {
            return tick;
        }
        // A tick of the coarsest grain fits into 64 bits as microseconds; saturation only guards
        // corrupt values.
        tick.saturating_mul(grain.micros()) / self.grain.micros()
    }

    /// The time from `now` to the beginning of `tick`, in microseconds; zero for a tick that has
    /// begun.
    ///
    /// Waits end at the edge of a tick, which makes `retry_after` exact in every grain.
    #[inline]
    pub(crate) fn until(self, tick: u64, now: Timestamp) -> Duration {
        if let Some(micros) = tick.checked_mul(self.grain.micros()) {
            return Duration::from_micros(micros.saturating_sub(now.as_micros()));
        }
        self.until_far(tick, now)
    }

    /// The same for a tick beyond 2^64 us. Only a slow bucket of many tokens in a coarse grain
    /// reaches it.
    #[cold]
    fn until_far(self, tick: u64, now: Timestamp) -> Duration {
        let micros = u128::from(tick) * u128::from(self.grain.micros());
        let left = micros.saturating_sub(u128::from(now.as_micros()));
        let secs = u64::try_from(left / 1_000_000).unwrap_or(u64::MAX);
        let micros = u32::try_from(left % 1_000_000).unwrap_or(0);
        Duration::new(secs, micros * 1_000)
    }
}

/// A [`Period`] in 7 bytes instead of 16, for bucket states, of which the memory store keeps
/// millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(super) struct PackedPeriod {
    /// The low 32 bits of the ticks.
    low: u32,
    /// The high 16 bits of the ticks. A period has fewer than 2^48 ticks: 366 days are 3.2 x 10^13
    /// us, below 2^45.
    high: u16,
    /// The length of a tick.
    grain: Grain,
}

impl PackedPeriod {
    /// Packs a period into the size of a state, without loss.
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

    /// Unpacks the period.
    pub(super) const fn period(self) -> Period {
        Period {
            ticks: self.low as u64 | (self.high as u64) << 32,
            grain: self.grain,
        }
    }
}

/// Brings a stored tick to the present (law 8). Returns the tick to use, and whether the state was
/// repaired.
///
/// - A stored tick in the past: the present, not repaired.
/// - At most one period ahead: the stored tick. Time stands still for this key until the clock
///   catches up, and the wait is part of `retry_after`.
/// - Further ahead: the present, repaired. The state keeps what was spent, so a clock that steps
///   back refills nothing, and no hit waits more than one period longer than without the step.
///
/// With a period of 60 ticks and the clock at 100:
///
/// | stored | tick | repaired |
/// |---|---|---|
/// | 90 | 100 | no |
/// | 160 | 160 | no |
/// | 161 | 100 | yes |
///
/// `catch_up` in `lua/prelude.lua` is its twin.
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

/// The reason why numbers cannot be a limit.
///
/// A limit is checked when it is made. Arithmetic on a valid limit is exact.
///
/// ```
/// use ratelimit_core::{FixedWindow, InvalidLimit};
/// use std::time::Duration;
///
/// let day = Duration::from_secs(86_400);
/// assert_eq!(FixedWindow::new(0, day), Err(InvalidLimit::Zero));
///
/// let nothing = FixedWindow::new(10, Duration::ZERO).unwrap_err();
/// assert_eq!(nothing.to_string(), "the period 0ns must be from 1 ms to 366 days");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidLimit {
    /// A limit, capacity, refill or number of denials is 0, so that nothing could ever pass.
    Zero,
    /// The period lies outside 1 ms to 366 days.
    Period {
        /// The rejected period.
        period: Duration,
    },
    /// No grain keeps limit x period below 2^53.
    TooLarge {
        /// The rejected limit, or the capacity of a bucket.
        limit: u64,
        /// Its period.
        period: Duration,
    },
    /// The finest grain that keeps limit x period below 2^53 does not divide the period. `Display`
    /// names the grain.
    Uneven {
        /// The rejected limit, or the capacity of a bucket.
        limit: u64,
        /// Its period.
        period: Duration,
    },
    /// The refill of a bucket is 2^53 or more.
    Refill {
        /// The rejected refill.
        refill: u64,
    },
    /// The limit of a sliding window log is above 10,000; the log stores one timestamp for each
    /// unit.
    LogTooLong {
        /// The rejected limit.
        limit: u64,
    },
    /// A concurrency limit has more than 10,000 slots, each of which is stored.
    TooManySlots {
        /// The rejected limit.
        limit: u64,
    },
    /// The lease of a concurrency limit lies outside 1 ms to one day.
    Lease {
        /// The rejected lease.
        lease: Duration,
    },
    /// The number of denials of a penalty box is above 10,000.
    TooManyDenials {
        /// The rejected number.
        denials: u64,
    },
    /// A time of a penalty box is not a whole number of milliseconds from 1 ms to 366 days.
    Penalty {
        /// The span in which denials would count.
        within: Duration,
        /// The length of the first block.
        refused_for: Duration,
    },
}

impl fmt::Display for InvalidLimit {
    /// Writes the rejected number with its bound.
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
                crate::algorithm::MAX_LOG
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

debug_as_display!(InvalidLimit);

impl std::error::Error for InvalidLimit {}
