//! Moments in whole microseconds, and the clock of a store.

mod store_clock;
mod tsc_clock;

pub(crate) use self::store_clock::StoreClock;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The bound of all arithmetic: a Lua number holds every whole number below 2^53 exactly (law 6).
pub(crate) const MAX_EXACT: u64 = 1 << 53;

/// A moment: whole microseconds since the Unix epoch, below 2^53 (the year 2255).
///
/// Arithmetic saturates at [`Timestamp::MAX`] and at the epoch.
///
/// ```
/// use ratelimit_core::Timestamp;
/// use std::time::Duration;
///
/// let start = Timestamp::from_secs(60);
/// assert_eq!((start + Duration::from_millis(1)).as_micros(), 60_001_000);
/// assert_eq!(start.since(Timestamp::from_secs(90)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The latest moment: 2^53 - 1 microseconds.
    pub const MAX: Timestamp = Timestamp(MAX_EXACT - 1);

    /// The moment `micros` microseconds after the epoch, at most [`Timestamp::MAX`].
    pub const fn from_micros(micros: u64) -> Timestamp {
        if micros < MAX_EXACT {
            Timestamp(micros)
        } else {
            Timestamp::MAX
        }
    }

    /// The moment `secs` seconds after the epoch, at most [`Timestamp::MAX`].
    pub const fn from_secs(secs: u64) -> Timestamp {
        Timestamp::from_micros(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// Adds whole microseconds; a fraction of a microsecond is dropped.
    fn add(self, span: Duration) -> Timestamp {
        Timestamp::from_micros(self.0.saturating_add(micros(span)))
    }
}

/// The whole microseconds of `span`, at most `u64::MAX`.
#[inline]
pub(crate) const fn micros(span: Duration) -> u64 {
    let seconds = span.as_secs().saturating_mul(1_000_000);
    seconds.saturating_add(span.subsec_micros() as u64)
}

/// The clock that a store reads: the system clock, or a manual one for tests.
///
/// A [`manual`](Clock::manual) clock stands still until it is moved. Tests of limits are then exact
/// and need no sleep:
///
/// ```
/// use ratelimit_core::{Clock, Key, Limiter, MemoryStore, Policy, Timestamp};
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let clock = Clock::manual(Timestamp::from_secs(100));
/// let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
/// let (policy, key) = (Policy::parse("api", "1/min")?, Key::new("alice")?);
///
/// assert!(limiter.check(&policy, &key).await.is_allowed());
/// assert!(!limiter.check(&policy, &key).await.is_allowed());
/// clock.advance(Duration::from_secs(60));
/// assert!(limiter.check(&policy, &key).await.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[doc(alias("fake clock", "mock", "FakeRelativeClock"))]
pub struct Clock(ClockSource);

/// The source of the time.
#[derive(Clone, Default)]
enum ClockSource {
    /// The clock of this machine, read through the TSC.
    #[default]
    System,
    /// Microseconds since the epoch, shared by all clones.
    Manual(Arc<AtomicU64>),
    /// The time of a shared store, estimated from its replies.
    Store(Arc<StoreClock>),
}

impl Clock {
    /// The clock of this machine, exact to a tenth of a millisecond. A change of the system time
    /// takes effect within a tenth of a second.
    pub const fn system() -> Clock {
        Clock(ClockSource::System)
    }

    /// A clock that stands at `start` until it is moved. Clones share the time.
    pub fn manual(start: Timestamp) -> Clock {
        Clock(ClockSource::Manual(Arc::new(AtomicU64::new(
            start.as_micros(),
        ))))
    }

    /// The present moment.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            // Saturates at the year 2255; a system clock beyond it is an error of the machine.
            ClockSource::System => Timestamp::from_micros(tsc_clock::now_micros()),
            ClockSource::Manual(now) => Timestamp(now.load(Ordering::SeqCst)),
            ClockSource::Store(clock) => clock.now(),
        }
    }

    /// The clock that estimates the time of a shared store.
    pub(crate) const fn of_store(clock: Arc<StoreClock>) -> Clock {
        Clock(ClockSource::Store(clock))
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    ///
    /// On a system clock.
    pub fn advance(&self, span: Duration) {
        self.set(self.now() + span);
    }

    /// Sets a manual clock, to a later or an earlier moment.
    ///
    /// # Panics
    ///
    /// On a system clock.
    pub fn set(&self, now: Timestamp) {
        match &self.0 {
            // A test that moves the wrong clock must fail, and not pass by accident.
            ClockSource::System | ClockSource::Store(_) => {
                panic!("only a manual clock can be set")
            }
            ClockSource::Manual(time) => time.store(now.as_micros(), Ordering::SeqCst),
        }
    }

    /// Whether both always show the same time: both are the system clock, or clones of one manual
    /// clock.
    pub(crate) fn is_same_as(&self, other: &Clock) -> bool {
        match (&self.0, &other.0) {
            (ClockSource::System, ClockSource::System) => true,
            (ClockSource::Manual(ours), ClockSource::Manual(theirs)) => Arc::ptr_eq(ours, theirs),
            _ => false,
        }
    }

    /// Whether the time is set by a test. Scripts then get it as an argument instead of reading
    /// TIME.
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
            ClockSource::Store(_) => f.write_str("Clock::Store"),
        }
    }
}
