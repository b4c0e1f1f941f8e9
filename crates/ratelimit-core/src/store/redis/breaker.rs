//! Notices that a server has stopped answering.

use std::sync::atomic::{AtomicU32, Ordering};

/// So many calls in a row without an answer in time mean that the server is gone.
pub(super) const MOST_TIMEOUTS: u32 = 5;

/// Counts calls without an answer; one that is answered starts the count anew.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    timeouts: AtomicU32,
}

impl Breaker {
    pub(super) fn answered(&self) {
        if self.timeouts.load(Ordering::Relaxed) > 0 {
            self.timeouts.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a call that was not answered in time; true when that was one too many.
    pub(super) fn timed_out(&self) -> bool {
        self.timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_TIMEOUTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_five_timeouts_in_a_row_and_an_answer_starts_anew() {
        let breaker = Breaker::default();
        assert!((0..4).all(|_| !breaker.timed_out()));

        breaker.answered();

        assert!((0..4).all(|_| !breaker.timed_out()));
        assert!(breaker.timed_out());
    }
}
