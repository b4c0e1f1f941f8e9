//! The circuit breaker of a connection.

use std::sync::atomic::{AtomicU32, Ordering};

/// A probe is demanded after this many calls in a row without a reply in time.
///
/// Fewer would demand it for a single slow command of another client. More would make more callers
/// wait for their whole timeout.
pub(in crate::store::redis) const MAX_TIMEOUTS: u32 = 5;

/// Counts calls in a row without a reply in time.
///
/// - A single call and a batch both count once. Hits in a batch do not count by themselves.
/// - The count opens nothing: calls may have waited for each other. It demands a probe on a new
///   connection, and the breaker opens if that is not answered in time, or if the probe before it
///   was and no call has been since.
/// - An open breaker has no half-open state of its own: the connection is taken out of use, and the
///   handshake of the next one is the probe.
/// - It belongs to one connection. The next connection starts with a count of 0.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct TimeoutBreaker {
    /// Calls without a reply in time since the last reply, or since a probe passed; [`PROBED`] is added then.
    timeouts: AtomicU32,
}

/// A probe has passed since the last reply in time.
const PROBED: u32 = 1 << 31;

impl TimeoutBreaker {
    /// Records a reply in time.
    ///
    /// Fast path: a load alone while the count is 0, so that calls of several threads share the
    /// cache line. A timeout between the load and the store can be lost, which delays the opening
    /// by one call.
    pub(in crate::store::redis) fn reset(&self) {
        if self.timeouts.load(Ordering::Relaxed) > 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a call without a reply in time. Returns whether a probe is due.
    ///
    /// Every call from the fifth on returns true. Demanding a probe twice leads to one.
    pub(in crate::store::redis) fn record_timeout(&self) -> bool {
        is_due(self.timeouts.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Whether no reply has come in time since the probe was demanded.
    pub(in crate::store::redis) fn is_probe_due(&self) -> bool {
        is_due(self.timeouts.load(Ordering::Relaxed))
    }

    /// Records that a probe was answered. The count starts anew.
    pub(in crate::store::redis) fn record_probe(&self) {
        self.timeouts.store(PROBED, Ordering::Relaxed);
    }

    /// Whether no call was answered in time since the last probe was. The connection is slow then, and not the server.
    pub(in crate::store::redis) fn has_probe_passed(&self) -> bool {
        self.timeouts.load(Ordering::Relaxed) >= PROBED
    }
}

/// Whether so many timeouts demand a probe.
fn is_due(timeouts: u32) -> bool {
    timeouts & !PROBED >= MAX_TIMEOUTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_due_after_five_timeouts_in_a_row_and_an_answer_starts_anew() {
        let breaker = TimeoutBreaker::default();
        assert!((0..4).all(|_| !breaker.record_timeout()));

        breaker.reset();

        assert!((0..4).all(|_| !breaker.record_timeout()));
        assert!(breaker.record_timeout());
    }

    #[test]
    fn a_probe_that_passed_is_remembered_until_a_call_is_answered() {
        let breaker = TimeoutBreaker::default();
        assert!(!breaker.has_probe_passed());

        breaker.record_probe();

        assert!((0..4).all(|_| !breaker.record_timeout()));
        assert!(breaker.record_timeout() && breaker.is_probe_due());
        assert!(breaker.has_probe_passed());
        breaker.reset();
        assert!(!breaker.is_probe_due() && !breaker.has_probe_passed());
    }
}
