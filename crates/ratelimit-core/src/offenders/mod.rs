//! The most denied keys of each policy.

mod log;
mod space_saving;
mod window;

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{
        Arc, Mutex, OnceLock, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ahash::RandomState;

use crate::offenders::{log::LogInterval, window::RotatingWindow};
use crate::{
    key::Key,
    sync::{lock, read, write},
    time::{Clock, Timestamp},
};

/// Counted keys of one policy in one window, unless set.
const DEFAULT_CAPACITY: usize = 100;
/// The length of a window, unless set.
const DEFAULT_WINDOW: Duration = Duration::from_secs(600);
/// The most policies that are counted. A service may make policies at run time, and memory must stay
/// bounded.
const MAX_POLICIES: usize = 1_024;

/// A key that was denied often. The true number of denials lies between `denied - error` and `denied`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offender {
    /// The denied key, or its [fingerprint](Key::fingerprint).
    pub key: Key,
    /// The estimated number of denials, an upper bound.
    pub denied: u64,
    /// The most by which `denied` may be too high; 0 for an exact count.
    pub error: u64,
}

/// The form in which keys are shown to people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyDisplay {
    /// The encoded key.
    #[default]
    Plain,
    /// The [fingerprint](Key::fingerprint), for keys that identify people.
    Fingerprint,
}

/// A counter of the most denied keys of each policy, in bounded memory. Clones share their counts.
///
/// - A [`Limiter`](crate::Limiter) has one, which counts 100 keys per policy.
/// - Counts are those of the space-saving sketch (Metwally et al., heavy hitters). Each comes with the most
///   by which it may be too high. A key with more than one in `capacity` of the denials of a window is
///   never missed.
/// - A report covers the present and the previous window: with the default of ten minutes, the last ten to
///   twenty minutes. A key without denials disappears after two windows.
/// - Denials in shadow mode are counted by themselves, see [`top_shadow`](Offenders::top_shadow).
/// - At most 1,024 policies are counted; the first one beyond is logged.
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
#[doc(alias = "heavy hitters")]
#[doc(alias = "top talkers")]
#[derive(Clone)]
pub struct Offenders {
    /// The settings; a clone may show keys in another form.
    settings: OffenderSettings,
    /// The counts; `None` when counting is off.
    counts: Option<Arc<DenialCounts>>,
}

/// The counts of enforced denials, and of those in shadow mode.
#[derive(Default)]
struct DenialCounts {
    enforced: TrackedPolicies,
    shadow: TrackedPolicies,
}

/// The settings of a counter.
#[derive(Clone, Debug)]
struct OffenderSettings {
    /// Keys that each sketch counts, at least 1.
    capacity: usize,
    /// The length of a window.
    window: Duration,
    /// The clock of the windows.
    clock: Clock,
    /// The form of keys in reports.
    redaction: KeyDisplay,
    /// When to log, and how many keys; `None` logs nothing.
    lines: Option<LogInterval>,
    /// Whether the log shows keys, and not their fingerprints. Clones share it.
    logs_plain_keys: Arc<AtomicBool>,
}

/// The counts of all policies.
#[derive(Default)]
struct TrackedPolicies {
    /// One lock for each policy below a shared lock: denials of different policies do not wait for each
    /// other.
    by_name: RwLock<HashMap<Arc<str>, Mutex<RotatingWindow>, RandomState>>,
    /// Set once the warning about too many policies was logged.
    too_many: OnceLock<()>,
}

impl Offenders {
    /// A counter of 100 keys per policy, in windows of ten minutes. It logs nothing.
    pub fn new() -> Offenders {
        let settings = OffenderSettings {
            capacity: DEFAULT_CAPACITY,
            window: DEFAULT_WINDOW,
            clock: Clock::system(),
            redaction: KeyDisplay::Plain,
            lines: None,
            logs_plain_keys: Arc::default(),
        };
        Offenders {
            settings,
            counts: Some(Arc::default()),
        }
    }

    /// A counter that counts nothing.
    ///
    /// ```
    /// use ratelimit_core::{Limiter, Offenders};
    ///
    /// let limiter = Limiter::in_memory().track_offenders(Offenders::off());
    /// assert!(limiter.policies_with_offenders().is_empty());
    /// ```
    pub fn off() -> Offenders {
        Offenders {
            counts: None,
            ..Offenders::new()
        }
    }

    /// The same counter without counts. One that is off stays off.
    fn without_counts(self) -> Offenders {
        Offenders {
            settings: self.settings,
            counts: self.counts.map(|_| Arc::default()),
        }
    }

    /// Sets the keys counted per policy, at least 1, and starts with fresh counts.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Offenders {
        self.settings.capacity = capacity.max(1);
        self.without_counts()
    }

    /// Sets the length of a window, and starts with fresh counts.
    #[must_use]
    pub fn window(mut self, window: Duration) -> Offenders {
        self.settings.window = window;
        self.without_counts()
    }

    /// Sets the clock of the windows, and starts with fresh counts.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Offenders {
        self.settings.clock = clock;
        self.without_counts()
    }

    /// Sets the form of keys in reports; [`KeyDisplay::Plain`] unless set. The counts stay.
    ///
    /// ```
    /// use ratelimit_core::{KeyDisplay, Offenders};
    ///
    /// let private = Offenders::new().key_display(KeyDisplay::Fingerprint);
    /// ```
    #[must_use]
    pub fn key_display(mut self, redaction: KeyDisplay) -> Offenders {
        self.settings.redaction = redaction;
        self
    }

    /// Logs how many hits a policy denied and its `most` worst keys, at most once in `every`.
    ///
    /// A line is written by a denial, not by a timer: a policy that denies nothing logs nothing. Keys are
    /// shown by their fingerprint unless [`log_key_display`](Offenders::log_key_display) changes it.
    ///
    /// ```
    /// use ratelimit_core::Offenders;
    /// use std::time::Duration;
    ///
    /// let offenders = Offenders::new().log_every(Duration::from_secs(60), 5);
    /// ```
    #[must_use]
    pub fn log_every(mut self, every: Duration, most: usize) -> Offenders {
        self.settings.lines = Some(LogInterval { every, most });
        self
    }

    /// Sets the form of keys in the log; [`KeyDisplay::Fingerprint`] unless set.
    ///
    /// [`Limiter::set_log_key_display`](crate::Limiter::set_log_key_display) changes it later.
    #[must_use]
    pub fn log_key_display(mut self, display: KeyDisplay) -> Offenders {
        self.settings.logs_plain_keys = Arc::default();
        self.set_log_key_display(display);
        self
    }

    /// Changes the form of keys in the log, for all clones.
    pub(crate) fn set_log_key_display(&self, display: KeyDisplay) {
        let is_plain = display == KeyDisplay::Plain;
        self.settings
            .logs_plain_keys
            .store(is_plain, Ordering::Relaxed);
    }

    /// A key in the form of the log.
    pub(crate) fn logged_key<'k>(&self, key: &'k Key) -> Cow<'k, Key> {
        match self.log_display() {
            KeyDisplay::Plain => Cow::Borrowed(key),
            KeyDisplay::Fingerprint => Cow::Owned(key.fingerprint()),
        }
    }

    fn log_display(&self) -> KeyDisplay {
        if self.settings.logs_plain_keys.load(Ordering::Relaxed) {
            KeyDisplay::Plain
        } else {
            KeyDisplay::Fingerprint
        }
    }

    /// The `most` most denied keys of a policy, the worst first; empty for a policy without denials.
    ///
    /// [`Limiter::offenders`](crate::Limiter::offenders) calls it. Use it directly on a clone that the
    /// application kept:
    ///
    /// ```
    /// use ratelimit_core::{Limiter, Offenders};
    ///
    /// let offenders = Offenders::new();
    /// let limiter = Limiter::in_memory().track_offenders(offenders.clone());
    /// assert!(offenders.top("login", 10).is_empty());
    /// ```
    pub fn top(&self, policy: &str, most: usize) -> Vec<Offender> {
        self.top_of(|counts| &counts.enforced, policy, most)
    }

    /// The keys that a policy in shadow mode would have denied most, the worst first. [`top`](Self::top) has none of
    /// these denials.
    pub fn top_shadow(&self, policy: &str, most: usize) -> Vec<Offender> {
        self.top_of(|counts| &counts.shadow, policy, most)
    }

    /// The most denied keys of a policy in some counts.
    fn top_of(
        &self,
        counts: impl FnOnce(&DenialCounts) -> &TrackedPolicies,
        policy: &str,
        most: usize,
    ) -> Vec<Offender> {
        let now = self.settings.clock.now();
        let policies = self.counts.as_deref().map(counts);
        let worst =
            policies.and_then(|policies| policies.with(policy, |recent| recent.top(most, now)));
        redacted(worst.unwrap_or_default(), self.settings.redaction)
    }

    /// The names of the policies with denials in the present or the previous window, enforced or not, sorted.
    ///
    /// A policy whose windows are empty keeps its memory, and is left out here.
    pub fn policies(&self) -> Vec<String> {
        let now = self.settings.clock.now();
        let counts = self
            .counts
            .iter()
            .flat_map(|counts| [&counts.enforced, &counts.shadow]);
        let names = counts.flat_map(|policies| policies.names(now));
        let names: BTreeSet<String> = names.collect();
        names.into_iter().collect()
    }

    /// Forgets all counts, for all clones.
    pub fn clear(&self) {
        if let Some(counts) = &self.counts {
            write(&counts.enforced.by_name).clear();
            write(&counts.shadow.by_name).clear();
        }
    }

    /// Counts a denied hit. It does not allocate for a key that is counted already.
    ///
    /// `decided_at` returns the time of the decision if the store shares the clock of this counter; the
    /// clock is then not read again. The log line, if one is due, is written after the counts are unlocked,
    /// so that a slow subscriber does not block other denials.
    pub(crate) fn denied(
        &self,
        policy: &Arc<str>,
        key: &Key,
        is_enforced: bool,
        decided_at: impl FnOnce(&Clock) -> Option<Timestamp>,
    ) {
        let Some(counts) = &self.counts else {
            return;
        };
        let policies = if is_enforced {
            &counts.enforced
        } else {
            &counts.shadow
        };
        let clock = &self.settings.clock;
        // Reading the clock once per denial is enough: the memory store has just read the same one.
        let now = decided_at(clock).unwrap_or_else(|| clock.now());
        let count = |recent: &mut RotatingWindow| {
            recent.denied(key, now);
            self.due_line(recent, now)
        };
        // The shared lock suffices for every policy but a new one, which `admit` adds under the exclusive
        // lock.
        let line = match policies.with(policy, count) {
            Some(line) => line,
            None if policies.admit(policy, &self.settings, now) => {
                policies.with(policy, count).flatten()
            }
            None => None,
        };
        if let Some((denied, worst)) = line {
            let worst = redacted(worst, self.log_display());
            log::line(policy, !is_enforced, denied, &worst);
        }
    }

    /// The denials since the last line, and the keys to log now. They are gathered while the counts are locked; the line is written after the
    /// unlock.
    fn due_line(
        &self,
        recent: &mut RotatingWindow,
        now: Timestamp,
    ) -> Option<(u64, Vec<Offender>)> {
        let lines = self.settings.lines?;
        let denied = recent.due_line(lines.every, now)?;
        Some((denied, recent.top(lines.most, now)))
    }
}

impl TrackedPolicies {
    /// Runs `act` on the counts of a policy, if there are any.
    fn with<T>(&self, policy: &str, act: impl FnOnce(&mut RotatingWindow) -> T) -> Option<T> {
        let by_name = read(&self.by_name);
        by_name.get(policy).map(|recent| act(&mut lock(recent)))
    }

    /// The names of the policies with denials in the present or the previous window.
    fn names(&self, now: Timestamp) -> Vec<String> {
        let by_name = read(&self.by_name);
        let denied = by_name
            .iter()
            .filter(|(_, recent)| !lock(recent).is_empty(now));
        denied.map(|(name, _)| name.to_string()).collect()
    }

    /// Adds counts for a policy, unless there are too many policies.
    fn admit(&self, policy: &Arc<str>, settings: &OffenderSettings, now: Timestamp) -> bool {
        let mut by_name = write(&self.by_name);
        // Another thread may have added this policy between the two locks.
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

/// The same offenders with their keys in the given form.
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
        match self.counts {
            Some(_) => self.settings.fmt(f),
            None => f.write_str("Offenders::off"),
        }
    }
}

#[cfg(test)]
mod tests;
