//! Hits on a hot key that are decided from prefetched units.

use std::time::Duration;

use ratelimit_core::{
    Clock, Key, KeySet, Limiter, MemoryStore, Policy, Timestamp,
    store::{Charged, Hit, Store, StoreFuture},
};

use super::{Work, poll_now};

/// A memory store that answers as one over a network does.
#[derive(Debug)]
pub(super) struct PendingStore(pub(super) MemoryStore, pub(super) Clock);

impl Store for PendingStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        StoreFuture::pending(self.0.hit(hit))
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        StoreFuture::pending(self.0.reset(policy, keys))
    }

    fn manual_clock(&self) -> Option<Clock> {
        Some(self.1.clone())
    }
}

/// Hits that spend prefetched units of a token bucket.
///
/// # Panics
///
/// When the key does not become hot.
pub fn checks() -> Vec<Work> {
    // While the clock stands still no unit expires, and a block has 50 million of them.
    vec![check("prefetch.token_bucket.allowed", "100000000/s")]
}

fn check(name: &str, limits: &str) -> Work {
    let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
    let store = MemoryStore::new().clock(clock.clone());
    let limiter = Limiter::new(PendingStore(store, clock.clone()));
    let policy = Policy::parse("bench", limits).and_then(|policy| policy.with_prefetch(50));
    let policy = policy.expect("limits that can be prefetched");
    let key = Key::new("user:00000000").expect("a key");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        for round in 0..20_000 {
            let verdict = limiter.check(&policy, &key).await;
            let left = verdict.decision().expect("a decision");
            assert!(left.is_allowed());
            // The clock stands still for the last calls, so that the last block is whole.
            if round < 19_000 {
                clock.advance(Duration::from_micros(20));
            }
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        }
    });
    let verdict = poll_now(limiter.check(&policy, &key));
    let is_hot = verdict
        .decision()
        .is_some_and(|decision| decision.is_prefetched);
    assert!(is_hot, "{name} is decided from memory");
    Work::new(name, move || {
        // A key is hot as long as its task.
        let _ = &runtime;
        let _ = poll_now(limiter.check(&policy, &key));
    })
}
