//! How often something is tried again, and how often it is said.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::Mutex,
    sync::PoisonError,
    time::{Duration, Instant},
};

/// Never closer together than this: four attempts a second.
const SHORTEST_PAUSE: Duration = Duration::from_millis(260);
/// Short enough that a healed server is found within a second, connecting included.
const LONGEST_PAUSE: Duration = Duration::from_millis(600);

/// The moments at which a server is tried again.
#[derive(Debug)]
pub(super) struct Pace {
    last: Option<Instant>,
    pause: Duration,
}

impl Pace {
    pub(super) const fn new() -> Pace {
        Pace {
            last: None,
            pause: SHORTEST_PAUSE,
        }
    }

    /// How long to wait before the next attempt, which then counts as made.
    pub(super) fn next_attempt(&mut self, now: Instant) -> Duration {
        let Some(last) = self.last else {
            self.last = Some(now);
            return Duration::ZERO;
        };
        let wait = (last + jittered(self.pause)).saturating_duration_since(now);
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
        self.last = Some(now + wait);
        wait
    }

    /// An attempt succeeded: the next begins a new series.
    pub(super) fn succeeded(&mut self) {
        self.pause = SHORTEST_PAUSE;
    }
}

/// Up to a quarter more, so that instances that failed together do not come back together.
fn jittered(pause: Duration) -> Duration {
    // Each `RandomState` has keys of its own, which is all the chance that is needed here.
    let chance = u32::try_from(RandomState::new().hash_one(0) % 256).unwrap_or(0);
    pause + pause * chance / 1024
}

/// Lets something be said once a second.
#[derive(Debug, Default)]
pub(super) struct OnceASecond(Mutex<Option<Instant>>);

impl OnceASecond {
    pub(super) fn may_speak(&self) -> bool {
        let now = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = last.is_none_or(|last| now - last >= Duration::from_secs(1));
        if silent {
            *last = Some(now);
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_most_four_attempts_in_any_second() {
        let mut pace = Pace::new();
        let start = Instant::now();
        let mut now = start;
        let mut attempts = Vec::new();
        for attempt in 0..200 {
            now += pace.next_attempt(now);
            attempts.push(now);
            if attempt % 7 == 0 {
                pace.succeeded();
            }
        }
        for window in attempts.windows(5) {
            assert!(window[4] - window[0] >= Duration::from_secs(1));
        }
    }

    #[test]
    fn a_healed_server_is_tried_within_a_second() {
        let mut pace = Pace::new();
        let mut now = Instant::now();
        for _ in 0..50 {
            let wait = pace.next_attempt(now);
            assert!(wait <= LONGEST_PAUSE * 5 / 4);
            now += wait;
        }
    }
}
