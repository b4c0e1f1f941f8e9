//! The denials of one policy in the present window and the previous one.

use std::{cmp::Reverse, mem, time::Duration};

use crate::offenders::{
    Offender,
    space_saving::{CountEstimate, SpaceSaving},
};
use crate::{key::Key, time::Timestamp};

/// Two sketches that rotate: one of the present window, one of the previous.
///
/// ```text
/// window      |---- previous ----|---- current ----|
/// report                                  ^ both sketches
/// rotation                                         ^ current becomes previous, previous is cleared
/// ```
///
/// A report covers one to two windows, so a key without denials disappears after two. One sketch
/// alone would either forget everything at the edge of a window or never forget.
#[derive(Debug)]
pub(super) struct RotatingWindow {
    /// The length of a window.
    window: Duration,
    /// The beginning of the present window.
    began: Timestamp,
    /// The denials since `began`.
    current: SpaceSaving,
    /// The denials of the window before.
    previous: SpaceSaving,
    /// The time of the last log line; at first that of the first denial.
    last_line: Timestamp,
    /// The denials since the last log line.
    unlogged: u64,
}

impl RotatingWindow {
    /// Empty windows, the present one beginning now.
    pub(super) fn new(capacity: usize, window: Duration, now: Timestamp) -> RotatingWindow {
        RotatingWindow {
            window,
            began: now,
            current: SpaceSaving::new(capacity),
            previous: SpaceSaving::new(capacity),
            last_line: now,
            unlogged: 0,
        }
    }

    /// Counts a denial in the present window.
    pub(super) fn denied(&mut self, key: &Key, now: Timestamp) {
        self.roll(now);
        self.current.count(key);
        self.unlogged += 1;
    }

    /// The `most` most denied keys of both windows, the worst first.
    ///
    /// A key that only one sketch counts may have been counted in the other up to its least count,
    /// so that is added to the count and to the error.
    pub(super) fn top(&mut self, most: usize, now: Timestamp) -> Vec<Offender> {
        self.roll(now);
        let now_denied = self.current.iter();
        let now_denied = now_denied.map(|(key, count)| total(key, count, self.previous.get(key)));
        let before = self.previous.iter();
        // A key in both sketches is counted above, with the sum of its counts.
        let only_before = before.filter(|(key, _)| !self.current.contains(key));
        let only_before = only_before.map(|(key, count)| total(key, count, self.current.get(key)));
        let mut all: Vec<Offender> = now_denied.chain(only_before).collect();
        all.sort_by(|one, other| one.rank().cmp(&other.rank()));
        all.truncate(most);
        all
    }

    /// Whether no key was denied in either window.
    pub(super) fn is_empty(&mut self, now: Timestamp) -> bool {
        self.roll(now);
        self.current.is_empty() && self.previous.is_empty()
    }

    /// The denials since the last log line, if a line is due. It then counts as written, so the next call returns `None`.
    pub(super) fn due_line(&mut self, every: Duration, now: Timestamp) -> Option<u64> {
        // A clock that stepped back must not suppress lines until it has caught up.
        let is_due = now < self.last_line || now.since(self.last_line) >= every;
        if !is_due {
            return None;
        }
        self.last_line = now;
        Some(mem::take(&mut self.unlogged))
    }

    /// Rotates the windows: the present one becomes the previous, or both are cleared after two
    /// windows.
    ///
    /// Nothing rotates by a timer. Every operation rotates first, so a report never shows an
    /// outdated window.
    fn roll(&mut self, now: Timestamp) {
        // A clock that stepped back must not prolong the window until it has caught up.
        self.began = self.began.min(now);
        let age = now.since(self.began);
        if age < self.window {
            return;
        }
        // The sketches are swapped and cleared, so that a rotation does not allocate.
        mem::swap(&mut self.current, &mut self.previous);
        self.current.clear();
        let is_long_ago = age.saturating_sub(self.window) >= self.window;
        if is_long_ago {
            self.previous.clear();
        }
        // A window begins where the last one ended, not at the time of this call, so that windows
        // do not drift.
        self.began = if is_long_ago {
            now
        } else {
            self.began + self.window
        };
    }
}

/// The sum of both windows; bounds add up.
fn total(key: &Key, one: CountEstimate, other: CountEstimate) -> Offender {
    Offender {
        key: key.clone(),
        denied: one.count + other.count,
        error: one.error + other.error,
    }
}

impl Offender {
    /// The order of a report: most denials first, then the smaller error, then the key.
    fn rank(&self) -> (Reverse<u64>, u64, &Key) {
        (Reverse(self.denied), self.error, &self.key)
    }
}
