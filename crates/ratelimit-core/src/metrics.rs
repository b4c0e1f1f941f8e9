//! The metrics of rate limiting, through the `metrics` facade.
//!
//! The names of all metrics, and the buckets of the one histogram that queries rely on.
//!
//! An exporter makes summaries of histograms that it is given no buckets for, so give it these:
//!
//! ```text
//! PrometheusBuilder::new().set_buckets_for_metric(
//!     Matcher::Full(ratelimit_core::CHECK_SECONDS.to_owned()),
//!     &ratelimit_core::CHECK_SECONDS_BUCKETS,
//! )
//! ```

use std::{
    cell::Cell,
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use metrics::{Counter, Histogram, SharedString, counter, gauge, histogram};

use crate::{decision::Decision, limit::Limit};

/// Checks made, by `algorithm` of the limit that speaks, `allowed` and `policy`; a look is none.
/// Those of a policy that only watches have `shadow="true"` as well.
pub const REQUESTS: &str = "rate_limiter_requests_total";
/// How long checks took; of those answered from memory, one in 64 is timed.
pub const CHECK_SECONDS: &str = "rate_limiter_check_seconds";
/// Checks that the store did not decide, by `policy`, `mode` and `reason`.
pub const UNCHECKED: &str = "rate_limiter_unchecked_total";
/// Hits that passed beyond a limit, because their policy throttles softly, by `policy`.
pub const OVER: &str = "rate_limiter_over_total";
/// Denials that a limiter remembered, and answered without asking the store again, by `policy`.
pub const DENY_CACHED: &str = "rate_limiter_deny_cached_total";
/// Whether there is a connection to Redis that decides: 1 or 0, by `server`; NaN once the server is not used any more.
pub const STORE_UP: &str = "rate_limiter_store_up";
/// Calls to Redis that were not answered within the time budget, by `server`.
pub const SLOW_CALLS: &str = "rate_limiter_slow_calls_total";
/// Attempts to connect to Redis, by `server`.
pub const CONNECTS: &str = "rate_limiter_reconnects_total";
/// Calls to Redis whose outcome is not known: counted once or not at all.
pub const AMBIGUOUS: &str = "rate_limiter_ambiguous_total";
/// How long calls to Redis took; of one that was not answered in time, how long it was waited for.
pub const ROUND_TRIP_SECONDS: &str = "rate_limiter_round_trip_seconds";
/// 1, with the `version` of the Redis server that was connected last.
pub const SERVER_INFO: &str = "rate_limiter_redis_info";
/// Keys that a Redis server with an evicting `maxmemory-policy` evicted so far, by `server`.
pub const EVICTED: &str = "rate_limiter_redis_evicted_keys";
/// Keys in the memory stores of the process, all together. A store that is hit updates them once a second.
pub const MEMORY_KEYS: &str = "rate_limiter_memory_keys";
/// Estimated bytes of those keys.
pub const MEMORY_BYTES: &str = "rate_limiter_memory_bytes";
/// Keys that full memory stores evicted, by `kind`: `with_budget`, `crowded_out` where they had budget and
/// more than three quarters of a shard were exhausted, or `exhausted` where every key of a shard was.
pub const MEMORY_EVICTIONS: &str = "rate_limiter_memory_evictions_total";
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

/// The handles of one policy's metrics.
pub(crate) struct PolicyMetrics {
    limits: Box<[AllowDeny]>,
    /// The same for checks that only watch; made when first needed.
    watched: OnceLock<Box<[AllowDeny]>>,
    algorithms: Box<[&'static str]>,
    over: Counter,
    recalled: Counter,
    seconds: Histogram,
    policy: SharedString,
}

struct AllowDeny {
    yes: Counter,
    no: Counter,
}

impl AllowDeny {
    #[inline]
    fn count(&self, allowed: bool) {
        let counter = if allowed { &self.yes } else { &self.no };
        counter.increment(1);
    }
}

impl PolicyMetrics {
    pub(crate) fn new(policy: &Arc<str>, limits: &[Limit]) -> PolicyMetrics {
        let name = SharedString::from(Arc::clone(policy));
        let requests = |limit: &Limit, allowed: &'static str| {
            let algorithm = limit.algorithm().as_str();
            let policy = name.clone();
            counter!(REQUESTS, "algorithm" => algorithm, "allowed" => allowed, "policy" => policy)
        };
        let counters = limits.iter().map(|limit| AllowDeny {
            yes: requests(limit, "true"),
            no: requests(limit, "false"),
        });
        let algorithms = limits.iter().map(|limit| limit.algorithm().as_str());
        PolicyMetrics {
            limits: counters.collect(),
            watched: OnceLock::new(),
            algorithms: algorithms.collect(),
            over: counter!(OVER, "policy" => name.clone()),
            recalled: counter!(DENY_CACHED, "policy" => name.clone()),
            seconds: histogram!(CHECK_SECONDS, "policy" => name.clone()),
            policy: name.clone(),
        }
    }

    /// Counts a check, for the limit that spoke.
    #[inline]
    pub(crate) fn count_decision(&self, decision: &Decision) {
        let limits = self.counters(decision.is_enforced);
        if let Some(limit) = limits.get(decision.speaker) {
            limit.count(decision.is_allowed());
        }
        if decision.is_over {
            self.over.increment(1);
        }
    }

    /// Counts a check of a policy's one limit, which let it pass.
    #[inline]
    pub(crate) fn count_allowed(&self, is_enforced: bool) {
        if let Some(limit) = self.counters(is_enforced).first() {
            limit.count(true);
        }
    }

    #[inline]
    fn counters(&self, is_enforced: bool) -> &[AllowDeny] {
        if is_enforced {
            &self.limits
        } else {
            self.watched.get_or_init(|| self.shadow_counters())
        }
    }

    /// Counts a check that no store decided.
    pub(crate) fn count_without_decision(&self, allowed: bool) {
        if let Some(limit) = self.limits.first() {
            limit.count(allowed);
        }
    }

    /// Counts a denial that was remembered.
    pub(crate) fn count_deny_cache_hit(&self) {
        self.recalled.increment(1);
    }

    fn shadow_counters(&self) -> Box<[AllowDeny]> {
        let requests = |algorithm: &'static str, allowed: &'static str| {
            let policy = self.policy.clone();
            counter!(REQUESTS, "algorithm" => algorithm, "allowed" => allowed, "policy" => policy, "shadow" => "true")
        };
        let counters = self.algorithms.iter().map(|algorithm| AllowDeny {
            yes: requests(algorithm, "true"),
            no: requests(algorithm, "false"),
        });
        counters.collect()
    }

    pub(crate) fn record_duration(&self, span: Duration) {
        self.seconds.record(span);
    }

    pub(crate) fn count_unchecked(&self, mode: &'static str, reason: &'static str) {
        let policy = self.policy.clone();
        counter!(UNCHECKED, "policy" => policy, "mode" => mode, "reason" => reason).increment(1);
    }
}

impl fmt::Debug for PolicyMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyMetrics({})", self.policy)
    }
}

/// Now, once in 64 times: reading the clock would cost as much as a decision from memory.
pub(crate) fn sample_start() -> Option<Instant> {
    thread_local!(static TURN: Cell<u8> = const { Cell::new(0) });
    let turn = TURN.with(|turn| turn.replace(turn.get().wrapping_add(1)));
    turn.is_multiple_of(64).then(Instant::now)
}

/// Tells what the memory stores of the process hold.
#[expect(clippy::cast_precision_loss, reason = "no machine has 2^53 bytes")]
pub(crate) fn memory_held(keys: usize, bytes: usize) {
    gauge!(MEMORY_KEYS).set(keys as f64);
    gauge!(MEMORY_BYTES).set(bytes as f64);
}

/// Tells how many keys the memory stores of the process have evicted so far.
pub(crate) fn memory_evicted(with_budget: u64, crowded_out: u64, exhausted: u64) {
    counter!(MEMORY_EVICTIONS, "kind" => "with_budget").absolute(with_budget);
    counter!(MEMORY_EVICTIONS, "kind" => "crowded_out").absolute(crowded_out);
    counter!(MEMORY_EVICTIONS, "kind" => "exhausted").absolute(exhausted);
}

#[cfg(feature = "redis")]
pub(crate) use self::of_redis::*;

#[cfg(feature = "redis")]
mod of_redis {
    use metrics::gauge;

    use super::{
        AMBIGUOUS, CONNECTS, Duration, EVICTED, ROUND_TRIP_SECONDS, SERVER_INFO, SLOW_CALLS,
        STORE_UP, TASK_RESTARTS, counter, histogram,
    };

    /// Tells whether a server decides.
    pub(crate) fn store_up(server: &str, up: bool) {
        gauge!(STORE_UP, "server" => server.to_owned()).set(i32::from(up));
    }

    /// Tells that a server is not used any more: an alert on its last value would never end.
    pub(crate) fn store_removed(server: &str) {
        gauge!(STORE_UP, "server" => server.to_owned()).set(f64::NAN);
    }

    pub(crate) fn connecting(server: &str) {
        counter!(CONNECTS, "server" => server.to_owned()).increment(1);
    }

    pub(crate) fn ambiguous() {
        counter!(AMBIGUOUS).increment(1);
    }

    pub(crate) fn round_trip(span: Duration) {
        histogram!(ROUND_TRIP_SECONDS).record(span);
    }

    /// Counts a call that was not answered within its time budget.
    pub(crate) fn slow_call(server: &str, elapsed: Duration) {
        counter!(SLOW_CALLS, "server" => server.to_owned()).increment(1);
        round_trip(elapsed);
    }

    /// Makes the counter known, so that its first call is an increase.
    pub(crate) fn no_slow_call_yet(server: &str) {
        counter!(SLOW_CALLS, "server" => server.to_owned()).increment(0);
    }

    pub(crate) fn server_version(version: &str) {
        gauge!(SERVER_INFO, "version" => version.to_owned()).set(1);
    }

    pub(crate) fn evicted(server: &str, keys: u64) {
        counter!(EVICTED, "server" => server.to_owned()).absolute(keys);
    }

    pub(crate) fn task_restarted() {
        counter!(TASK_RESTARTS).increment(1);
    }
}
