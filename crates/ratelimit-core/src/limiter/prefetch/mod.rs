//! Prefetching: hot keys are decided from memory, with units that the store has charged before.
//!
//! - `slice.rs`: units that one call charged, and when each is void. `sizing.rs`: how many, and when.
//! - `hot_key.rs`: the state of one hot key. `table.rs`: all of them, and the counts of other keys.
//! - `keeper.rs`: the background task of a hot key. `age.rs`: the clock by which slices age. `state.rs`: the numbers of a
//!   key for operators.
//!
//! A check looks here first, then in the deny cache, then it asks the store. `docs/guides/prefetch.md` has the laws.

mod age;
mod hot_key;
mod keeper;
mod sizing;
mod slice;
mod state;
mod table;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

pub use self::state::PrefetchState;
use crate::limiter::{
    Limiter,
    prefetch::{
        age::PrefetchClock,
        hot_key::{HotAnswer, HotKey},
        keeper::{Keeper, return_units},
        sizing::{MIN_UNITS, Sizing},
        table::{HotEntry, HotKeys},
    },
};
use crate::{
    decision::{Charged, Outcome},
    limit::Limit,
    policy::Policy,
    store::{Hit, OwnedHit, Store, StoreError, StoreFuture},
    sync::lock,
    time::{Clock, Timestamp},
};

/// Policies that a warning is logged for, at most.
const MAX_WARNED: usize = 1_000;

/// The hot keys of a limiter.
///
/// - Only policies with [`Policy::with_prefetch`] come here, on a store that answers over a network.
/// - A key that is hit often gets a background task on the current tokio runtime, the keeper, until it is idle. Without
///   a runtime nothing is prefetched.
/// - A hit that the units on hand do not pay is sent to the store.
pub(super) struct Prefetch {
    clock: PrefetchClock,
    table: HotKeys,
    /// The policies that a warning was logged for.
    warned: Mutex<BTreeSet<String>>,
}

/// The part of a hit's answer that prefetching adds when the store decides.
pub(super) struct UnpaidHit {
    /// The hot key, whose units did not pay.
    entry: Arc<HotEntry>,
    prefetch: Arc<Prefetch>,
    store: Arc<dyn Store>,
    hit: OwnedHit,
}

impl Prefetch {
    /// No hot keys, for a store that decides on the manual `clock` or on a real one.
    pub(super) fn new(clock: Option<Clock>) -> Prefetch {
        Prefetch {
            clock: PrefetchClock::new(clock),
            table: HotKeys::new(),
            warned: Mutex::default(),
        }
    }

    /// Decides a hit from memory, or says how its answer by the store is used. A memory store prefetches nothing.
    pub(super) fn check(
        limiter: &Limiter,
        hit: &Hit<'_>,
    ) -> Result<Charged, Option<Box<UnpaidHit>>> {
        if limiter.shared.memory.is_some() {
            limiter.warn_prefetch_in_memory(hit.policy);
            return Err(None);
        }
        let prefetch = &limiter.shared.prefetch;
        let hash = prefetch.table.hash(hit);
        let answer = prefetch.table.with(hash, hit, |entry| {
            prefetch
                .check_hot(entry, hit)
                .ok_or_else(|| Arc::clone(entry))
        });
        match answer {
            Some(Ok(charged)) => Ok(charged),
            Some(Err(entry)) => Err(Some(Box::new(UnpaidHit::new(limiter, hit, entry)))),
            None => {
                Prefetch::count_cold(limiter, hash, hit);
                Err(None)
            }
        }
    }

    /// Decides a hit on a hot key from memory; `None` if the store has to decide.
    fn check_hot(&self, entry: &HotEntry, hit: &Hit<'_>) -> Option<Charged> {
        if hit.is_read_only() {
            return None;
        }
        let now = self.clock.now();
        let (answer, wakes) = lock(&entry.key).check(hit.policy, hit.cost, now);
        if wakes {
            entry.wake.notify_one();
        }
        let charged = match answer {
            HotAnswer::Ask => return None,
            HotAnswer::Paid(charge) => charge.charged(),
            HotAnswer::Decided(charged) => charged,
        };
        entry.metrics.count_hit();
        Some(charged)
    }

    /// Counts a hit on a key that is not hot, and starts to keep the key when four units were wanted within a hold.
    #[inline(never)]
    fn count_cold(limiter: &Limiter, hash: u64, hit: &Hit<'_>) {
        if hit.is_read_only() {
            return;
        }
        let prefetch = &limiter.shared.prefetch;
        let policy = hit.policy;
        let Some(share) = policy.prefetch() else {
            return;
        };
        let sizing = Sizing::new(policy.limits().iter(), share, policy.cost().get());
        if !sizing.is_prefetchable() {
            return;
        }
        let now = prefetch.clock.now();
        let count = prefetch
            .table
            .count_cold(hash, hit.cost, sizing.hold(), now);
        if count.units < MIN_UNITS {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let key = HotKey::new(policy, count.units, count.since, now);
        if let Some(entry) = prefetch.table.insert(hash, hit, key) {
            let keeper = Keeper {
                prefetch: Arc::downgrade(prefetch),
                clock: prefetch.clock.clone(),
                store: Arc::clone(&limiter.shared.store),
                entry,
                fallback: limiter
                    .falls_back_locally(policy)
                    .then(|| Arc::clone(&limiter.shared.fallback)),
            };
            runtime.spawn(keeper.run());
        }
    }

    /// Drops the slices of every key that shares a budget with `hit`, because it was reset.
    pub(super) fn forget(&self, hit: Hit<'_>) {
        let shares_budget = |entry: &HotEntry| {
            let mut names = entry.hit.as_hit().budget_names();
            names.any(|name| hit.budget_names().any(|reset| reset == name))
        };
        let now = self.clock.now();
        for entry in self.table.drain(shares_budget) {
            let dropped = lock(&entry.key).usable_at(now);
            lock(&entry.key).end(now);
            entry.metrics.count_dropped(dropped);
            entry.wake.notify_one();
        }
    }

    /// Gives refunded units back to the slice that paid them, without a call. Returns `false` if the slice is gone, or
    /// some of it is void.
    pub(super) fn try_unspend(&self, hit: &Hit<'_>, slice: Timestamp, units: u64) -> bool {
        let (hash, now) = (self.table.hash(hit), self.clock.now());
        let unspent = self.table.with(hash, hit, |entry| {
            lock(&entry.key).try_unspend(slice, units, now)
        });
        unspent.unwrap_or(false)
    }

    /// Logs once for each policy that its share is too small for the round trip.
    fn warn_far(&self, policy: &Policy, needed: Option<u64>) {
        let Some(needed) = needed else {
            return;
        };
        if self.is_first_warning(policy) {
            tracing::warn!(
                policy = policy.name(),
                "nothing is prefetched: two round trips to the store are longer than the share lasts; a share of \
                 {needed}% would do"
            );
        }
    }

    /// Whether no warning about this policy was logged before.
    fn is_first_warning(&self, policy: &Policy) -> bool {
        let mut warned = lock(&self.warned);
        warned.len() < MAX_WARNED && warned.insert(policy.name().to_owned())
    }
}

impl Drop for Prefetch {
    /// Wakes the keepers, which give back what windows count, as long as their runtime runs.
    fn drop(&mut self) {
        for entry in self.table.drain(|_| true) {
            entry.wake.notify_one();
        }
    }
}

impl UnpaidHit {
    /// A hit that the units of `entry` did not pay.
    #[inline(never)]
    fn new(limiter: &Limiter, hit: &Hit<'_>, entry: Arc<HotEntry>) -> UnpaidHit {
        UnpaidHit {
            prefetch: Arc::clone(&limiter.shared.prefetch),
            store: Arc::clone(&limiter.shared.store),
            hit: OwnedHit::new(*hit),
            entry,
        }
    }

    /// Awaits the decision of the store, and adds what this instance has on hand.
    ///
    /// - A peek reports the units on hand beside those of the store.
    /// - A denied hit whose cost the units on hand pay in part asks the store for the rest.
    /// - Another denial makes the key scarce.
    pub(super) fn complete(self, answer: StoreFuture<Charged>) -> StoreFuture<Charged> {
        StoreFuture::pending(async move {
            let answer = answer.await?;
            self.add(answer).await
        })
    }

    /// Pays a hit that the store denied from units on hand and from the store together.
    async fn add(self, charged: Charged) -> Result<Charged, StoreError> {
        let hit = self.hit.as_hit();
        let now = self.prefetch.clock.now();
        let Outcome::Denied { retry_after } = charged.decision.outcome else {
            if hit.is_read_only() {
                let units = lock(&self.entry.key).usable_at(now);
                return Ok(charged.map(|decision| decision.with_units_on_hand(units)));
            }
            return Ok(charged);
        };
        if hit.is_read_only() {
            return Ok(charged);
        }
        let (aside, units) = {
            let mut key = lock(&self.entry.key);
            key.record_denial(hit.policy, hit.cost, retry_after, now);
            let units = key.usable_at(now);
            if units == 0 || units >= hit.cost {
                return Ok(charged);
            }
            (key.set_aside(), units)
        };
        // The rest of the cost is unpaid of the store. Units that become void meanwhile do not pay, and the store's part
        // is lost then.
        let rest = self.store.hit(hit.cost(hit.cost - units)).await;
        let now = self.prefetch.clock.now();
        let rest = rest.ok().filter(|charged| charged.is_allowed());
        let unpaid = if rest.is_some() { units } else { 0 };
        let is_paid = lock(&self.entry.key).put_back(aside, unpaid, now);
        let limits = hit.policy.limits().iter().map(Limit::is_window);
        let paid = rest.filter(|_| is_paid);
        Ok(paid.map_or(charged, |paid| paid.refundable_in_windows(limits)))
    }
}

impl Limiter {
    /// Gives back what this limiter has prefetched and not spent, before a planned end.
    ///
    /// - Windows and counters get the units back before the future is ready, also those of a call that is under way.
    /// - Units of a bucket are not sent back: the bucket refills them by itself, at the latest in the time in which it
    ///   fills.
    /// - Dropping the last clone of a limiter gives back in the background, as long as its tokio runtime runs.
    ///
    /// ```
    /// use ratelimit_core::Limiter;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    ///
    /// let limiter = Limiter::in_memory();
    /// limiter.return_prefetched().await; // a memory store prefetches nothing
    /// # }
    /// ```
    pub async fn return_prefetched(&self) {
        let shared = &self.shared;
        for entry in shared.prefetch.table.drain(|_| true) {
            let _idle = entry.calling.lock().await;
            return_units(&*shared.store, &entry, shared.prefetch.clock.now()).await;
            entry.wake.notify_one();
        }
    }

    /// Logs once for each policy that a memory store prefetches nothing.
    #[cold]
    pub(super) fn warn_prefetch_in_memory(&self, policy: &Policy) {
        if self.shared.prefetch.is_first_warning(policy) {
            tracing::warn!(
                policy = policy.name(),
                "nothing is prefetched: a memory store decides without a round trip"
            );
        }
    }
}

#[cfg(test)]
mod tests;
