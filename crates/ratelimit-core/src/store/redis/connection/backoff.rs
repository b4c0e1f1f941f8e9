//! How often a server is tried again.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};

/// No more attempts than this in any second.
const MOST_A_SECOND: usize = 4;
const SECOND: Duration = Duration::from_secs(1);

/// Before the first attempt after a loss: those who lost the same server do not come back at once.
const SPREAD: Duration = Duration::from_millis(50);
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
/// With a quarter more by chance it is one second.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);

/// The moments at which a server is tried again.
#[derive(Debug)]
pub(in crate::store::redis) struct Backoff {
    /// The last attempts, the oldest first.
    made: VecDeque<Instant>,
    /// What the next attempt waits for after the last; nothing yet before the first.
    pause: Option<Duration>,
}

impl Backoff {
    pub(in crate::store::redis) const fn new() -> Backoff {
        Backoff {
            made: VecDeque::new(),
            pause: None,
        }
    }

    /// How long to wait before the next attempt, which then counts as made.
    pub(in crate::store::redis) fn next_delay(&mut self, now: Instant) -> Duration {
        let pause = self
            .pause
            .map_or(Duration::ZERO, |pause| pause + jitter() * pause / 1024);
        self.pause = Some(match self.pause {
            Some(pause) if pause >= SHORTEST_PAUSE => (pause * 3 / 2).min(LONGEST_PAUSE),
            _ => SHORTEST_PAUSE,
        });
        let room = match self.made.front() {
            Some(&oldest) if self.made.len() == MOST_A_SECOND => {
                self.made.pop_front();
                (oldest + SECOND).saturating_duration_since(now)
            }
            _ => Duration::ZERO,
        };
        let wait = pause.max(room);
        self.made.push_back(now + wait);
        wait
    }

    /// The last attempt succeeded: when the server is lost again, it is tried soon.
    pub(in crate::store::redis) fn reset(&mut self) {
        self.pause = Some(jitter() * SPREAD / 256);
    }
}

/// A number from 0 to 255.
fn jitter() -> u32 {
    // Each `RandomState` has keys of its own, which is all the chance that is needed here.
    u32::try_from(RandomState::new().hash_one(0) % 256).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_most_four_attempts_in_any_second() {
        let mut pace = Backoff::new();
        let start = Instant::now();
        let mut now = start;
        let mut attempts = Vec::new();
        for attempt in 0..200 {
            now += pace.next_delay(now);
            attempts.push(now);
            if attempt % 7 == 0 {
                pace.reset();
            }
        }
        for window in attempts.windows(5) {
            assert!(window[4] - window[0] >= Duration::from_secs(1));
        }
    }

    #[test]
    fn a_healed_server_is_tried_within_a_second() {
        let mut pace = Backoff::new();
        let mut now = Instant::now();
        for _ in 0..50 {
            let wait = pace.next_delay(now);
            assert!(wait <= LONGEST_PAUSE * 5 / 4);
            now += wait + Duration::from_millis(100);
        }
    }

    #[test]
    fn a_server_that_was_lost_once_is_tried_at_once() {
        let mut pace = Backoff::new();
        let start = Instant::now();
        pace.next_delay(start);
        pace.reset();

        assert!(pace.next_delay(start + SECOND) <= SPREAD * 5 / 4);
        assert!(pace.next_delay(start + SECOND * 2) >= SHORTEST_PAUSE);
    }
}
