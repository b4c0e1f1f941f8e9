//! The names of all metrics of the engine, which it records through the [`metrics`](https://docs.rs/metrics) facade.
//!
//! Without a recorder the metrics cost a few instructions. Install a recorder before the first policy is made: a policy
//! registers its counters when it is made and keeps the handles, so that counting a hit looks nothing up.
//!
//! The Prometheus exporter turns a histogram without buckets into a summary. Give it the buckets of this module:
//!
//! ```text
//! use ratelimit_core::metrics::{CHECK_SECONDS, CHECK_SECONDS_BUCKETS};
//!
//! PrometheusBuilder::new().set_buckets_for_metric(
//!     Matcher::Full(CHECK_SECONDS.to_owned()),
//!     &CHECK_SECONDS_BUCKETS,
//! )
//! ```
//!
//! Cardinality: `policy` has one value for each policy, `algorithm` at most seven, `server` one for each Redis server.
//! No label contains a key.

use std::{
    cell::Cell,
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use metrics::{
    Counter, Histogram, SharedString, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

#[cfg(feature = "tokio")]
mod prefetch;

#[cfg(feature = "tokio")]
pub(crate) use self::prefetch::PrefetchMetrics;
use crate::{decision::Decision, limit::Limit};

/// Counter: checks, by `policy`, `allowed`, and `algorithm` of the reported limit.
///
/// Checks in shadow mode also have `shadow="true"`. Peeks and dry runs are not counted.
pub const REQUESTS: &str = "rate_limiter_requests_total";
/// Histogram: duration of checks in seconds, by `policy`. Of checks that are answered synchronously, one in 64 is timed.
pub const CHECK_SECONDS: &str = "rate_limiter_check_seconds";
/// Counter: checks that the failure mode decided because the store did not, by `policy`, `mode` and `reason`.
pub const UNCHECKED: &str = "rate_limiter_unchecked_total";
/// Counter: hits that a soft or elastic throttle allowed beyond a limit, by `policy`.
pub const OVER: &str = "rate_limiter_over_total";
/// Counter: checks that the deny cache denied without a call to the store, by `policy`. [`REQUESTS`] counts them too.
pub const DENY_CACHED: &str = "rate_limiter_deny_cached_total";
/// Gauge: 1 while a Redis server decides, 0 while it does not, by `server`; NaN once the server is no longer used.
pub const STORE_UP: &str = "rate_limiter_store_up";
/// Counter: calls to Redis that were not answered within the time budget, by `server`.
pub const SLOW_CALLS: &str = "rate_limiter_slow_calls_total";
/// Counter: attempts to connect to Redis again, by `server`. The first attempt is not counted.
pub const CONNECTS: &str = "rate_limiter_reconnects_total";
/// Counter: units of hits that the local fallback let pass and that the store had not charged, by `outcome`.
///
/// - `charged`: the store was charged for them when it answered again, as far as it had capacity.
/// - `unknown`: the reply to that charge was lost.
/// - `dropped`: the table of the fallback was full, or the store refused the charge, or much too late.
pub const CATCH_UP: &str = "rate_limiter_catch_up_units_total";
/// Counter: calls to Redis whose reply was lost; such a hit was counted once or not at all.
pub const AMBIGUOUS: &str = "rate_limiter_ambiguous_total";
/// Histogram: duration of calls to Redis in seconds. A call that timed out counts with the time until the time-out.
pub const ROUND_TRIP_SECONDS: &str = "rate_limiter_round_trip_seconds";
/// Gauge: always 1, with the `version` of the Redis server that was connected last.
pub const SERVER_INFO: &str = "rate_limiter_redis_info";
/// Counter: keys that a Redis server with an evicting `maxmemory-policy` has evicted, by `server`.
pub const EVICTED: &str = "rate_limiter_redis_evicted_keys_total";
/// Counter: hits that replaced the state of another algorithm in Redis, by `policy`: the key began with a whole budget.
///
/// It rises while a deploy changes the algorithm of a limit, and instances of both releases decide.
pub const REPLACED_STATES: &str = "rate_limiter_replaced_states_total";
/// Gauge: the part of its `maxmemory` that a Redis server uses, from 0 to 1, by `server`. A server without a bound has none.
pub const REDIS_MEMORY: &str = "rate_limiter_redis_memory_used_ratio";
/// Gauge: keys and settled receipts in all memory stores of the process.
///
/// A store updates it at most once a second, while it is hit, and
/// [`MemoryStore::update_metrics`](crate::MemoryStore::update_metrics) updates those of idle stores.
pub const MEMORY_KEYS: &str = "rate_limiter_memory_keys";
/// Gauge: estimated bytes of the keys of [`MEMORY_KEYS`].
pub const MEMORY_BYTES: &str = "rate_limiter_memory_bytes";
/// Counter: keys that full memory stores evicted, by `kind`.
///
/// - `with_budget`: the key had budget left.
/// - `crowded_out`: the key had budget left, and more than three quarters of its shard were exhausted.
/// - `exhausted`: every key of the shard was exhausted.
/// - `receipt`: a settled receipt was forgotten before it had expired. Older receipts are refused from then on.
///
/// `crowded_out` and `exhausted` mean that limits do not hold for some keys: raise the capacity.
pub const MEMORY_EVICTIONS: &str = "rate_limiter_memory_evictions_total";
/// Counter: hits that were paid by prefetched units, by `policy`.
/// [`REQUESTS`] counts them too.
pub const PREFETCH_HITS: &str = "rate_limiter_prefetch_hits_total";
/// Counter: calls that prefetch a block of units, by `policy` and `given`: `all` of it or `none`.
pub const PREFETCH_CALLS: &str = "rate_limiter_prefetch_calls_total";
/// Counter: prefetched units that expired unspent and were returned to the store, by `policy`.
pub const PREFETCH_VOID: &str = "rate_limiter_prefetch_void_total";
/// Counter: prefetched units that were dropped because their budget was reset or their return got no reply, by `policy`.
pub const PREFETCH_DROPPED: &str = "rate_limiter_prefetch_dropped_total";
/// Gauge: prefetched units that this process holds and has not spent, by `policy`.
pub const PREFETCH_UNITS: &str = "rate_limiter_prefetch_units";
/// Counter: background tasks that ended, or were not polled, and were restarted.
pub const TASK_RESTARTS: &str = "rate_limiter_task_restarts_total";

/// Upper bounds of the buckets of [`CHECK_SECONDS`] and [`ROUND_TRIP_SECONDS`], in seconds: 100 ns to 1 s.
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

/// Counts units that passed locally, by what became of their charge to the store.
pub(crate) fn count_catch_up(outcome: &'static str, units: u64) {
    counter!(CATCH_UP, "outcome" => outcome).increment(units);
}

/// Tells the installed recorder what each metric of the engine means, for `# HELP` lines.
///
/// Call it once, after the recorder is installed.
pub fn describe() {
    describe_counter!(REQUESTS, "Checks, by policy, algorithm and result.");
    describe_histogram!(CHECK_SECONDS, Unit::Seconds, "Duration of checks.");
    describe_counter!(UNCHECKED, "Checks that the failure mode decided.");
    describe_counter!(OVER, "Checks that a throttle allowed beyond a limit.");
    describe_counter!(DENY_CACHED, "Checks that the deny cache denied.");
    describe_gauge!(STORE_UP, "Whether the Redis server decides.");
    describe_counter!(SLOW_CALLS, "Calls to Redis that timed out.");
    describe_counter!(CONNECTS, "Attempts to connect to Redis.");
    describe_counter!(
        CATCH_UP,
        "Units that the local fallback allowed and the store was charged for later, by outcome."
    );
    describe_counter!(AMBIGUOUS, "Calls to Redis whose reply was lost.");
    describe_histogram!(
        ROUND_TRIP_SECONDS,
        Unit::Seconds,
        "Duration of calls to Redis."
    );
    describe_gauge!(SERVER_INFO, "Always 1, with the version of Redis.");
    describe_counter!(EVICTED, "Keys that the Redis server evicted.");
    describe_counter!(
        REPLACED_STATES,
        "Hits that replaced the state of another algorithm."
    );
    describe_gauge!(REDIS_MEMORY, "The used part of the maxmemory of Redis.");
    describe_gauge!(MEMORY_KEYS, "Keys in the memory stores.");
    describe_gauge!(MEMORY_BYTES, Unit::Bytes, "Estimated bytes of those keys.");
    describe_counter!(
        MEMORY_EVICTIONS,
        "Keys that full memory stores evicted, by kind."
    );
    describe_counter!(PREFETCH_HITS, "Checks decided from prefetched units.");
    describe_counter!(PREFETCH_CALLS, "Calls that prefetch units.");
    describe_counter!(PREFETCH_VOID, "Prefetched units that expired unspent.");
    describe_counter!(PREFETCH_DROPPED, "Prefetched units that were dropped.");
    describe_gauge!(PREFETCH_UNITS, "Prefetched units that are not spent yet.");
    describe_counter!(TASK_RESTARTS, "Background tasks that were restarted.");
}

/// The metric handles of one policy, registered when the policy is made.
///
/// Looking a counter up by its labels takes longer than a check in memory, so a check only increments handles.
pub(crate) struct PolicyMetrics {
    /// One pair of counters for each limit, in the order of the policy.
    limits: Box<[AllowDeny]>,
    /// The same counters with `shadow="true"`; registered by the first check in shadow mode.
    watched: OnceLock<Box<[AllowDeny]>>,
    /// The label values of `limits`, to register `watched` later.
    algorithms: Box<[&'static str]>,
    /// [`OVER`].
    over: Counter,
    /// [`DENY_CACHED`].
    recalled: Counter,
    /// [`CHECK_SECONDS`].
    seconds: Histogram,
    /// The label value of the policy's name.
    policy: SharedString,
}

/// The two counters of one limit.
struct AllowDeny {
    /// With `allowed="true"`.
    yes: Counter,
    /// With `allowed="false"`.
    no: Counter,
}

impl AllowDeny {
    /// Counts one check: an atomic increment, or nothing without a recorder.
    #[inline]
    fn count(&self, allowed: bool) {
        let counter = if allowed { &self.yes } else { &self.no };
        counter.increment(1);
    }
}

impl PolicyMetrics {
    /// Registers the metrics of a policy with the installed recorder.
    pub(crate) fn new(policy: &Arc<str>, limits: &[Limit]) -> PolicyMetrics {
        let name = SharedString::from(Arc::clone(policy));
        // `counter!` asks the recorder for a handle, which stays valid for the life of the process.
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

    /// Counts a check under the limit that the decision reports.
    #[inline]
    pub(crate) fn count_decision(&self, decision: &Decision) {
        let limits = self.counters(decision.is_enforced);
        // A store of another crate may report a limit that the policy does not have.
        if let Some(limit) = limits.get(decision.binding) {
            limit.count(decision.is_allowed());
        }
        if decision.is_over {
            self.over.increment(1);
        }
    }

    /// The counters of all limits, in shadow mode or not.
    #[inline]
    fn counters(&self, is_enforced: bool) -> &[AllowDeny] {
        if is_enforced {
            &self.limits
        } else {
            self.watched.get_or_init(|| self.shadow_counters())
        }
    }

    /// Counts a check of the failure modes `Open` and `Closed`, under the first limit: no limit was evaluated.
    pub(crate) fn count_without_decision(&self, allowed: bool) {
        if let Some(limit) = self.limits.first() {
            limit.count(allowed);
        }
    }

    /// Counts a check that the deny cache denied.
    pub(crate) fn count_deny_cache_hit(&self) {
        self.recalled.increment(1);
    }

    /// Registers the counters with `shadow="true"`.
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

    /// Records the duration of a check.
    pub(crate) fn record_duration(&self, span: Duration) {
        self.seconds.record(span);
    }

    /// Counts a check that the failure mode decided. Outages are rare, so the counter is looked up.
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

/// Returns the start time of a check, for one check in 64 on each thread.
///
/// Reading the clock twice would cost as much as a decision of the memory store.
pub(crate) fn sample_start() -> Option<Instant> {
    // A thread-local turn: an atomic that all threads increment would be contended.
    thread_local!(static TURN: Cell<u8> = const { Cell::new(0) });
    let turn = TURN.with(|turn| turn.replace(turn.get().wrapping_add(1)));
    turn.is_multiple_of(64).then(Instant::now)
}

/// Sets the gauges of all memory stores of the process.
#[expect(clippy::cast_precision_loss, reason = "no machine has 2^53 bytes")]
pub(crate) fn memory_held(keys: usize, bytes: usize) {
    gauge!(MEMORY_KEYS).set(keys as f64);
    gauge!(MEMORY_BYTES).set(bytes as f64);
}

/// Sets the counters of all evictions since the start of the process.
pub(crate) fn memory_evicted(with_budget: u64, crowded_out: u64, exhausted: u64, receipts: u64) {
    // Absolute values: the sums are kept elsewhere, and a report may come later than another.
    counter!(MEMORY_EVICTIONS, "kind" => "with_budget").absolute(with_budget);
    counter!(MEMORY_EVICTIONS, "kind" => "crowded_out").absolute(crowded_out);
    counter!(MEMORY_EVICTIONS, "kind" => "exhausted").absolute(exhausted);
    counter!(MEMORY_EVICTIONS, "kind" => "receipt").absolute(receipts);
}

#[cfg(feature = "redis")]
pub(crate) use self::of_redis::*;

/// Metrics of the Redis store. They are looked up by label on each call: a round trip costs far more.
#[cfg(feature = "redis")]
mod of_redis {
    use metrics::gauge;

    use super::{
        AMBIGUOUS, Arc, CONNECTS, Duration, EVICTED, REDIS_MEMORY, REPLACED_STATES,
        ROUND_TRIP_SECONDS, SERVER_INFO, SLOW_CALLS, STORE_UP, SharedString, TASK_RESTARTS,
        counter, histogram,
    };

    /// Sets whether a server decides.
    pub(crate) fn store_up(server: &str, up: bool) {
        gauge!(STORE_UP, "server" => server.to_owned()).set(i32::from(up));
    }

    /// Sets the gauge of a server that is no longer used to NaN, so that an alert on its last value ends.
    pub(crate) fn store_removed(server: &str) {
        gauge!(STORE_UP, "server" => server.to_owned()).set(f64::NAN);
    }

    /// Counts an attempt to connect after the first one.
    pub(crate) fn reconnecting(server: &str) {
        counter!(CONNECTS, "server" => server.to_owned()).increment(1);
    }

    /// Counts a call whose reply was lost.
    pub(crate) fn ambiguous() {
        counter!(AMBIGUOUS).increment(1);
    }

    /// Records the duration of a call.
    pub(crate) fn round_trip(span: Duration) {
        histogram!(ROUND_TRIP_SECONDS).record(span);
    }

    /// Counts a call that was not answered within its time budget, and records the time until the time-out.
    ///
    /// Without that record the histogram would show only the calls that were fast enough.
    pub(crate) fn slow_call(server: &str, elapsed: Duration) {
        counter!(SLOW_CALLS, "server" => server.to_owned()).increment(1);
        round_trip(elapsed);
    }

    /// Registers the counters of a server at 0, so that `rate()` sees their first event as an increase.
    pub(crate) fn register_counters(server: &str) {
        counter!(SLOW_CALLS, "server" => server.to_owned()).increment(0);
        counter!(CONNECTS, "server" => server.to_owned()).increment(0);
    }

    /// Sets the version of the connected server.
    pub(crate) fn server_version(version: &str) {
        gauge!(SERVER_INFO, "version" => version.to_owned()).set(1);
    }

    /// Sets the evictions that a server reports since its start.
    pub(crate) fn evicted(server: &str, keys: u64) {
        counter!(EVICTED, "server" => server.to_owned()).absolute(keys);
    }

    /// Counts a hit that replaced the state of another algorithm.
    pub(crate) fn replaced_state(policy: &Arc<str>) {
        let policy = SharedString::from_shared(Arc::clone(policy));
        counter!(REPLACED_STATES, "policy" => policy).increment(1);
    }

    /// Sets the part of its memory that a server uses.
    ///
    /// NaN for `None`, so that an alert on its last value ends.
    #[expect(clippy::float_arithmetic, reason = "Prometheus expects a ratio")]
    pub(crate) fn redis_memory(server: &str, percent: Option<u64>) {
        let percent = percent.map(|percent| u32::try_from(percent).unwrap_or(u32::MAX));
        let ratio = percent.map_or(f64::NAN, |percent| f64::from(percent) / 100.0);
        gauge!(REDIS_MEMORY, "server" => server.to_owned()).set(ratio);
    }

    /// Counts a restart of a background task.
    pub(crate) fn task_restarted() {
        counter!(TASK_RESTARTS).increment(1);
    }
}
