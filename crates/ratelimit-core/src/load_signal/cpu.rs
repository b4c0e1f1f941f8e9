//! CPU usage in percent of all cores, sampled by its callers.

use std::{
    sync::{
        Mutex, Once, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::time::micros;

/// The least time between two samples.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(250);
/// The stored percentage before the first sample, and after an unreadable one.
const UNKNOWN: u64 = u64::MAX;

/// CPU time of all cores since the start of the machine, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    /// The ticks in use: by this process, or by the whole machine.
    pub(super) used: u64,
    /// All ticks, idle ones included.
    pub(super) all: u64,
}

/// The share of ticks in use between the last two samples.
///
/// Callers load two atomics. The first caller after a sample is due takes the next one; others do
/// not wait for it and get the previous percentage.
pub(super) struct Cpu {
    /// Reads the ticks; `None` where they cannot be read.
    read: Box<dyn Fn() -> Option<Ticks> + Send + Sync>,
    /// The origin of `due`.
    began: Instant,
    /// The last percentage, or [`UNKNOWN`].
    percent: AtomicU64,
    /// When the next sample is due, in microseconds since `began`.
    due: AtomicU64,
    /// The last sample. Its lock also admits one sampler at a time.
    last: Mutex<Option<Ticks>>,
}

impl Cpu {
    /// Takes the first sample; a percentage is known from the second one on.
    pub(super) fn measured_by(read: impl Fn() -> Option<Ticks> + Send + Sync + 'static) -> Cpu {
        Cpu {
            last: Mutex::new(read()),
            read: Box::new(read),
            began: Instant::now(),
            percent: AtomicU64::new(UNKNOWN),
            due: AtomicU64::new(micros(BETWEEN_SAMPLES)),
        }
    }

    /// The percentage, rounded down; `None` while it is unknown.
    pub(super) fn percent(&self) -> Option<u64> {
        self.percent_at(self.began.elapsed())
    }

    /// The same at `age` since the beginning.
    pub(super) fn percent_at(&self, age: Duration) -> Option<u64> {
        if micros(age) >= self.due.load(Ordering::Relaxed) {
            self.sample(age);
        }
        let percent = self.percent.load(Ordering::Relaxed);
        (percent != UNKNOWN).then_some(percent)
    }

    /// Takes a sample, unless another thread is taking one.
    fn sample(&self, age: Duration) {
        let mut last = match self.last.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Another thread may have taken the sample before this one got the lock.
        if micros(age) < self.due.load(Ordering::Relaxed) {
            return;
        }
        // The next sample is due even if this one fails, so that an unreadable `/proc` is not read
        // on every check.
        self.due
            .store(micros(age + BETWEEN_SAMPLES), Ordering::Relaxed);
        let now = (self.read)();
        let percent = match (*last, now) {
            (Some(before), Some(now)) => share(before, now),
            _ => None,
        };
        // The first readable sample after unreadable ones has no predecessor, which is not a failure.
        if percent.is_none() && (now.is_none() || last.is_some()) {
            log_unknown_once();
        }
        self.percent
            .store(percent.unwrap_or(UNKNOWN), Ordering::Relaxed);
        *last = now;
    }
}

/// The percentage of ticks in use between two samples; `None` if no tick has passed.
///
/// `iowait` of `/proc/stat` can decrease, so the used ticks are subtracted with saturation and cut
/// to all ticks.
fn share(before: Ticks, now: Ticks) -> Option<u64> {
    let all = now.all.checked_sub(before.all)?;
    let used = now.used.saturating_sub(before.used).min(all);
    used.saturating_mul(100).checked_div(all)
}

/// Warns once in the process that `/proc` cannot be read.
fn log_unknown_once() {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(
            "the use of processors cannot be read from /proc: its signals say that there is no room"
        );
    });
}
