//! The local fallback: decides while the store does not answer, from what the store replied last.
//!
//! - Every reply of the store sets the local budgets of its keys ([`Fallback::mirror`]).
//! - A hit without a reply is decided and charged there ([`Fallback::decide`]). A key without a reply starts full.
//! - A hit that passed and that the store certainly did not charge is owed (`owed.rs`). It is charged to the store when
//!   that answers again (`catch_up.rs`).
//!
//! `docs/explain/failure.md` states what passes at most during an outage.

#[cfg(feature = "tokio")]
mod catch_up;
mod owed;

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::limiter::fallback::owed::OwedHits;
use crate::{
    budget::Adjustment,
    decision::{Decision, IsOwed},
    key_set::KeySet,
    policy::Policy,
    store::{ChargedBy, Hit, MemoryStore, Receipt, Store, StoreError},
    time::{Clock, StoreClock},
};
#[cfg(feature = "tokio")]
use crate::{metrics, policy::MAX_LIMITS, store::PrefetchGrant, time::Timestamp};

/// Keys of the local fallback unless [`Limiter::local_capacity`](crate::Limiter::local_capacity) sets another number.
const DEFAULT_KEYS: usize = 65_536;
/// Bytes of the local fallback: what 65,536 keys take, with room for logs.
const MAX_BYTES: usize = 256 << 20;
/// `retry_after` of a hit that costs more than the local share: a store that is back decides within this time.
pub(super) const STORE_RETRY: Duration = Duration::from_secs(1);

/// The budgets of this process that stand in for those of the store.
///
/// - `local` has the levels of the last replies, plus what was charged here since. Its clock is that of the store.
/// - `owed` has the hits that the store is charged for later. A reply replaces the levels of `local`, and what is owed is
///   added again: the store does not know it yet.
/// - Lock order: `owed`, then a shard of `local`.
/// - Modes `Open` and `Closed` use neither, and pay nothing for them.
#[derive(Debug)]
pub(super) struct Fallback {
    /// The mirrored budgets, on the time of the store.
    pub(super) local: MemoryStore,
    /// The time of the store, estimated between its replies.
    clock: Arc<StoreClock>,
    /// Hits that passed here and that the store did not charge.
    owed: OwedHits,
    /// Whether the task runs that charges them.
    #[cfg(feature = "tokio")]
    is_catching_up: std::sync::atomic::AtomicBool,
}

impl Fallback {
    /// An empty fallback for a store that decides on the manual `clock`, or on one of its own.
    pub(super) fn new(clock: Option<Clock>) -> Fallback {
        let clock = Arc::new(StoreClock::new(clock));
        Fallback {
            local: local_store(&clock, DEFAULT_KEYS),
            clock,
            owed: OwedHits::default(),
            #[cfg(feature = "tokio")]
            is_catching_up: false.into(),
        }
    }

    /// An empty fallback with room for `keys` keys.
    pub(super) fn with_capacity(&self, keys: usize) -> Fallback {
        Fallback {
            local: local_store(&self.clock, keys),
            clock: Arc::clone(&self.clock),
            owed: OwedHits::default(),
            #[cfg(feature = "tokio")]
            is_catching_up: false.into(),
        }
    }

    /// Sets the local budgets of a hit to those of the store, which replied at `received`.
    pub(super) fn mirror(&self, hit: &Hit<'_>, decision: &Decision, received: Instant) {
        self.clock.observe(decision.now, received);
        self.mirror_levels(hit, decision);
    }

    /// Sets the local budgets of a hit to those of the store, and adds what is owed to it.
    #[inline]
    fn mirror_levels(&self, hit: &Hit<'_>, decision: &Decision) {
        if self.owed.is_empty() {
            self.local.mirror(hit, decision);
            return;
        }
        // Under the lock, so that no hit is decided between the two steps.
        let owed = self.owed.lock();
        let replaced = self.local.mirror(hit, decision);
        let now = self.local.now();
        for (number, group) in hit.policy.groups().iter().enumerate() {
            if replaced & (1 << number) == 0 {
                continue;
            }
            for (charged_at, units) in owed.calls_of(hit, group, now) {
                if let Some(receipt) = Receipt::of_owed(hit, charged_at) {
                    self.local.adjust(&receipt, Adjustment::CatchUp { units });
                }
            }
        }
    }

    /// Sets the local budgets to those of a grant of prefetched units, which the store has charged.
    #[cfg(feature = "tokio")]
    pub(super) fn mirror_grant(&self, hit: &Hit<'_>, grant: &PrefetchGrant, received: Instant) {
        self.mirror(hit, grant.decision(), received);
        let units = [grant.units(); MAX_LIMITS];
        if let Some(receipt) = Receipt::of_owed(hit, grant.decision().now) {
            self.local.adjust(&receipt, Adjustment::CatchUp { units });
        }
    }

    /// Decides a hit that the store did not, and charges it here. `instances` divide what is left.
    ///
    /// - A hit that the store certainly did not charge is owed, if it passes and a limit counts units.
    /// - A call without a reply is ambiguous: the hit is charged here until the next reply, and not owed. A late reply
    ///   resolves it ([`resolve`](Self::resolve)).
    /// - Peeks and dry runs charge nothing.
    pub(super) fn decide(
        self: &Arc<Fallback>,
        hit: &Hit<'_>,
        instances: Option<NonZeroU32>,
        error: &StoreError,
        store: &Arc<dyn Store>,
    ) -> Decision {
        // Without tokio no task can charge the store later.
        let may_owe = cfg!(feature = "tokio") && hit.policy.counts_units();
        if hit.is_read_only() || !may_owe {
            return self.check(hit, instances);
        }
        if !error.charged_nothing() {
            let decision = self.check(hit, instances);
            #[cfg(feature = "tokio")]
            if decision.is_allowed() {
                catch_up::await_late_reply(self, store, hit, decision.now, error);
            }
            return decision;
        }
        let mut owed = self.owed.lock();
        let mut decision = self.check(hit, instances);
        if decision.is_allowed() {
            decision.is_owed = IsOwed(owed.add(hit, hit.cost, decision.now));
        }
        drop(owed);
        if decision.is_owed.0 {
            self.start_catch_up(store);
        }
        decision
    }

    /// Takes up the late reply to a hit that passed here at `charged_at`: one that the store denied, or did not execute
    /// (`None`), is owed.
    #[cfg(feature = "tokio")]
    fn resolve(
        self: &Arc<Fallback>,
        hit: &Hit<'_>,
        charged_at: Timestamp,
        reply: Option<&Decision>,
        store: &Arc<dyn Store>,
    ) {
        let is_charged = reply.is_some_and(Decision::is_allowed);
        metrics::count_late_reply(is_charged);
        if !is_charged {
            self.owed.lock().add(hit, hit.cost, charged_at);
        }
        if let Some(decision) = reply {
            // Not for the clock, which would be behind by as much as the reply is late.
            self.mirror_levels(hit, decision);
        }
        if !is_charged {
            self.start_catch_up(store);
        }
    }

    /// Denies a hit on a budget that is spent by hits which the store has not been charged for yet. The store would allow
    /// it. Such a hit also starts the task that charges them, if its runtime has ended.
    #[inline]
    pub(super) fn deny_while_owed(
        self: &Arc<Fallback>,
        hit: &Hit<'_>,
        store: &Arc<dyn Store>,
    ) -> Option<Decision> {
        if self.owed.is_empty() {
            return None;
        }
        self.deny_owed(hit, store)
    }

    #[inline(never)]
    fn deny_owed(self: &Arc<Fallback>, hit: &Hit<'_>, store: &Arc<dyn Store>) -> Option<Decision> {
        self.start_catch_up(store);
        let owed = self.owed.lock();
        let decision = owed.has(hit).then(|| self.local.check(&hit.dry_run()));
        decision.filter(|decision| !decision.is_allowed())
    }

    /// Starts the task that charges owed hits, unless it runs.
    fn start_catch_up(self: &Arc<Fallback>, store: &Arc<dyn Store>) {
        #[cfg(feature = "tokio")]
        catch_up::start(self, store);
        #[cfg(not(feature = "tokio"))]
        let _ = (self, store);
    }

    /// Decides a hit by the local budgets, whole or divided among `instances`.
    ///
    /// A share is made of what is left once after each reply; after that it has limits of its own.
    fn check(&self, hit: &Hit<'_>, instances: Option<NonZeroU32>) -> Decision {
        let Some(instances) = instances else {
            return self.local.check(hit);
        };
        let share = hit.policy.share_of(instances);
        self.local.take_share(hit, &share, instances);
        let decision = self.local.check(&hit.with_policy(&share));
        // A cost above the share, but not above the limit, passes when the store is back: it is denied with a
        // wait in place of `Impossible`.
        if hit.can_ever_fit() {
            decision.possible_after(STORE_RETRY)
        } else {
            decision
        }
    }

    /// Applies a change of a local charge to what is owed: the store does not know the hit.
    ///
    /// Hits that have been charged already stay charged.
    pub(super) fn adjust_owed(
        self: &Arc<Fallback>,
        receipt: &Receipt,
        change: Adjustment,
        store: &Arc<dyn Store>,
    ) {
        let hit = Hit::for_keys(receipt.policy(), receipt.keys());
        let now = self.local.now();
        match change {
            Adjustment::Refund { units } => {
                let units = units.min(receipt.cost());
                self.owed.lock().remove(&hit, units, now);
            }
            // The limits of a share are not those of the store: what a share is charged later stays local.
            Adjustment::Charge { units } if receipt.charged_by() == ChargedBy::Local => {
                self.owed.lock().add(&hit, units, now);
                self.start_catch_up(store);
            }
            _ => {}
        }
    }

    /// Forgets what is owed of these keys.
    pub(super) fn forget_owed(&self, policy: &Policy, keys: &KeySet) {
        if !self.owed.is_empty() {
            self.owed.lock().forget(&Hit::for_keys(policy, keys));
        }
    }
}

/// A memory store on the time of the shared store.
fn local_store(clock: &Arc<StoreClock>, keys: usize) -> MemoryStore {
    MemoryStore::new()
        .capacity(keys)
        .max_bytes(MAX_BYTES)
        .clock(Clock::of_store(Arc::clone(clock)))
}

#[cfg(feature = "tokio")]
#[cfg(test)]
mod tests;
