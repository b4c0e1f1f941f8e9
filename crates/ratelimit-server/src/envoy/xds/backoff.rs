//! Exponential backoff with jitter.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

const MIN_DELAY: Duration = Duration::from_millis(500);
/// The longest delay before jitter, which adds up to a quarter: 30 seconds in all.
const MAX_DELAY: Duration = Duration::from_secs(24);

/// The delays between attempts: from half a second, doubled each time, to 30 seconds.
///
/// Jitter adds up to a quarter, so that the instances of a service do not connect at the same moment.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Backoff {
        Backoff { next: MIN_DELAY }
    }

    /// The delay before the next attempt.
    pub(super) fn next_delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(MAX_DELAY);
        delay + jitter() * delay / 1024
    }

    /// Begins with the shortest delay again.
    pub(super) fn reset(&mut self) {
        *self = Backoff::new();
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
    fn delays_grow_from_half_a_second_to_thirty_seconds() {
        let mut backoff = Backoff::new();
        for expected in [500, 1_000, 2_000, 4_000, 8_000, 16_000, 24_000, 24_000] {
            let delay = backoff.next_delay();
            let expected = Duration::from_millis(expected);
            assert!(
                (expected..expected * 5 / 4).contains(&delay),
                "{expected:?} {delay:?}"
            );
            assert!(delay <= Duration::from_secs(30));
        }

        backoff.reset();

        assert!(backoff.next_delay() < Duration::from_millis(625));
    }

    #[test]
    fn two_servers_do_not_wait_equally_long() {
        let delays = || {
            let mut backoff = Backoff::new();
            std::array::from_fn::<_, 8, _>(|_| backoff.next_delay())
        };

        assert_ne!(delays(), delays());
    }
}
