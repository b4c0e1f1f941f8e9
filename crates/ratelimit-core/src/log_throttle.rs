//! A throttle for log lines that could repeat with every request.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::time::micros;

/// Permits a burst of lines, then one in each `pause`.
///
/// It is not one of this crate's limiters, which log themselves.
#[derive(Debug)]
pub(crate) struct LogThrottle {
    since: Instant,
    pause: Duration,
    burst: u32,
    /// When all permitted lines would have been written with a pause after each, in microseconds after `since`.
    paid_until: AtomicU64,
    /// Lines that were suppressed since the last permitted one.
    left_out: AtomicU64,
}

impl LogThrottle {
    /// A throttle with a full burst. A burst of 0 permits nothing.
    pub(crate) fn new(burst: u32, pause: Duration) -> LogThrottle {
        LogThrottle {
            since: Instant::now(),
            pause,
            burst,
            paid_until: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// Permits one more line, and returns the number of suppressed ones since the last. `None` suppresses the line.
    pub(crate) fn permit(&self) -> Option<u64> {
        self.permit_at(self.since.elapsed())
    }

    fn permit_at(&self, now: Duration) -> Option<u64> {
        let latest = micros(now + self.pause * self.burst);
        let next = |until: u64| {
            let until = until.max(micros(now)) + micros(self.pause);
            (until <= latest).then_some(until)
        };
        if self
            .paid_until
            .fetch_update(Relaxed, Relaxed, next)
            .is_err()
        {
            self.left_out.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Relaxed))
    }

    /// The lines that were suppressed since the last permitted one.
    #[cfg(all(test, feature = "redis"))]
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_permitted_at_once_and_then_one_line_after_each_pause() {
        let throttle = LogThrottle::new(3, Duration::from_secs(60));
        let permits = |at: u64, count: usize| -> Vec<Option<u64>> {
            let at = Duration::from_secs(at);
            (0..count).map(|_| throttle.permit_at(at)).collect()
        };

        assert_eq!(permits(0, 10)[..4], [Some(0), Some(0), Some(0), None]);
        assert_eq!(permits(59, 1), [None]);
        assert_eq!(permits(60, 2), [Some(8), None]);
        assert_eq!(permits(600, 4), [Some(1), Some(0), Some(0), None]);
    }
}
