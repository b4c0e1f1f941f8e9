//! The throttle of log lines about requests without a usable key.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The time between two lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// Permits a line for the first request without a usable key, then one a minute with the number of requests since.
///
/// Clients cause such requests, so each of them must not become a line.
#[derive(Debug, Default)]
pub(crate) struct KeyErrorLog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last_line: Option<Instant>,
    /// The requests since the last line.
    requests: u64,
}

impl KeyErrorLog {
    /// Counts a request, and returns the number that a line reports. `None` suppresses the line.
    pub(crate) fn record(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests += 1;
        let is_due = |last| now.saturating_duration_since(last) >= INTERVAL;
        if !state.last_line.is_none_or(is_due) {
            return None;
        }
        state.last_line = Some(now);
        Some(std::mem::take(&mut state.requests))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_is_a_line_and_later_ones_are_counted_for_a_minute() {
        let (log, start) = (KeyErrorLog::default(), Instant::now());
        let at = |seconds| log.record(start + Duration::from_secs(seconds));

        assert_eq!(at(0), Some(1));
        assert_eq!([at(0), at(30), at(59)], [None; 3]);
        assert_eq!(at(60), Some(4));
        assert_eq!(at(61), None);
        assert_eq!(at(600), Some(2));
    }
}
