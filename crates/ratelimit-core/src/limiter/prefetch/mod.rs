//! Prefetching: hits on hot keys are paid from memory, by blocks of units that the store has charged before.
//!
//! - The rest of the engine knows [`Prefetch`] only. A check calls `try_spend` before the deny cache and the store, and
//!   `replied` after the store's reply.
//! - `hot_keys.rs`: finds the keys that are hit often. `hot_key.rs`: the blocks of one of them, and the task that takes
//!   and returns them.
//! - `block.rs`: a block, and how long its units may be spent. `clock.rs`: how its age is measured.
//!
//! `docs/guides/prefetch.md` has the rules and their bounds.

#[cfg(feature = "tokio")]
mod block;
#[cfg(feature = "tokio")]
mod clock;
#[cfg(feature = "tokio")]
mod hot_key;
#[cfg(feature = "tokio")]
mod hot_keys;
#[cfg(feature = "tokio")]
mod state;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

#[cfg(feature = "tokio")]
pub use self::state::PrefetchState;
#[cfg(feature = "tokio")]
use crate::store::StoreFuture;
use crate::{
    decision::Decision,
    limiter::Limiter,
    policy::Policy,
    store::{Hit, Store},
    sync::lock,
};

/// Policies that a warning is logged for, at most.
const MAX_WARNED: usize = 1_000;

/// Pays hits from memory, of policies with [`Policy::with_prefetch`].
pub(super) trait Prefetch: Send + Sync {
    /// Pays a hit. `None` if the store has to decide.
    fn try_spend(&self, hit: &Hit<'_>) -> Option<Decision>;

    /// Takes up the reply of the store to a hit that was sent: counts the hit, and adds the units in memory to a peek.
    fn replied(&self, limiter: &Limiter, hit: &Hit<'_>, decision: &mut Decision);

    /// The units in memory for the budgets of a hit.
    #[cfg(feature = "tokio")]
    fn units_left(&self, hit: &Hit<'_>) -> u64;

    /// Drops the units of all budgets of a hit, because they were reset.
    fn forget(&self, hit: Hit<'_>);

    /// Returns all units to the store.
    #[cfg(feature = "tokio")]
    fn return_all(self: Arc<Self>, limiter: Limiter) -> StoreFuture<()>;

    /// Warns once for each policy that asks for units and gets none here.
    fn announce(&self, policy: &Policy);
}

/// The prefetching of a limiter over `store`.
pub(super) fn over(store: &impl Store, is_memory: bool) -> Arc<dyn Prefetch> {
    if is_memory {
        return Arc::new(NoPrefetch::because(
            "nothing is prefetched: a memory store decides without a round trip",
        ));
    }
    #[cfg(feature = "tokio")]
    return Arc::new(hot_keys::HotKeys::new(store.manual_clock()));
    #[cfg(not(feature = "tokio"))]
    {
        let _ = store;
        Arc::new(NoPrefetch::because(
            "nothing is prefetched: ratelimit-core was built without its feature tokio",
        ))
    }
}

/// Prefetches nothing, and says why.
struct NoPrefetch {
    reason: &'static str,
    warned: WarnedPolicies,
}

impl NoPrefetch {
    fn because(reason: &'static str) -> NoPrefetch {
        NoPrefetch {
            reason,
            warned: WarnedPolicies::default(),
        }
    }
}

impl Prefetch for NoPrefetch {
    fn try_spend(&self, hit: &Hit<'_>) -> Option<Decision> {
        self.announce(hit.policy);
        None
    }

    fn replied(&self, _: &Limiter, _: &Hit<'_>, _: &mut Decision) {}

    #[cfg(feature = "tokio")]
    fn units_left(&self, _: &Hit<'_>) -> u64 {
        0
    }

    fn forget(&self, _: Hit<'_>) {}

    #[cfg(feature = "tokio")]
    fn return_all(self: Arc<Self>, _: Limiter) -> StoreFuture<()> {
        StoreFuture::ready(Ok(()))
    }

    #[cold]
    fn announce(&self, policy: &Policy) {
        self.warned.warn_once(policy, self.reason);
    }
}

/// The policies that a warning was logged for.
#[derive(Default)]
struct WarnedPolicies(Mutex<BTreeSet<String>>);

impl WarnedPolicies {
    /// Logs a warning once for each policy.
    fn warn_once(&self, policy: &Policy, message: &'static str) {
        let mut warned = lock(&self.0);
        if warned.len() < MAX_WARNED && warned.insert(policy.name().to_owned()) {
            tracing::warn!(policy = policy.name(), "{message}");
        }
    }
}

#[cfg(feature = "tokio")]
#[cfg(test)]
mod tests;
