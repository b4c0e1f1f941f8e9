//! The guard that counts a request in flight.

use std::sync::atomic::Ordering;

use crate::load_signal::{LoadSignal, LoadSource};

/// A request in flight until this guard is dropped, as [`LoadSignal::enter`] returns it.
///
/// - It keeps the signal alive.
/// - Move it into the response body to count the request until its last byte.
/// - A panic drops it as well, so the count cannot leak.
#[derive(Debug)]
#[must_use = "the request leaves when its guard is dropped"]
pub struct InFlightGuard {
    /// The signal that counts this request; `None` if it counts another load.
    counted_by: Option<LoadSignal>,
}

impl InFlightGuard {
    /// Counts the request, if the signal counts requests.
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
    /// Ends the request, once for each counted one.
    fn drop(&mut self) {
        let signal = self.counted_by.as_ref();
        if let Some(LoadSource::InFlightGuard(count)) = signal.map(|signal| &signal.0.source) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
