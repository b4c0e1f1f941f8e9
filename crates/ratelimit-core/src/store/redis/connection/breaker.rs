//! The circuit breaker of a connection.

use std::sync::atomic::{AtomicU32, Ordering};

/// The breaker opens after this many calls in a row without a reply in time.
pub(in crate::store::redis) const MAX_TIMEOUTS: u32 = 5;

/// Counts calls in a row without a reply in time.
///
/// An open breaker has no half-open state of its own: the connection is taken out of use, and the handshake of the next
/// one is the probe.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct TimeoutBreaker {
    timeouts: AtomicU32,
}

impl TimeoutBreaker {
    pub(in crate::store::redis) fn reset(&self) {
        if self.timeouts.load(Ordering::Relaxed) > 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a call without a reply in time. Returns whether the breaker opens.
    pub(in crate::store::redis) fn record_timeout(&self) -> bool {
        self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_five_timeouts_in_a_row_and_an_answer_starts_anew() {
        let breaker = TimeoutBreaker::default();
        assert!((0..4).all(|_| !breaker.record_timeout()));

        breaker.reset();

        assert!((0..4).all(|_| !breaker.record_timeout()));
        assert!(breaker.record_timeout());
    }
}
