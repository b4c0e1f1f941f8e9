//! Checks whose replies the local fallback follows.

use std::{rc::Rc, time::Duration};

use ratelimit_core::{
    Clock, FailureMode, Key, Limiter, MemoryStore, Policy, RedisConfig, RedisStore, Timestamp,
};

use super::{Work, poll_now, prefetch::PendingStore};
use crate::server::RedisServer;

/// Longer than anything takes under callgrind.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Policies by the names of their works. No run uses a budget up.
pub const LIMITS: [(&str, &str); 5] = [
    ("token_bucket", "token_bucket 1000000/s"),
    ("fixed_window", "fixed_window 1000000/s"),
    ("sliding_window_counter", "sliding_window_counter 1000000/s"),
    ("sliding_window_log", "sliding_window_log 10000/s"),
    ("two_limits", "1000000/s; fixed_window 1000000/min"),
];

/// Between two checks: a log keeps a thousand stamps.
const PAUSE: Duration = Duration::from_millis(1);

/// A check of each policy with the failure mode `Open`, which keeps nothing, and with `Local`.
///
/// The store is in this process, so that the difference of the two is exact.
///
/// # Panics
///
/// A work panics when its hit is denied.
pub fn checks() -> Vec<Work> {
    let modes = [("open", FailureMode::Open), ("local", FailureMode::Local)];
    let works = LIMITS.into_iter().flat_map(|(name, limits)| {
        modes.map(|(mode, failure_mode)| {
            let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
            let store = MemoryStore::new().clock(clock.clone());
            let limiter = Limiter::new(PendingStore(store, clock.clone()));
            let limiter = limiter.failure_mode(failure_mode);
            let (policy, key) = (policy(limits), key());
            Work::new(format!("fallback.{name}.{mode}"), move || {
                clock.advance(PAUSE);
                assert!(poll_now(limiter.check(&policy, &key)).is_allowed());
            })
        })
    });
    works.collect()
}

/// A check of each policy on Redis, without a local fallback.
///
/// The connection is served by the same thread, so that callgrind counts its instructions too.
///
/// # Panics
///
/// When there is no redis-server.
pub fn redis_checks() -> impl Iterator<Item = Work> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = Rc::new(runtime.expect("a runtime"));
    let server = Rc::new(RedisServer::start(&[]));
    LIMITS.into_iter().map(move |(name, limits)| {
        let (runtime, server) = (Rc::clone(&runtime), Rc::clone(&server));
        let store = runtime.block_on(connected(&server));
        let limiter = Limiter::new(store).failure_mode(FailureMode::Open);
        let (policy, key) = (policy(limits), key());
        Work::new(format!("client.{name}"), move || {
            let verdict = runtime.block_on(limiter.check(&policy, &key));
            assert!(verdict.is_allowed(), "by {}: {verdict:?}", server.url());
        })
    })
}

async fn connected(server: &RedisServer) -> RedisStore {
    let config = RedisConfig::new(&server.url()).expect("an address of Redis");
    let store = RedisStore::new(config.timeout(TIMEOUT).connect_timeout(TIMEOUT));
    assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
    store
}

fn policy(limits: &str) -> Policy {
    Policy::parse("counted", limits).expect("limits that are well formed")
}

fn key() -> Key {
    Key::new("user:12345678").expect("a key that is not empty")
}
