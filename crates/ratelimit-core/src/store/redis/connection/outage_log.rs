//! Throttled log lines about the servers of a store.
//!
//! | line | level | throttle | burst | then one in |
//! |---|---|---|---|---|
//! | lost connection | warn | `lost` | 3 | 10 s |
//! | connected to Redis again | info | `connected` | 2 | 10 s |
//! | no connection, slow calls, no slot map | warn | `outage` | 2 | 60 s |
//! | a charge could not be given back | warn | `kept` | 1 | 60 s |
//! | Redis refused a call | warn | `refused` | 2 | 60 s |
//! | a state of another algorithm was replaced | warn | `replaced` | 1 | 60 s |
//! | Redis is almost full | warn | `full` | 1 | 60 s |
//! | Redis may evict rate limits | warn | once for each `maxmemory-policy` | | |
//!
//! An outage reads like this:
//!
//! ```text
//! WARN lost the connection to Redis, the failure mode decides  server=.. cause=.. left_out=0
//! WARN no connection to Redis, the failure mode decides        server=.. error=.. left_out=0
//! INFO connected to Redis again                                server=.. version=.. lost=1 left_out=0
//! ```
//!
//! The beginning of an outage has its own throttle, so that the repeated lines of one outage do not suppress the first line
//! of the next. The last line comes five seconds after the connection was published. The first line of a store,
//! "connected to Redis", is written by the connection and is not throttled.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{log_throttle::LogThrottle, metrics, policy::Policy, sync::lock};

/// The pause between two lines of a kind whose burst is used up.
const MINUTE: Duration = Duration::from_secs(60);
/// The same for the lines that begin and end an outage.
const EDGE_PAUSE: Duration = Duration::from_secs(10);
/// Lines of each kind that are written at once, at most eleven together. These begin an outage.
const LOST_BURST: u32 = 3;
/// Lines that repeat during an outage.
const OUTAGE_BURST: u32 = 2;
/// Lines about charges that could not be given back. One is enough to show that it happens.
const KEPT_BURST: u32 = 1;
/// Lines about refused calls.
const REFUSED_BURST: u32 = 2;
/// Lines about states of another algorithm. Each names a policy, of which one is enough to look at the deploy.
const REPLACED_BURST: u32 = 1;
/// Lines about stable connections that replaced another.
const CONNECTED_BURST: u32 = 2;

/// The log lines of one store, all its connections together.
///
/// - Each kind is written at once until its burst is used up, then once in a while.
/// - The field `left_out` of a line is the number of lines of its kind that were suppressed before
///   it. The field `lost` of the line that ends an outage is the number of connections that were lost since the last such
///   line, so an outage whose first line was suppressed is counted when it ends.
/// - Callers of any thread write lines. The throttles are atomic; only `log_eviction` takes a lock.
#[derive(Debug)]
pub(in crate::store::redis) struct OutageLog {
    /// Lines that begin an outage.
    lost: LogThrottle,
    /// Connections that were lost since the last line that ended an outage.
    lost_count: AtomicU64,
    /// Lines that repeat during an outage, and about slow calls.
    outage: LogThrottle,
    /// Lines about charges that stay although they should have been given back.
    kept: LogThrottle,
    /// Lines about single calls that failed while the server works.
    refused: LogThrottle,
    /// Lines about states of another algorithm that were replaced.
    replaced: LogThrottle,
    /// Lines that end an outage. A burst of their own keeps them from being lost behind the outage.
    connected: LogThrottle,
    /// Lines about a server without free memory.
    full: LogThrottle,
    /// The values of `maxmemory-policy` that were logged.
    eviction: Mutex<BTreeSet<String>>,
}

impl Default for OutageLog {
    fn default() -> OutageLog {
        OutageLog {
            lost: LogThrottle::new(LOST_BURST, EDGE_PAUSE),
            lost_count: AtomicU64::new(0),
            outage: LogThrottle::new(OUTAGE_BURST, MINUTE),
            kept: LogThrottle::new(KEPT_BURST, MINUTE),
            refused: LogThrottle::new(REFUSED_BURST, MINUTE),
            replaced: LogThrottle::new(REPLACED_BURST, MINUTE),
            connected: LogThrottle::new(CONNECTED_BURST, EDGE_PAUSE),
            full: LogThrottle::new(1, MINUTE),
            eviction: Mutex::default(),
        }
    }
}

impl OutageLog {
    /// Logs that a connection could not be made.
    pub(in crate::store::redis) fn log_unreachable(&self, server: &str, error: &dyn fmt::Display) {
        if let Some(left_out) = self.outage.permit() {
            tracing::warn!(server, %error, left_out, "no connection to Redis, the failure mode decides");
        }
    }

    /// Logs that an established connection was taken out of use, with the first cause that was
    /// recorded.
    pub(in crate::store::redis) fn log_lost(&self, server: &str, cause: &str) {
        self.lost_count.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.lost.permit() {
            tracing::warn!(
                server,
                cause,
                left_out,
                "lost the connection to Redis, the failure mode decides"
            );
        }
    }

    /// Logs how many calls were slower than the timeout since the last heartbeat. The connection is
    /// still in use.
    pub(in crate::store::redis) fn log_slow(&self, server: &str, calls: u64, timeout: Duration) {
        if let Some(left_out) = self.outage.permit() {
            let timeout = timeout.as_millis();
            tracing::warn!(
                server,
                calls,
                left_out,
                "calls to Redis were slower than {timeout} ms, the failure mode decided them: {calls}"
            );
        }
    }

    /// Logs that no node of a cluster replied with the slot map. The last map stays in use.
    pub(in crate::store::redis) fn log_no_topology(&self) {
        if let Some(left_out) = self.outage.permit() {
            tracing::warn!(
                left_out,
                "no node of the Redis cluster tells which node serves which slot"
            );
        }
    }

    /// Logs that a refund or release failed. The units stay spent until they expire, and a slot
    /// until its lease ends.
    pub(in crate::store::redis) fn log_kept_charge(&self, error: &dyn fmt::Display) {
        if let Some(left_out) = self.kept.permit() {
            tracing::warn!(%error, left_out, "a charge could not be given back to Redis");
        }
    }

    /// Logs that Redis replied with an error about one call, or that a reply could not be read.
    pub(in crate::store::redis) fn log_refused(&self, error: &dyn fmt::Display) {
        if let Some(left_out) = self.refused.permit() {
            tracing::warn!(%error, left_out, "Redis refused a call, the failure mode decided it");
        }
    }

    /// Counts and logs that a hit replaced the state that another algorithm had for a limit: the key began anew.
    pub(in crate::store::redis) fn report_replaced(&self, policy: &Policy) {
        metrics::replaced_state(policy.shared_name());
        if let Some(left_out) = self.replaced.permit() {
            tracing::warn!(
                policy = policy.name(),
                left_out,
                "a limit has another algorithm than the one that counted in Redis so far: its keys start with a whole \
                 budget, and again whenever an instance with the other algorithm decides"
            );
        }
    }

    /// Logs that a connection was established again and is stable: it has lived for ten heartbeats.
    pub(in crate::store::redis) fn log_reconnected(&self, server: &str, version: &str) {
        if let Some(left_out) = self.connected.permit() {
            let lost = self.lost_count.swap(0, Ordering::Relaxed);
            tracing::info!(server, version, lost, left_out, "connected to Redis again");
        }
    }

    /// Logs that the server is about to refuse writes.
    pub(in crate::store::redis) fn log_almost_full(&self, server: &str, percent: u64) {
        if let Some(left_out) = self.full.permit() {
            tracing::warn!(
                server,
                used_percent = percent,
                left_out,
                "Redis is almost full: raise maxmemory, or the fallback will apply to all policies"
            );
        }
    }

    /// Logs that the server may evict keys before they expire.
    ///
    /// The line is written once for each policy, not for each connection. An evicted key starts with a whole budget.
    pub(in crate::store::redis) fn log_eviction(&self, server: &str, rule: &str) {
        if !lock(&self.eviction).insert(rule.to_owned()) {
            return;
        }
        tracing::warn!(
            server,
            maxmemory_policy = rule,
            "Redis may evict rate limits before they expire: set maxmemory-policy to noeviction"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_together_are_at_most_eleven_lines_at_once() {
        let log = OutageLog::default();
        let kinds = [
            &log.lost,
            &log.outage,
            &log.kept,
            &log.refused,
            &log.replaced,
            &log.connected,
        ];

        let permits = kinds.map(|kind| (0..50).filter_map(|_| kind.permit()).count());

        assert_eq!(permits.iter().sum::<usize>(), 11);
    }

    #[test]
    fn the_lines_of_one_outage_do_not_suppress_the_first_line_of_the_next() {
        let log = OutageLog::default();
        log.log_lost("a", "reset");
        for _ in 0..50 {
            log.log_unreachable("a", &"refused");
        }

        assert_eq!(log.lost.permit(), Some(0));
        assert!(log.outage.permit().is_none());
    }

    #[test]
    fn an_outage_whose_first_line_was_suppressed_is_counted_when_it_ends() {
        let log = OutageLog::default();
        for _ in 0..7 {
            log.log_lost("a", "reset");
        }

        assert_eq!(log.lost.left_out(), 4);
        assert_eq!(log.lost_count.load(Ordering::Relaxed), 7);
        log.log_reconnected("a", "8.0");
        assert_eq!(log.lost_count.load(Ordering::Relaxed), 0);
    }
}
