//! Moments in whole microseconds, and where they come from.

mod tsc_clock;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// All arithmetic stays below this bound, so that a Lua number holds every value exactly.
pub(crate) const MAX_EXACT: u64 = 1 << 53;

/// A moment: whole microseconds since the Unix epoch, below 2^53 (the year 2255).
///
/// ```
/// use ratelimit_core::Timestamp;
/// use std::time::Duration;
///
/// let start = Timestamp::from_secs(60);
/// assert_eq!((start + Duration::from_millis(1)).as_micros(), 60_001_000);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The latest moment that can be told.
    pub const MAX: Timestamp = Timestamp(MAX_EXACT - 1);

    /// The moment `micros` microseconds after the epoch, or [`Timestamp::MAX`] if that is earlier.
    pub const fn from_micros(micros: u64) -> Timestamp {
        if micros < MAX_EXACT {
            Timestamp(micros)
        } else {
            Timestamp::MAX
        }
    }

    /// The moment `secs` seconds after the epoch, or [`Timestamp::MAX`] if that is earlier.
    pub const fn from_secs(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here; zero when `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, span: Duration) -> Timestamp {
        Timestamp::from_micros(self.0.saturating_add(micros(span)))
    }
}

/// Whole microseconds of `span`, at most `u64::MAX`.
#[inline]
pub(crate) const fn micros(span: Duration) -> u64 {
    let seconds = span.as_secs().saturating_mul(1_000_000);
    seconds.saturating_add(span.subsec_micros() as u64)
}

/// Where a store reads the time.
///
/// A [`Clock::manual`] stands still until it is moved, which makes tests of a service's own
/// limits exact and instant:
///
/// ```
/// use ratelimit_core::{Clock, Timestamp};
/// use std::time::Duration;
///
/// let clock = Clock::manual(Timestamp::from_secs(100));
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now(), Timestamp::from_secs(160));
/// ```
#[derive(Clone, Default)]
pub struct Clock(ClockSource);

#[derive(Clone, Default)]
enum ClockSource {
    #[default]
    System,
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clock, to a tenth of a millisecond; when it is set, that shows a tenth of a second later.
    pub const fn system() -> Clock {
        Clock(ClockSource::System)
    }

    /// A clock that stands at `start` until it is moved; clones show the same time.
    pub fn manual(start: Timestamp) -> Clock {
        Clock(ClockSource::Manual(Arc::new(AtomicU64::new(
            start.as_micros(),
        ))))
    }

    /// The present moment.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            ClockSource::System => Timestamp::from_micros(tsc_clock::now_micros()),
            ClockSource::Manual(now) => Timestamp(now.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    ///
    /// On the system's clock, which is not ours to move.
    pub fn advance(&self, span: Duration) {
        self.set(self.now() + span);
    }

    /// Sets a manual clock, forwards or back.
    ///
    /// # Panics
    ///
    /// On the system's clock, which is not ours to set.
    pub fn set(&self, now: Timestamp) {
        match &self.0 {
            ClockSource::System => panic!("only a manual clock can be set"),
            ClockSource::Manual(time) => time.store(now.as_micros(), Ordering::SeqCst),
        }
    }

    /// Whether both show the same time, always.
    pub(crate) fn is_same_as(&self, other: &Clock) -> bool {
        match (&self.0, &other.0) {
            (ClockSource::System, ClockSource::System) => true,
            (ClockSource::Manual(ours), ClockSource::Manual(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.0, ClockSource::Manual(_))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ClockSource::System => f.write_str("Clock::System"),
            ClockSource::Manual(_) => write!(f, "Clock::Manual({})", self.now().as_micros()),
        }
    }
}
