//! The denials of one policy, of this window and the one before.

use std::{cmp::Reverse, mem, time::Duration};

use crate::offenders::{
    Offender,
    space_saving::{CountEstimate, SpaceSaving},
};
use crate::{key::Key, time::Timestamp};

/// Two sketches: one of the current window, one of the window before.
///
/// What is reported covers between one window and two, so a key that calmed down is gone after two.
#[derive(Debug)]
pub(super) struct RotatingWindow {
    window: Duration,
    began: Timestamp,
    current: SpaceSaving,
    previous: SpaceSaving,
    last_line: Timestamp,
}

impl RotatingWindow {
    pub(super) fn new(capacity: usize, window: Duration, now: Timestamp) -> RotatingWindow {
        RotatingWindow {
            window,
            began: now,
            current: SpaceSaving::new(capacity),
            previous: SpaceSaving::new(capacity),
            last_line: now,
        }
    }

    pub(super) fn denied(&mut self, key: &Key, now: Timestamp) {
        self.roll(now);
        self.current.count(key);
    }

    /// The most denied keys, at most `most` of them, the worst first.
    pub(super) fn top(&mut self, most: usize, now: Timestamp) -> Vec<Offender> {
        self.roll(now);
        let now_denied = self.current.iter();
        let now_denied = now_denied.map(|(key, count)| total(key, count, self.previous.get(key)));
        let before = self.previous.iter();
        let only_before = before.filter(|(key, _)| !self.current.contains(key));
        let only_before = only_before.map(|(key, count)| total(key, count, self.current.get(key)));
        let mut all: Vec<Offender> = now_denied.chain(only_before).collect();
        all.sort_by(|one, other| one.rank().cmp(&other.rank()));
        all.truncate(most);
        all
    }

    pub(super) fn is_empty(&mut self, now: Timestamp) -> bool {
        self.roll(now);
        self.current.is_empty() && self.previous.is_empty()
    }

    /// Whether a line is due; asking again at once, it is not.
    pub(super) fn is_line_due(&mut self, every: Duration, now: Timestamp) -> bool {
        // A clock that stepped back does not silence the lines until it has caught up.
        let is_due = now < self.last_line || now.since(self.last_line) >= every;
        if is_due {
            self.last_line = now;
        }
        is_due
    }

    fn roll(&mut self, now: Timestamp) {
        // A clock that stepped back does not stretch the window until it has caught up.
        self.began = self.began.min(now);
        let age = now.since(self.began);
        if age < self.window {
            return;
        }
        mem::swap(&mut self.current, &mut self.previous);
        self.current.clear();
        let is_long_ago = age.saturating_sub(self.window) >= self.window;
        if is_long_ago {
            self.previous.clear();
        }
        self.began = if is_long_ago {
            now
        } else {
            self.began + self.window
        };
    }
}

fn total(key: &Key, one: CountEstimate, other: CountEstimate) -> Offender {
    Offender {
        key: key.clone(),
        denied: one.count + other.count,
        error: one.error + other.error,
    }
}

impl Offender {
    fn rank(&self) -> (Reverse<u64>, u64, &Key) {
        (Reverse(self.denied), self.error, &self.key)
    }
}
