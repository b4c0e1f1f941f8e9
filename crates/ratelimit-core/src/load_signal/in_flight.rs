//! Requests in flight, counted by guards.

use std::sync::atomic::Ordering;

use crate::load_signal::{LoadSignal, LoadSource};

/// A request in flight, until it is dropped.
#[derive(Debug)]
#[must_use = "the request leaves when its guard is dropped"]
pub struct InFlightGuard {
    /// Absent when the signal counts something else.
    counted_by: Option<LoadSignal>,
}

impl InFlightGuard {
    pub(super) fn entered(signal: &LoadSignal) -> InFlightGuard {
        let LoadSource::InFlightGuard(count) = &signal.0.source else {
            return InFlightGuard { counted_by: None };
        };
        count.fetch_add(1, Ordering::Relaxed);
        InFlightGuard {
            counted_by: Some(signal.clone()),
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let signal = self.counted_by.as_ref();
        if let Some(LoadSource::InFlightGuard(count)) = signal.map(|signal| &signal.0.source) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
