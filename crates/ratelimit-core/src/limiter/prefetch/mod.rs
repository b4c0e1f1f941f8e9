//! Prefetching: hits on hot keys are paid from memory, by blocks of units that the store has charged before.
//!
//! - `block.rs`: a block, and how long its units may be spent. `clock.rs`: how its age is measured.
//! - `hot_key.rs`: the blocks of one key, and the task that takes and returns them.
//!
//! A check calls [`HotKeys::try_spend`] before the deny cache and the store, and [`HotKeys::replied`] after the store's
//! reply. `docs/guides/prefetch.md` has the rules and their bounds.

mod block;
mod clock;
mod hot_key;

use std::{
    array,
    collections::BTreeSet,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ahash::RandomState;

use self::{
    block::{Block, BlockSize, share_of, with_units},
    clock::{AgeClock, Moment},
    hot_key::{HotKey, RefillTask},
};
use crate::{
    decision::Decision,
    limiter::Limiter,
    policy::{Overdraft, Policy},
    store::Hit,
    sync::lock,
    time::Clock,
};

/// The hits within the life of a block that make a key hot.
const HOT_HITS: u64 = 16;
/// Sets of the table; the hash of the budgets chooses the set.
const SETS: usize = 1 << 10;
/// Hot keys in a set. Hits on a further one are sent to the store.
const WAYS: usize = 8;
/// Counts of keys that are not hot, in 128 KiB. Two keys that share one only become hot too early.
const COUNTS: usize = 1 << 14;
/// Policies that a warning is logged for, at most.
const MAX_WARNED: usize = 1_000;

/// The hot keys of a limiter, 8,192 at most, and the counts of the others.
///
/// - Only hits of policies with [`Policy::with_prefetch`] come here, on a store that answers over a network.
/// - A hot key has a background task on the current tokio runtime until it is idle or the store denies a block. Without a
///   runtime nothing is prefetched.
/// - A hit that no block pays is sent to the store.
pub(super) struct HotKeys {
    clock: AgeClock,
    /// Keyed at random for each table: a client cannot choose keys that fall into one set.
    hasher: RandomState,
    /// A key is gone when its task ends.
    sets: Box<[Mutex<[Weak<HotKey>; WAYS]>]>,
    counts: Box<[AtomicU64]>,
    /// The policies that a warning was logged for.
    warned: Mutex<BTreeSet<String>>,
}

impl HotKeys {
    /// No hot keys, for a store that decides on the manual `clock` or on a real one.
    pub(super) fn new(clock: Option<Clock>) -> HotKeys {
        let set = |_| Mutex::new(array::from_fn(|_| Weak::new()));
        HotKeys {
            clock: AgeClock::new(clock),
            hasher: RandomState::new(),
            sets: (0..SETS).map(set).collect(),
            counts: (0..COUNTS).map(|_| AtomicU64::new(0)).collect(),
            warned: Mutex::default(),
        }
    }

    /// Pays a hit from memory. `None` if the store has to decide.
    ///
    /// A hit with a number goes to the store: its charge may be refunded or released later by its receipt.
    #[inline]
    pub(super) fn try_spend(&self, hit: &Hit<'_>) -> Option<Decision> {
        if hit.policy.prefetch().is_none() || hit.is_read_only() || hit.slot != 0 {
            return None;
        }
        let key = self.find(self.hash(hit), hit)?;
        key.try_spend(hit.cost, self.clock.now())
    }

    /// Takes up the reply of the store to a hit that was sent: counts the hit, and adds the units in memory to a peek.
    #[inline]
    pub(super) fn replied(&self, limiter: &Limiter, hit: &Hit<'_>, decision: &mut Decision) {
        if hit.policy.prefetch().is_some() && hit.slot == 0 && decision.is_allowed() {
            if hit.is_read_only() {
                self.add_units(hit, decision);
            } else {
                self.count_hit(limiter, hit, decision);
            }
        }
    }

    fn add_units(&self, hit: &Hit<'_>, decision: &mut Decision) {
        let units = self.units_left(hit);
        if units > 0 {
            *decision = with_units(decision, units, decision.now);
        }
    }

    /// The units in memory for the budgets of a hit.
    fn units_left(&self, hit: &Hit<'_>) -> u64 {
        let key = self.find(self.hash(hit), hit);
        key.map_or(0, |key| lock(&key.blocks).left(self.clock.now()))
    }

    /// Counts a hit that the store allowed. The key becomes hot after enough of them, if a block fits.
    #[inline(never)]
    fn count_hit(&self, limiter: &Limiter, hit: &Hit<'_>, decision: &Decision) {
        let size = BlockSize::of(hit.policy);
        let fits = decision.limits().all(|limit| limit.remaining >= size.units);
        if !fits || !size.is_worth(hit.cost) || !limiter.shared.store.decides_in_one_step(hit) {
            return;
        }
        let hash = self.hash(hit);
        if !self.count(hash, size.life, self.clock.now()) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut block = hit.cost(size.units).overdraft(Overdraft::Refused);
        block.deadline = None;
        if let Some(key) = self.insert(hash, block) {
            let task = RefillTask {
                limiter: Arc::downgrade(&limiter.shared),
                store: Arc::clone(&limiter.shared.store),
                clock: self.clock.clone(),
                key,
            };
            runtime.spawn(task.run());
        }
    }

    /// Counts a hit on a key that is not hot. Returns whether there were enough within `span` microseconds.
    ///
    /// Threads may overwrite each other's counts. A key then becomes hot a little later.
    fn count(&self, hash: u64, span: u64, now: Moment) -> bool {
        let count = &self.counts[index(hash >> 32, COUNTS)];
        let packed = count.load(Ordering::Relaxed);
        // The start in the low 48 bits, 8 years of microseconds; the hits in the high 16.
        let (since, hits) = (packed & START_MASK, packed >> START_BITS);
        let start = now.monotonic() & START_MASK;
        let (since, hits) = if start.wrapping_sub(since) & START_MASK > span {
            (start, 1)
        } else {
            (since, hits + 1)
        };
        let is_hot = hits >= HOT_HITS;
        let packed = if is_hot {
            0
        } else {
            hits << START_BITS | since
        };
        count.store(packed, Ordering::Relaxed);
        is_hot
    }

    /// Identifies the budgets of a hit, in their order.
    #[inline]
    fn hash(&self, hit: &Hit<'_>) -> u64 {
        let groups = hit.policy.groups().iter();
        groups.fold(0, |hash: u64, group| {
            let key = self.hasher.hash_one(hit.key_for(group).as_str());
            hash.rotate_left(1) ^ key ^ group.name_hash
        })
    }

    /// The hot key of the budgets and limits of a hit.
    fn find(&self, hash: u64, hit: &Hit<'_>) -> Option<Arc<HotKey>> {
        let set = lock(self.set(hash));
        let mut keys = set.iter().filter_map(Weak::upgrade);
        keys.find(|key| key.hash == hash && key.is_of(hit))
    }

    /// Adds the key of a hit that charges blocks. `None` if its set is full, or another thread has added it.
    fn insert(&self, hash: u64, block: Hit<'_>) -> Option<Arc<HotKey>> {
        let mut set = lock(self.set(hash));
        let mut keys = set.iter().filter_map(Weak::upgrade);
        if keys.any(|key| key.hash == hash && key.is_of(&block)) {
            return None;
        }
        let free = set.iter_mut().find(|key| key.strong_count() == 0)?;
        let key = Arc::new(HotKey::new(hash, block));
        *free = Arc::downgrade(&key);
        Some(key)
    }

    /// The keys that share the lowest bits of a hash.
    fn set(&self, hash: u64) -> &Mutex<[Weak<HotKey>; WAYS]> {
        &self.sets[index(hash, SETS)]
    }

    fn all(&self) -> Vec<Arc<HotKey>> {
        let live = |set: &Mutex<[Weak<HotKey>; WAYS]>| -> Vec<Arc<HotKey>> {
            lock(set).iter().filter_map(Weak::upgrade).collect()
        };
        self.sets.iter().flat_map(live).collect()
    }

    /// Drops the blocks of every key that shares a budget with `hit`, because it was reset.
    pub(super) fn forget(&self, hit: Hit<'_>) {
        for key in self.all() {
            let its = key.hit.as_hit();
            let is_reset = |name| hit.budget_names().any(|reset| reset == name);
            if its.budget_names().any(is_reset) {
                let dropped = lock(&key.blocks).end();
                let units = dropped.iter().map(Block::unspent).sum();
                key.metrics.count_dropped(units);
                key.wake.notify_one();
            }
        }
    }

    /// Logs a warning once for each policy.
    fn warn_once(&self, policy: &Policy, message: &'static str) {
        let mut warned = lock(&self.warned);
        if warned.len() < MAX_WARNED && warned.insert(policy.name().to_owned()) {
            tracing::warn!(policy = policy.name(), "{message}");
        }
    }
}

impl Drop for HotKeys {
    /// Wakes the tasks, which return their blocks as long as their runtime runs.
    fn drop(&mut self) {
        for key in self.all() {
            key.wake.notify_one();
        }
    }
}

/// The bits of the start of a count.
const START_BITS: u32 = 48;
const START_MASK: u64 = (1 << START_BITS) - 1;

/// The place of a hash among `count`, a power of two.
fn index(hash: u64, count: usize) -> usize {
    usize::try_from(hash & (count as u64 - 1)).unwrap_or(0)
}

/// How the budgets of a hit are prefetched, as [`Limiter::prefetch_state`] returns it.
///
/// - The share and the block follow from the policy. They are known before the first hit.
/// - `on_hand` is what this limiter holds. Each instance has at most two blocks of a key.
/// - The server shows it in `explain`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrefetchState {
    /// The share of each limit that one block may charge, in percent.
    pub share_percent: u32,
    /// The share in units, for each limit of the policy. A block has the smallest of them; below four nothing is
    /// prefetched.
    pub slice_units: Vec<u64>,
    /// The longest time for which a block may be spent.
    pub hold: Duration,
    /// The units that this limiter holds and has not spent.
    pub on_hand: u64,
}

impl Limiter {
    /// Reports how the budgets of a hit are prefetched, without a call to the store.
    ///
    /// Returns `None` for a policy without [`with_prefetch`](Policy::with_prefetch), and on a memory store, which
    /// prefetches nothing.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy, store::Hit};
    ///
    /// let api = Policy::parse("api", "100000/s")?.with_prefetch(5)?;
    /// let state = Limiter::in_memory().prefetch_state(Hit::new(&api, &Key::new("alice")?));
    /// assert_eq!(state, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch_state(&self, hit: Hit<'_>) -> Option<PrefetchState> {
        let share_percent = hit.policy.prefetch()?;
        if self.shared.memory.is_some() {
            return None;
        }
        let limits = hit.policy.limits().iter();
        Some(PrefetchState {
            share_percent,
            slice_units: limits.map(|limit| share_of(limit, share_percent)).collect(),
            hold: Duration::from_micros(BlockSize::of(hit.policy).life),
            on_hand: self.shared.hot_keys.units_left(&hit),
        })
    }

    /// Returns what this limiter has prefetched and not spent, before a planned end.
    ///
    /// - The store has the units back before the future is ready, also those of a call that is under way.
    /// - A bucket that refills a block within a second needs no refund, and gets none.
    /// - Dropping the last clone of a limiter returns them in the background, as long as its tokio runtime runs.
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
        for key in self.shared.hot_keys.all() {
            let _idle = key.calling.lock().await;
            let blocks = lock(&key.blocks).end();
            for mut block in blocks {
                if let Some(change) = block.refund(self.shared.hot_keys.clock.now()) {
                    let _ = self.adjust(block.receipt(), change).await;
                }
            }
            key.wake.notify_one();
        }
    }

    /// Logs once for each policy that a memory store prefetches nothing.
    #[cold]
    pub(super) fn warn_prefetch_in_memory(&self, policy: &Policy) {
        self.shared.hot_keys.warn_once(
            policy,
            "nothing is prefetched: a memory store decides without a round trip",
        );
    }
}

#[cfg(test)]
mod tests;
