//! Percent of all cores, measured by whoever asks.

use std::{
    sync::{
        Mutex, Once, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::time::micros;

const BETWEEN_SAMPLES: Duration = Duration::from_millis(250);
/// No percentage: nothing was measured yet, or cannot be.
const UNKNOWN: u64 = u64::MAX;

/// Ticks of all cores since the machine was started: those in use, and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticks {
    pub(super) used: u64,
    pub(super) all: u64,
}

/// The share of ticks in use between the last two samples.
pub(super) struct Cpu {
    read: Box<dyn Fn() -> Option<Ticks> + Send + Sync>,
    began: Instant,
    percent: AtomicU64,
    /// When the next sample is due, in microseconds since the beginning.
    due: AtomicU64,
    last: Mutex<Option<Ticks>>,
}

impl Cpu {
    pub(super) fn measured_by(read: impl Fn() -> Option<Ticks> + Send + Sync + 'static) -> Cpu {
        Cpu {
            last: Mutex::new(read()),
            read: Box::new(read),
            began: Instant::now(),
            percent: AtomicU64::new(UNKNOWN),
            due: AtomicU64::new(micros(BETWEEN_SAMPLES)),
        }
    }

    /// Whole percents, rounded down; nothing where they are not known.
    pub(super) fn percent(&self) -> Option<u64> {
        self.percent_at(self.began.elapsed())
    }

    pub(super) fn percent_at(&self, age: Duration) -> Option<u64> {
        if micros(age) >= self.due.load(Ordering::Relaxed) {
            self.sample(age);
        }
        let percent = self.percent.load(Ordering::Relaxed);
        (percent != UNKNOWN).then_some(percent)
    }

    /// Takes a sample, unless somebody else is about to.
    fn sample(&self, age: Duration) {
        let mut last = match self.last.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if micros(age) < self.due.load(Ordering::Relaxed) {
            return;
        }
        self.due
            .store(micros(age + BETWEEN_SAMPLES), Ordering::Relaxed);
        let now = (self.read)();
        let percent = match (*last, now) {
            (Some(before), Some(now)) => share(before, now),
            _ => None,
        };
        // A first sample after unreadable ones has nothing to be compared with yet.
        if percent.is_none() && (now.is_none() || last.is_some()) {
            log_unknown_once();
        }
        self.percent
            .store(percent.unwrap_or(UNKNOWN), Ordering::Relaxed);
        *last = now;
    }
}

/// The percentage of ticks between two samples that were in use.
fn share(before: Ticks, now: Ticks) -> Option<u64> {
    let all = now.all.checked_sub(before.all)?;
    let used = now.used.saturating_sub(before.used).min(all);
    used.saturating_mul(100).checked_div(all)
}

fn log_unknown_once() {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(
            "the use of processors cannot be read from /proc: its signals say that there is no room"
        );
    });
}
