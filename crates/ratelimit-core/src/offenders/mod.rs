//! The most denied keys of each policy.

mod log;
mod space_saving;
mod window;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use ahash::RandomState;

use crate::offenders::{log::LogInterval, window::RotatingWindow};
use crate::{
    key::Key,
    time::{Clock, Timestamp},
};

const DEFAULT_CAPACITY: usize = 100;
const DEFAULT_WINDOW: Duration = Duration::from_secs(600);
const MAX_POLICIES: usize = 1_024;

/// A key that was denied often.
///
/// The true count lies between `denied - error` and `denied`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offender {
    /// Whose hits were denied, or its [fingerprint](Key::fingerprint).
    pub key: Key,
    /// How many, at most.
    pub denied: u64,
    /// By how much that may be too high.
    pub error: u64,
}

/// How keys are shown to people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyDisplay {
    /// As they are.
    #[default]
    Plain,
    /// By their [fingerprint](Key::fingerprint).
    Fingerprint,
}

/// Counts the most denied keys of each policy, in bounded memory; clones share their counts.
///
/// A [`Limiter`](crate::Limiter) has one, which remembers 100 keys for each policy. Keys are counted with
/// the space-saving sketch: each count comes with the most by which it may be too high, and a key
/// with more than one in 100 of a window's denials is never missed.
///
/// What is shown covers the current window and the one before, so between ten minutes and twenty:
/// counts are whole and exact within their bounds, and a key that calmed down is gone after two windows.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Offenders, Policy};
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let offenders = Offenders::new().capacity(20).window(Duration::from_secs(60));
/// let limiter = Limiter::in_memory().track_offenders(offenders);
/// let login = Policy::parse("login", "2/min")?;
/// let mallory = Key::new("mallory")?;
/// for _ in 0..5 {
///     let _ = limiter.check(&login, &mallory).await;
/// }
///
/// let worst = limiter.offenders("login", 10);
/// assert_eq!((&worst[0].key, worst[0].denied, worst[0].error), (&mallory, 3, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Offenders {
    settings: OffenderSettings,
    /// Absent when nothing is counted.
    policies: Option<Arc<TrackedPolicies>>,
}

#[derive(Clone, Debug)]
struct OffenderSettings {
    capacity: usize,
    window: Duration,
    clock: Clock,
    redaction: KeyDisplay,
    lines: Option<LogInterval>,
    line_redaction: KeyDisplay,
}

#[derive(Default)]
struct TrackedPolicies {
    by_name: RwLock<HashMap<Arc<str>, Mutex<RotatingWindow>, RandomState>>,
    too_many: OnceLock<()>,
}

impl Offenders {
    /// Counts 100 keys for each policy, in windows of ten minutes.
    pub fn new() -> Offenders {
        let settings = OffenderSettings {
            capacity: DEFAULT_CAPACITY,
            window: DEFAULT_WINDOW,
            clock: Clock::system(),
            redaction: KeyDisplay::Plain,
            lines: None,
            line_redaction: KeyDisplay::Fingerprint,
        };
        Offenders::from_settings(settings)
    }

    /// Counts nothing.
    pub fn off() -> Offenders {
        Offenders {
            policies: None,
            ..Offenders::new()
        }
    }

    fn from_settings(settings: OffenderSettings) -> Offenders {
        Offenders {
            settings,
            policies: Some(Arc::default()),
        }
    }

    /// Fresh counts of `capacity` keys for each policy, at least one.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Offenders {
        self.settings.capacity = capacity.max(1);
        Offenders::from_settings(self.settings)
    }

    /// Fresh counts in windows of this length.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Offenders {
        self.settings.window = window;
        Offenders::from_settings(self.settings)
    }

    /// Fresh counts whose windows follow `clock`.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Offenders {
        self.settings.clock = clock;
        Offenders::from_settings(self.settings)
    }

    /// How keys are shown to callers; as they are unless set.
    #[must_use]
    pub fn key_display(mut self, redaction: KeyDisplay) -> Offenders {
        self.settings.redaction = redaction;
        self
    }

    /// Logs the `most` worst keys of a policy when it denies a hit and its last line is `every` ago.
    ///
    /// There is no timer behind it: a policy that denies nothing logs nothing. Keys are shown by their
    /// fingerprint unless [`log_redaction`](Offenders::log_key_display) says otherwise.
    #[must_use]
    pub fn log_every(mut self, every: Duration, most: usize) -> Offenders {
        self.settings.lines = Some(LogInterval { every, most });
        self
    }

    /// How keys are shown in the log; by their fingerprint unless set.
    #[must_use]
    pub fn log_key_display(mut self, redaction: KeyDisplay) -> Offenders {
        self.settings.line_redaction = redaction;
        self
    }

    /// The most denied keys of a policy, at most `most` of them, the worst first.
    pub fn top(&self, policy: &str, most: usize) -> Vec<Offender> {
        let now = self.settings.clock.now();
        let worst = self.with(policy, |recent| recent.top(most, now));
        redacted(worst.unwrap_or_default(), self.settings.redaction)
    }

    /// The names of the policies that denied something lately, in order.
    pub fn policies(&self) -> Vec<String> {
        let Some(policies) = &self.policies else {
            return Vec::new();
        };
        let now = self.settings.clock.now();
        let by_name = policies.by_name.read();
        let by_name = by_name.unwrap_or_else(PoisonError::into_inner);
        let denied = by_name
            .iter()
            .filter(|(_, recent)| !lock(recent).is_empty(now));
        let mut names: Vec<String> = denied.map(|(name, _)| name.to_string()).collect();
        names.sort();
        names
    }

    /// Forgets all counts.
    pub fn clear(&self) {
        if let Some(policies) = &self.policies {
            let by_name = policies.by_name.write();
            by_name.unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Counts a denied hit; takes no memory for a key that is counted already.
    ///
    /// `decided_at` says when, where that is known by the clock that is read here.
    pub(crate) fn denied(
        &self,
        policy: &Arc<str>,
        key: &Key,
        decided_at: impl FnOnce(&Clock) -> Option<Timestamp>,
    ) {
        let Some(policies) = &self.policies else {
            return;
        };
        let clock = &self.settings.clock;
        let now = decided_at(clock).unwrap_or_else(|| clock.now());
        let count = |recent: &mut RotatingWindow| {
            recent.denied(key, now);
            self.due_line(recent, now)
        };
        let line = match self.with(policy, count) {
            Some(line) => line,
            None if policies.admit(policy, &self.settings, now) => {
                self.with(policy, count).flatten()
            }
            None => None,
        };
        if let Some(worst) = line {
            log::line(policy, &redacted(worst, self.settings.line_redaction));
        }
    }

    /// What is to be logged now, gathered while the counts are locked and written afterwards.
    fn due_line(&self, recent: &mut RotatingWindow, now: Timestamp) -> Option<Vec<Offender>> {
        let lines = self.settings.lines?;
        let is_due = recent.is_line_due(lines.every, now);
        is_due.then(|| recent.top(lines.most, now))
    }

    /// Runs `act` on the counts of a policy, if it has some.
    fn with<T>(&self, policy: &str, act: impl FnOnce(&mut RotatingWindow) -> T) -> Option<T> {
        let by_name = self.policies.as_ref()?.by_name.read();
        let by_name = by_name.unwrap_or_else(PoisonError::into_inner);
        by_name.get(policy).map(|recent| act(&mut lock(recent)))
    }
}

impl TrackedPolicies {
    /// Makes room for a policy's counts, unless there are too many policies.
    fn admit(&self, policy: &Arc<str>, settings: &OffenderSettings, now: Timestamp) -> bool {
        let by_name = self.by_name.write();
        let mut by_name = by_name.unwrap_or_else(PoisonError::into_inner);
        if by_name.len() >= MAX_POLICIES && !by_name.contains_key(policy) {
            self.too_many.get_or_init(|| {
                tracing::warn!("offenders are counted for {MAX_POLICIES} policies and no more");
            });
            return false;
        }
        let fresh = || Mutex::new(RotatingWindow::new(settings.capacity, settings.window, now));
        by_name.entry(Arc::clone(policy)).or_insert_with(fresh);
        true
    }
}

/// The counts, also after another thread panicked: nothing between lock and unlock can.
fn lock(recent: &Mutex<RotatingWindow>) -> MutexGuard<'_, RotatingWindow> {
    recent.lock().unwrap_or_else(PoisonError::into_inner)
}

fn redacted(mut worst: Vec<Offender>, redaction: KeyDisplay) -> Vec<Offender> {
    if redaction == KeyDisplay::Fingerprint {
        for offender in &mut worst {
            offender.key = offender.key.fingerprint();
        }
    }
    worst
}

impl Default for Offenders {
    fn default() -> Offenders {
        Offenders::new()
    }
}

impl fmt::Debug for Offenders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policies {
            Some(_) => self.settings.fmt(f),
            None => f.write_str("Offenders::off"),
        }
    }
}

#[cfg(test)]
mod tests;
