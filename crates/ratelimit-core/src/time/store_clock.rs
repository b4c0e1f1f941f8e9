//! The time of a shared store, estimated from its replies.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use crate::time::{Clock, Timestamp, micros};

/// Estimates the time of a shared store between its replies, by the monotonic clock of the process.
///
/// - The estimate is behind the store by the time that the last reply took to arrive. So no budget recovers early.
/// - A system clock that is wrong, or that is set during an outage, changes nothing.
/// - Before the first reply it shows the system time.
#[derive(Debug)]
pub(crate) struct StoreClock {
    /// The manual clock of the store, in tests: it needs no estimate.
    manual: Option<Clock>,
    /// Ages are counted from here.
    since: Instant,
    /// The store's time at `since`, in microseconds; 0 before the first reply.
    base: AtomicU64,
}

impl StoreClock {
    /// A clock for a store that decides on the manual `clock`, or on one of its own.
    pub(crate) fn new(manual: Option<Clock>) -> StoreClock {
        StoreClock {
            manual,
            since: Instant::now(),
            base: AtomicU64::new(0),
        }
    }

    /// Takes up the time of a reply that was received at `received`.
    #[inline]
    pub(crate) fn observe(&self, reply: Timestamp, received: Instant) {
        let age = micros(received.saturating_duration_since(self.since));
        let base = reply.as_micros().saturating_sub(age);
        self.base.store(base, Ordering::Relaxed);
    }

    /// The estimate of the store's present time.
    ///
    /// It can step back by the difference in travel time of two replies. States that are then ahead of the clock stand
    /// still until the clock reaches them (law 8).
    pub(crate) fn now(&self) -> Timestamp {
        if let Some(manual) = &self.manual {
            return manual.now();
        }
        match self.base.load(Ordering::Relaxed) {
            0 => Clock::system().now(),
            base => Timestamp::from_micros(base) + self.since.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_estimate_continues_from_the_last_reply() {
        let clock = StoreClock::new(None);
        let received = Instant::now();

        clock.observe(Timestamp::from_secs(600), received);

        let estimate = clock.now().since(Timestamp::from_secs(600));
        assert!(estimate <= received.elapsed() + Duration::from_micros(2));
    }

    #[test]
    fn before_the_first_reply_it_is_the_system_time() {
        let clock = StoreClock::new(None);
        let system = Clock::system().now();

        assert!(clock.now().since(system) < Duration::from_secs(60));
        assert!(system.since(clock.now()) < Duration::from_secs(60));
    }

    #[test]
    fn a_manual_clock_needs_no_reply() {
        let manual = Clock::manual(Timestamp::from_secs(600));
        let clock = StoreClock::new(Some(manual.clone()));
        manual.advance(Duration::from_secs(60));

        assert_eq!(clock.now(), Timestamp::from_secs(660));
    }
}
