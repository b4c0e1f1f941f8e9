//! The numbers that operators see, through the `metrics` facade.

use std::{
    cell::Cell,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use metrics::{Counter, Histogram, SharedString, counter, histogram};

use crate::limit::Limit;

/// The names of all metrics, and the buckets of the one histogram that queries rely on.
///
/// An exporter makes summaries of histograms that it is given no buckets for, so give it these:
///
/// ```text
/// PrometheusBuilder::new().set_buckets_for_metric(
///     Matcher::Full(ratelimit_core::metric::CHECK_SECONDS.to_owned()),
///     &ratelimit_core::metric::CHECK_SECONDS_BUCKETS,
/// )
/// ```
pub mod metric {
    /// Checks made, by `algorithm` of the limit that speaks, `allowed` and `policy`; a look is none.
    pub const REQUESTS: &str = "rate_limiter_requests_total";
    /// How long checks took; of those answered from memory, one in sixteen is timed.
    pub const CHECK_SECONDS: &str = "rate_limiter_check_seconds";
    /// Checks that the store did not decide, by `policy`, `mode` and `reason`.
    pub const UNCHECKED: &str = "rate_limiter_unchecked_total";
    /// Whether there is a connection to Redis that decides: 1 or 0, by `server`.
    pub const STORE_UP: &str = "rate_limiter_store_up";
    /// Whether a server that failed is left alone until it is found healed: 1 or 0, by `server`.
    pub const BREAKER_OPEN: &str = "rate_limiter_breaker_open";
    /// Attempts to connect to Redis, by `server`.
    pub const CONNECTS: &str = "rate_limiter_reconnects_total";
    /// Calls to Redis whose outcome is not known: counted once or not at all.
    pub const AMBIGUOUS: &str = "rate_limiter_ambiguous_total";
    /// How long calls to Redis took.
    pub const ROUND_TRIP_SECONDS: &str = "rate_limiter_round_trip_seconds";
    /// 1, with the `version` of the Redis server that was connected last.
    pub const SERVER_INFO: &str = "rate_limiter_redis_info";
    /// Keys that a Redis server with an evicting `maxmemory-policy` evicted so far, by `server`.
    pub const EVICTED: &str = "rate_limiter_redis_evicted_keys";
    /// Background tasks that ended and were started again.
    pub const TASK_RESTARTS: &str = "rate_limiter_task_restarts_total";

    /// Upper bounds for the two histograms, in seconds.
    pub const CHECK_SECONDS_BUCKETS: [f64; 16] = [
        0.000_000_1,
        0.000_001,
        0.000_01,
        0.000_05,
        0.000_1,
        0.000_25,
        0.000_5,
        0.001,
        0.002_5,
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        1.0,
    ];
}

/// The handles of one policy's metrics.
pub(crate) struct Meters {
    limits: Box<[Allowed]>,
    seconds: Histogram,
    policy: SharedString,
}

struct Allowed {
    yes: Counter,
    no: Counter,
}

impl Meters {
    pub(crate) fn new(policy: &Arc<str>, limits: &[Limit]) -> Meters {
        let name = SharedString::from(Arc::clone(policy));
        let requests = |limit: &Limit, allowed: &'static str| {
            let algorithm = limit.algorithm().as_str();
            let policy = name.clone();
            counter!(metric::REQUESTS, "algorithm" => algorithm, "allowed" => allowed, "policy" => policy)
        };
        let limits = limits.iter().map(|limit| Allowed {
            yes: requests(limit, "true"),
            no: requests(limit, "false"),
        });
        Meters {
            limits: limits.collect(),
            seconds: histogram!(metric::CHECK_SECONDS, "policy" => name.clone()),
            policy: name.clone(),
        }
    }

    /// Counts a check for which the limit at `speaker` spoke.
    pub(crate) fn checked(&self, speaker: usize, allowed: bool) {
        if let Some(limit) = self.limits.get(speaker) {
            let counter = if allowed { &limit.yes } else { &limit.no };
            counter.increment(1);
        }
    }

    pub(crate) fn took(&self, span: Duration) {
        self.seconds.record(span);
    }

    pub(crate) fn unchecked(&self, mode: &'static str, reason: &'static str) {
        let policy = self.policy.clone();
        counter!(metric::UNCHECKED, "policy" => policy, "mode" => mode, "reason" => reason)
            .increment(1);
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meters({})", self.policy)
    }
}

/// Now, once in sixteen times: reading the clock would cost as much as a decision from memory.
pub(crate) fn sampled_now() -> Option<Instant> {
    thread_local!(static TURN: Cell<u8> = const { Cell::new(0) });
    let turn = TURN.get();
    TURN.set(turn.wrapping_add(1));
    turn.is_multiple_of(16).then(Instant::now)
}

#[cfg(feature = "redis")]
pub(crate) use self::of_redis::*;

#[cfg(feature = "redis")]
mod of_redis {
    use metrics::gauge;

    use super::{Duration, counter, histogram, metric};

    /// Tells whether a server decides; one that does not is left alone until it is found healed.
    pub(crate) fn store_up(server: &str, up: bool) {
        gauge!(metric::STORE_UP, "server" => server.to_owned()).set(i32::from(up));
        gauge!(metric::BREAKER_OPEN, "server" => server.to_owned()).set(i32::from(!up));
    }

    pub(crate) fn connecting(server: &str) {
        counter!(metric::CONNECTS, "server" => server.to_owned()).increment(1);
    }

    pub(crate) fn ambiguous() {
        counter!(metric::AMBIGUOUS).increment(1);
    }

    pub(crate) fn round_trip(span: Duration) {
        histogram!(metric::ROUND_TRIP_SECONDS).record(span);
    }

    pub(crate) fn server_version(version: &str) {
        gauge!(metric::SERVER_INFO, "version" => version.to_owned()).set(1);
    }

    pub(crate) fn evicted(server: &str, keys: u64) {
        counter!(metric::EVICTED, "server" => server.to_owned()).absolute(keys);
    }

    pub(crate) fn task_restarted() {
        counter!(metric::TASK_RESTARTS).increment(1);
    }
}
