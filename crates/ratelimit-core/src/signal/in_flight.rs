//! Requests in flight, counted by guards.

use std::sync::atomic::Ordering;

use super::{Signal, Source};

/// A request in flight, until it is dropped.
#[derive(Debug)]
#[must_use = "the request leaves when its guard is dropped"]
pub struct InFlight {
    /// Absent when the signal counts something else.
    counted_by: Option<Signal>,
}

impl InFlight {
    pub(super) fn entered(signal: &Signal) -> InFlight {
        let Source::InFlight(count) = &signal.0.source else {
            return InFlight { counted_by: None };
        };
        count.fetch_add(1, Ordering::Relaxed);
        InFlight {
            counted_by: Some(signal.clone()),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let signal = self.counted_by.as_ref();
        if let Some(Source::InFlight(count)) = signal.map(|signal| &signal.0.source) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
