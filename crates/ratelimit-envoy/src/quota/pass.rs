//! The state of one pass over many buckets.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::quota::target::StoreFailure;

/// Calls in succession without an answer, after which a pass makes no more.
const MAX_FAILURES: u32 = 3;

/// The state of one pass over many buckets: when the store does not answer, the other calls are not made.
#[derive(Debug, Default)]
pub struct PassState {
    /// Calls that the store did not answer since its last answer.
    failures: AtomicU32,
}

impl PassState {
    /// Whether no more calls are made in this pass.
    pub fn is_away(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= MAX_FAILURES
    }

    /// Makes no more calls in this pass.
    pub fn stop(&self) {
        self.failures.store(MAX_FAILURES, Ordering::Relaxed);
    }

    /// Counts the result of a call. Returns whether the bucket can make another.
    pub(super) fn count(&self, result: Result<(), StoreFailure>) -> bool {
        match result {
            // A store that was found away stays so for the pass.
            _ if self.is_away() => false,
            // A call that the store refused says nothing about the calls of others.
            Ok(()) | Err(StoreFailure::Refused) => {
                self.failures.store(0, Ordering::Relaxed);
                true
            }
            Err(StoreFailure::Away) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_calls_without_an_answer_end_a_pass() {
        let pass = PassState::default();
        assert!(!pass.count(Err(StoreFailure::Away)));
        assert!(!pass.count(Err(StoreFailure::Away)));
        assert!(pass.count(Ok(())), "an answer begins anew");
        assert!(!pass.count(Err(StoreFailure::Away)));
        assert!(!pass.count(Err(StoreFailure::Away)));
        assert!(!pass.is_away());
        assert!(!pass.count(Err(StoreFailure::Away)));
        assert!(pass.is_away());
        assert!(!pass.count(Ok(())));
        assert!(pass.is_away());
    }

    #[test]
    fn a_refused_call_does_not_end_a_pass() {
        let pass = PassState::default();
        for _ in 0..10 {
            assert!(pass.count(Err(StoreFailure::Refused)));
        }
        assert!(!pass.is_away());
    }
}
