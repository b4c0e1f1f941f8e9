//! Log lines about refused admin calls.

use std::{
    net::SocketAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

use axum::http::HeaderMap;

use crate::request_id;

/// Shortest time between two lines.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(10);

/// Logs refused admin calls: the first at once, then at most one every 10 seconds with the number left out.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<Refusals>);

#[derive(Debug, Default)]
struct Refusals {
    logged_at: Option<Instant>,
    left_out: u64,
}

impl RefusalLog {
    pub(crate) fn log(&self, path: &str, peer: Option<SocketAddr>, headers: &HeaderMap, why: &str) {
        let Some(left_out) = self.count(Instant::now()) else {
            return;
        };
        tracing::warn!(
            target: "ratelimit_server::audit",
            path,
            peer = peer.map(tracing::field::display),
            request_id = request_id::of(headers),
            left_out,
            "refused an admin call: {why}"
        );
    }

    /// The number of refusals that were not logged since the last line, if it is time for a line.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut refusals = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_recent = |at: Instant| now.duration_since(at) < REFUSAL_INTERVAL;
        if refusals.logged_at.is_some_and(is_recent) {
            refusals.left_out += 1;
            return None;
        }
        refusals.logged_at = Some(now);
        Some(std::mem::take(&mut refusals.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_at_most_every_ten_seconds_with_their_number() {
        let log = RefusalLog::default();
        let start = Instant::now();

        assert_eq!(log.count(start), Some(0));
        for _ in 0..3 {
            assert_eq!(log.count(start + Duration::from_secs(9)), None);
        }
        assert_eq!(log.count(start + Duration::from_secs(10)), Some(3));
    }
}
