//! The keys that are hit often enough to be prefetched.

use std::{
    array,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use ahash::RandomState;

use super::{
    Prefetch, WarnedPolicies,
    block::{Block, BlockSize, with_units},
    clock::{AgeClock, Moment},
    hot_key::{HotKey, RefillTask},
};
use crate::{
    decision::Decision,
    limiter::Limiter,
    policy::{Overdraft, Policy},
    store::{Hit, Receipt, StoreFuture},
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
    warned: Arc<WarnedPolicies>,
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
            warned: Arc::default(),
        }
    }

    fn add_units(&self, hit: &Hit<'_>, decision: &mut Decision) {
        let units = self.units_left(hit);
        if units > 0 {
            *decision = with_units(decision, units, decision.now);
        }
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
                warned: Arc::clone(&self.warned),
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
}

impl Prefetch for HotKeys {
    /// A hit with a number goes to the store: its charge may be refunded or released later by its receipt.
    fn try_spend(&self, hit: &Hit<'_>) -> Option<Decision> {
        if hit.is_read_only() || hit.slot != 0 {
            return None;
        }
        let key = self.find(self.hash(hit), hit)?;
        key.try_spend(hit.cost, self.clock.now())
    }

    fn replied(&self, limiter: &Limiter, hit: &Hit<'_>, decision: &mut Decision) {
        if hit.slot == 0 && decision.is_allowed() {
            if hit.is_read_only() {
                self.add_units(hit, decision);
            } else {
                self.count_hit(limiter, hit, decision);
            }
        }
    }

    fn units_left(&self, hit: &Hit<'_>) -> u64 {
        let key = self.find(self.hash(hit), hit);
        key.map_or(0, |key| lock(&key.blocks).left(self.clock.now()))
    }

    fn forget(&self, hit: Hit<'_>) {
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

    fn return_all(self: Arc<Self>, limiter: Limiter) -> StoreFuture<()> {
        StoreFuture::pending(async move {
            for key in self.all() {
                let _idle = key.calling.lock().await;
                let blocks = lock(&key.blocks).end();
                for block in blocks {
                    let settle = |receipt: &Receipt, change| limiter.adjust(receipt, change);
                    key.return_block(block, self.clock.now(), settle).await;
                }
                key.wake.notify_one();
            }
            Ok(())
        })
    }

    fn announce(&self, _policy: &Policy) {}
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
