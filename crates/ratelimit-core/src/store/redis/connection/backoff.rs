//! Exponential backoff with jitter for reconnects.
//!
//! The task of a [`ManagedConnection`](super::ManagedConnection) sleeps for each delay, and so does
//! the task that fetches the slot map of a cluster. A check never does.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};

/// Attempts in any second, whatever the delays. It bounds the handshakes at a server that accepts
/// connections and closes them at once.
const MAX_PER_SECOND: usize = 4;
/// The window of [`MAX_PER_SECOND`].
const SECOND: Duration = Duration::from_secs(1);

/// The first attempt after a lost connection is delayed by up to this much at random, so that the
/// instances of a service do not reconnect at the same moment. The common jitter adds a quarter: 62
/// ms at most.
const FIRST_JITTER: Duration = Duration::from_millis(50);
/// The delay after the first failed attempt, before jitter.
const MIN_DELAY: Duration = Duration::from_millis(250);
/// The longest delay before jitter, which adds up to a quarter: one second in all. A healed server
/// is found within that time.
const MAX_DELAY: Duration = Duration::from_millis(800);

/// The delays between attempts to connect.
///
/// - The first attempt of a task is not delayed.
/// - The delay grows by half with each failed attempt, from 250 ms to 800 ms, and jitter adds up to
///   a quarter: 250, 375, 562, 800 ms.
/// - There are at most four attempts in any second, also when connections succeed and break at
///   once.
/// - After a success the next delay is at most 62 ms, unless the bound of four applies.
#[derive(Debug)]
pub(in crate::store::redis) struct Backoff {
    /// The planned times of the last attempts, oldest first; at most [`MAX_PER_SECOND`].
    attempts: VecDeque<Instant>,
    /// The delay before the next attempt, without jitter. `None` before the first attempt.
    delay: Option<Duration>,
}

impl Backoff {
    /// A backoff whose first attempt is due at once.
    pub(in crate::store::redis) const fn new() -> Backoff {
        Backoff {
            attempts: VecDeque::new(),
            delay: None,
        }
    }

    /// Waits until the next attempt is due.
    ///
    /// Tokio's clock may be paused (`start_paused`), and then a sleep ends at once. The rest of the delay is spent on a
    /// thread, so a test does not flood the server with connections. Tokio does not advance a paused clock meanwhile.
    pub(in crate::store::redis) async fn wait(&mut self) {
        let started = Instant::now();
        let delay = self.next_delay(started);
        tokio::time::sleep(delay).await;
        let rest = delay.saturating_sub(started.elapsed());
        if !rest.is_zero() {
            let _ = tokio::task::spawn_blocking(move || std::thread::sleep(rest)).await;
        }
    }

    /// The delay before the next attempt. The caller sleeps for it and then connects.
    ///
    /// The attempt is counted at the end of its delay. A caller that sleeps longer makes fewer
    /// attempts than the bound allows, never more.
    fn next_delay(&mut self, now: Instant) -> Duration {
        let delay = self
            .delay
            .map_or(Duration::ZERO, |delay| delay + jitter() * delay / 1024);
        self.delay = Some(match self.delay {
            // A delay below the minimum is the random one after a success. The growth starts again
            // behind it.
            Some(delay) if delay >= MIN_DELAY => (delay * 3 / 2).min(MAX_DELAY),
            _ => MIN_DELAY,
        });
        let until_free = match self.attempts.front() {
            Some(&oldest) if self.attempts.len() == MAX_PER_SECOND => {
                self.attempts.pop_front();
                (oldest + SECOND).saturating_duration_since(now)
            }
            _ => Duration::ZERO,
        };
        let wait = delay.max(until_free);
        self.attempts.push_back(now + wait);
        wait
    }

    /// Records a success: the first attempt after the connection is lost comes soon.
    ///
    /// The list of attempts stays, so that a flapping server is still tried at most four times a
    /// second.
    pub(in crate::store::redis) fn reset(&mut self) {
        self.delay = Some(jitter() * FIRST_JITTER / 256);
    }
}

/// A random number from 0 to 255.
fn jitter() -> u32 {
    // `RandomState` has random keys, which is random enough for jitter and needs no further crate.
    u32::try_from(RandomState::new().hash_one(0) % 256).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_most_four_attempts_in_any_second() {
        let mut backoff = Backoff::new();
        let start = Instant::now();
        let mut now = start;
        let mut attempts = Vec::new();
        for attempt in 0..200 {
            now += backoff.next_delay(now);
            attempts.push(now);
            if attempt % 7 == 0 {
                backoff.reset();
            }
        }
        for window in attempts.windows(5) {
            assert!(window[4] - window[0] >= Duration::from_secs(1));
        }
    }

    #[test]
    fn a_healed_server_is_tried_within_a_second() {
        let mut backoff = Backoff::new();
        let mut now = Instant::now();
        for _ in 0..50 {
            let wait = backoff.next_delay(now);
            assert!(wait <= MAX_DELAY * 5 / 4);
            now += wait + Duration::from_millis(100);
        }
    }

    #[test]
    fn a_server_that_was_lost_once_is_tried_at_once() {
        let mut backoff = Backoff::new();
        let start = Instant::now();
        backoff.next_delay(start);
        backoff.reset();

        assert!(backoff.next_delay(start + SECOND) <= FIRST_JITTER * 5 / 4);
        assert!(backoff.next_delay(start + SECOND * 2) >= MIN_DELAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_does_not_make_attempts_come_faster() {
        let started = Instant::now();
        let mut backoff = Backoff::new();
        for _ in 0..5 {
            backoff.wait().await;
        }

        assert!(started.elapsed() >= SECOND);
    }
}
