//! What a store logs about its servers, throttled.

use std::{
    fmt,
    num::NonZeroU32,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

const MINUTE: Duration = Duration::from_secs(60);
/// Lines of an outage that are written at once; with the others below at most ten in the first minute.
const OUTAGE_BURST: u32 = 5;
const KEPT_BURST: u32 = 1;
const REFUSED_BURST: u32 = 2;
const CONNECTED_BURST: u32 = 2;

/// The log lines of one store, all its connections together.
///
/// Each kind is written at once until its burst is used up, then once a minute. A line says how many of its
/// kind were left out before it.
#[derive(Debug)]
pub(in crate::store::redis) struct OutageLog {
    outage: LogThrottle,
    kept: LogThrottle,
    refused: LogThrottle,
    connected: LogThrottle,
    /// The `maxmemory-policy` that was warned of last.
    eviction: Mutex<Option<String>>,
}

impl Default for OutageLog {
    fn default() -> OutageLog {
        OutageLog {
            outage: LogThrottle::new(OUTAGE_BURST),
            kept: LogThrottle::new(KEPT_BURST),
            refused: LogThrottle::new(REFUSED_BURST),
            connected: LogThrottle::new(CONNECTED_BURST),
            eviction: Mutex::default(),
        }
    }
}

impl OutageLog {
    /// A connection could not be made.
    pub(in crate::store::redis) fn log_unreachable(&self, server: &str, error: &dyn fmt::Display) {
        if let Some(left_out) = self.outage.permit() {
            tracing::warn!(server, %error, left_out, "no connection to Redis, the failure mode decides");
        }
    }

    /// A connection that worked is of no use any more.
    pub(in crate::store::redis) fn log_lost(&self, server: &str, cause: &str) {
        if let Some(left_out) = self.outage.permit() {
            tracing::warn!(
                server,
                cause,
                left_out,
                "lost the connection to Redis, the failure mode decides"
            );
        }
    }

    /// Some calls took too long.
    pub(in crate::store::redis) fn log_slow(&self, server: &str, calls: u64, timeout: Duration) {
        if let Some(left_out) = self.outage.permit() {
            let timeout = timeout.as_millis();
            tracing::warn!(
                server,
                calls,
                left_out,
                "{calls} calls to Redis were slower than {timeout} ms, the failure mode decided them"
            );
        }
    }

    /// No node of a cluster tells which node serves which slot.
    pub(in crate::store::redis) fn log_no_topology(&self) {
        if let Some(left_out) = self.outage.permit() {
            tracing::warn!(
                left_out,
                "no node of the Redis cluster tells which node serves which slot"
            );
        }
    }

    /// A charge could not be given back, and stays.
    pub(in crate::store::redis) fn log_kept_charge(&self, error: &dyn fmt::Display) {
        if let Some(left_out) = self.kept.permit() {
            tracing::warn!(%error, left_out, "a charge could not be given back to Redis");
        }
    }

    /// Redis answered a call with an error, or with numbers that cannot be true.
    pub(in crate::store::redis) fn log_refused(&self, error: &dyn fmt::Display) {
        if let Some(left_out) = self.refused.permit() {
            tracing::warn!(%error, left_out, "Redis refused a call, the failure mode decided it");
        }
    }

    /// There is a connection again.
    pub(in crate::store::redis) fn log_reconnected(&self, server: &str, version: &str) {
        if let Some(left_out) = self.connected.permit() {
            tracing::info!(server, version, left_out, "connected to Redis again");
        }
    }

    /// The server may evict limits; once for each rule, not with each connection.
    pub(in crate::store::redis) fn log_eviction(&self, server: &str, rule: &str) {
        let mut known = self.eviction.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_deref() == Some(rule) {
            return;
        }
        *known = Some(rule.to_owned());
        tracing::warn!(
            server,
            maxmemory_policy = rule,
            "Redis may evict rate limits before they expire: set maxmemory-policy to noeviction"
        );
    }
}

/// A burst of lines, then one a minute.
struct LogThrottle {
    quota: DefaultDirectRateLimiter,
    left_out: AtomicU64,
}

impl LogThrottle {
    fn new(burst: u32) -> LogThrottle {
        let quota = Quota::with_period(MINUTE).expect("a minute is not zero");
        let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
        LogThrottle {
            quota: RateLimiter::direct(quota.allow_burst(burst)),
            left_out: AtomicU64::new(0),
        }
    }

    /// How many lines were left out since the last one, if another may be written.
    fn permit(&self) -> Option<u64> {
        if self.quota.check().is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

impl fmt::Debug for LogThrottle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogThrottle").field(&self.left_out).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_logged_at_once_and_the_rest_is_counted() {
        let throttle = LogThrottle::new(3);

        let permits: Vec<Option<u64>> = (0..10).map(|_| throttle.permit()).collect();

        assert_eq!(permits[..3], [Some(0); 3]);
        assert_eq!(permits[3..], [None; 7]);
        assert_eq!(throttle.left_out.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn all_kinds_together_are_at_most_ten_lines_at_once() {
        let log = OutageLog::default();
        let kinds = [&log.outage, &log.kept, &log.refused, &log.connected];

        let permits = kinds.map(|kind| (0..50).filter_map(|_| kind.permit()).count());

        assert_eq!(permits.iter().sum::<usize>(), 10);
    }
}
