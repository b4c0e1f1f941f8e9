//! Resets: clearing what keys have spent.

use std::iter;

use crate::limiter::Limiter;
use crate::{
    key::Key,
    key_set::KeySet,
    policy::Policy,
    store::{Hit, Store as _, StoreError},
};

impl Limiter {
    /// Clears what `key` has spent under `policy`, in all its tiers.
    ///
    /// - Held concurrency slots and blocks of penalty boxes are cleared too.
    /// - Receipts from before the reset refund nothing.
    /// - Limits with `by` are reset for `key` only; see [`reset_keys`](Limiter::reset_keys).
    /// - The deny caches of other processes may deny the key for one more second.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let login = Policy::parse("login", "1/h")?;
    /// let alice = Key::new("alice")?;
    /// assert!(limiter.check(&login, &alice).await.is_allowed());
    /// assert!(!limiter.check(&login, &alice).await.is_allowed());
    ///
    /// limiter.reset(&login, &alice).await?;
    /// assert!(limiter.check(&login, &alice).await.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`StoreError`] when the store does not answer. The local store is reset nevertheless.
    pub async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), StoreError> {
        self.reset_keys(policy, &KeySet::new(key.clone())).await
    }

    /// Clears what all `keys` have spent under `policy`, in all its tiers.
    ///
    /// Each limit is reset for the key that it counts by. Dropping the future may leave some budgets reset and others not.
    ///
    /// # Errors
    ///
    /// The first [`StoreError`] when the store does not answer. The other budgets and the local store are reset
    /// nevertheless.
    pub async fn reset_keys(&self, policy: &Policy, keys: &KeySet) -> Result<(), StoreError> {
        let shared = &self.shared;
        let mut answer = Ok(());
        for part in covering(policy) {
            let (local, remote) = (
                shared.fallback.local.reset(part, keys),
                shared.store.reset(part, keys),
            );
            shared.fallback.forget(part, keys);
            answer = answer.and(local.await).and(remote.await);
            // After the reset: a denial that was in flight during it must not enter the cache.
            shared.deny_cache.invalidate(Hit::for_keys(part, keys));
            shared.prefetch.forget(Hit::for_keys(part, keys));
        }
        answer
    }
}

/// The policy, and those of its tiers that have budgets under other names.
///
/// Together they name every budget that a key can have under the policy, and no budget is reset twice.
fn covering(policy: &Policy) -> impl Iterator<Item = &Policy> {
    let mut names: Vec<&str> = Vec::new();
    let tiers = policy.tiers().map(|(_, tier)| tier);
    iter::once(policy).chain(tiers).filter(move |part| {
        let known = names.len();
        for group in part.groups() {
            if !names.contains(&&*group.name) {
                names.push(&group.name);
            }
        }
        names.len() > known
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        decision::Charged,
        policy::FailureMode,
        store::{MemoryStore, Store, StoreFuture},
        time::{Clock, Timestamp},
    };

    /// A memory store that answers when its future is polled, so that denials are cached; or fails.
    #[derive(Debug)]
    struct CountingStore {
        store: MemoryStore,
        clock: Clock,
        is_up: bool,
    }

    impl CountingStore {
        fn new(is_up: bool) -> CountingStore {
            let clock = Clock::manual(Timestamp::from_secs(600));
            let store = MemoryStore::new().clock(clock.clone());
            CountingStore {
                store,
                clock,
                is_up,
            }
        }
    }

    impl Store for CountingStore {
        fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
            if !self.is_up {
                return StoreFuture::ready(Err(StoreError::TimedOut));
            }
            StoreFuture::pending(self.store.hit(hit))
        }

        fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
            if !self.is_up {
                return StoreFuture::ready(Err(StoreError::TimedOut));
            }
            StoreFuture::pending(self.store.reset(policy, keys))
        }

        fn manual_clock(&self) -> Option<Clock> {
            Some(self.clock.clone())
        }
    }

    /// Base policy and tiers that keep their budgets in different groups.
    fn tiered() -> Policy {
        let policy = Policy::parse("api", "3/h; 9/h by route").unwrap();
        let policy = policy.with_tier("pro", "5/h by ip; 7/h").unwrap();
        policy.with_tier("bulk", "2/h by tenant").unwrap()
    }

    fn keys() -> KeySet {
        let key = |name: &str| Key::new(name).unwrap();
        let keys = KeySet::new(key("alice")).with("ip", key("home"));
        keys.with("tenant", key("acme")).with("route", key("/"))
    }

    /// Spends all of each tier's budgets; `true` where one hit more is denied in every tier.
    async fn spend_all(limiter: &Limiter, policy: &Policy) -> bool {
        let keys = keys();
        let mut all_denied = true;
        for tier in ["", "pro", "bulk"] {
            let tier = policy.tier(tier);
            for _ in 0..10 {
                let _ = limiter.check_hit(Hit::for_keys(tier, &keys)).await;
            }
            all_denied &= !limiter
                .check_hit(Hit::for_keys(tier, &keys))
                .await
                .is_allowed();
        }
        all_denied
    }

    /// What is left of each limit in each tier.
    async fn remaining(limiter: &Limiter, policy: &Policy) -> Vec<Vec<u64>> {
        let keys = keys();
        let mut remaining = Vec::new();
        for tier in ["", "pro", "bulk"] {
            let look = limiter
                .check_hit(Hit::for_keys(policy.tier(tier), &keys).cost(0))
                .await;
            let limits = look.decision().unwrap().limits();
            remaining.push(limits.map(|limit| limit.remaining).collect());
        }
        remaining
    }

    const WHOLE: [&[u64]; 3] = [&[3, 9], &[5, 7], &[2]];

    #[tokio::test]
    async fn a_reset_covers_the_budgets_of_all_tiers() {
        let limiter = Limiter::new(CountingStore::new(true));
        let policy = tiered();
        assert!(spend_all(&limiter, &policy).await);

        limiter.reset_keys(&policy, &keys()).await.unwrap();

        assert_eq!(remaining(&limiter, &policy).await, WHOLE);
    }

    #[tokio::test]
    async fn a_reset_voids_the_cached_denials_of_all_tiers() {
        let limiter = Limiter::new(CountingStore::new(true));
        let policy = tiered();
        assert!(spend_all(&limiter, &policy).await);

        limiter.reset_keys(&policy, &keys()).await.unwrap();

        for tier in ["", "pro", "bulk"] {
            let keys = keys();
            let hit = Hit::for_keys(policy.tier(tier), &keys);
            assert!(limiter.check_hit(hit).await.is_allowed(), "tier {tier:?}");
        }
    }

    #[tokio::test]
    async fn a_reset_covers_the_local_budgets_also_when_the_store_fails() {
        let limiter = Limiter::new(CountingStore::new(false)).failure_mode(FailureMode::Local);
        let policy = tiered();
        assert!(spend_all(&limiter, &policy).await);

        assert!(limiter.reset_keys(&policy, &keys()).await.is_err());

        assert_eq!(remaining(&limiter, &policy).await, WHOLE);
    }
}
