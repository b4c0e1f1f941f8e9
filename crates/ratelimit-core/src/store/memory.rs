//! Budgets in this process: sharded, bounded, expiring.

mod alone;
mod names;
mod places;
mod queue;
mod shard;
mod slab;
mod slot;
mod together;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(crate) use self::alone::Held;
use self::shard::{Shard, Whose};
use super::{
    contract::{Settled, Store, StoreFuture},
    hit::Hit,
    receipt::Receipt,
};
use crate::{
    decision::Decision,
    key::Key,
    keys::Keys,
    policy::{Change, Group, Policy},
    time::{Clock, Timestamp},
};
use ahash::RandomState;

const DEFAULT_CAPACITY: usize = 1_000_000;
const MOST_SHARDS: usize = 256;
/// As many keys fill a table of 1,024 places.
const KEYS_OF_A_SMALL_SHARD: usize = 896;
const HITS_BETWEEN_SWEEPS: u64 = 64;

/// A store in this process's memory, bounded by a number of keys.
///
/// Keys that have nothing spent any more are forgotten as others come. At the bound, a key that has
/// something left makes room for a newcomer; a key that is used up is never forgotten. When all are
/// used up, newcomers share one budget per policy until there is room again.
///
/// Clones share one store.
///
/// ```
/// use ratelimit_core::{Clock, Limiter, MemoryStore, Timestamp};
///
/// let clock = Clock::manual(Timestamp::from_secs(0));
/// let limiter = Limiter::new(MemoryStore::new().capacity(10_000).clock(clock.clone()));
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: Clock,
    capacity: usize,
}

/// What a [`MemoryStore`] holds and has done.
///
/// ```
/// use ratelimit_core::MemoryStore;
///
/// assert_eq!(MemoryStore::new().stats().keys, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The keys that are kept.
    pub keys: usize,
    /// Keys with something left that were forgotten to make room.
    pub evicted: u64,
    /// Hits of newcomers that were decided on a shared budget, because all keys were used up.
    pub overflowed: u64,
}

impl MemoryStore {
    /// A store for a million keys, on the system's clock.
    pub fn new() -> MemoryStore {
        MemoryStore::sized(DEFAULT_CAPACITY, Clock::system())
    }

    /// An empty store for about `capacity` keys; a long log counts for several.
    #[must_use]
    pub fn capacity(self, capacity: usize) -> MemoryStore {
        MemoryStore::sized(capacity, self.shared.clock.clone())
    }

    /// An empty store that reads `clock`.
    #[must_use]
    pub fn clock(self, clock: Clock) -> MemoryStore {
        MemoryStore::sized(self.shared.capacity, clock)
    }

    fn sized(capacity: usize, clock: Clock) -> MemoryStore {
        let count = shard_count(capacity);
        let (each, rest) = (capacity / count, capacity % count);
        let bounds = (0..count).map(|place| each + usize::from(place < rest));
        let shards = bounds.map(|bound| Mutex::new(Shard::new(bound.max(1))));
        let shared = Shared {
            shards: shards.collect(),
            hasher: RandomState::new(),
            clock,
            capacity,
        };
        MemoryStore {
            shared: Arc::new(shared),
        }
    }

    /// What it holds and has done.
    pub fn stats(&self) -> MemoryStats {
        let mut total = MemoryStats::default();
        for shard in &self.shared.shards {
            let stats = lock(shard).stats();
            total.keys += stats.keys;
            total.evicted += stats.evicted;
            total.overflowed += stats.overflowed;
        }
        total
    }

    /// Decides a hit.
    #[inline]
    pub(crate) fn decide(&self, hit: &Hit<'_>) -> Decision {
        let now = self.now();
        let [group] = hit.policy.groups() else {
            return self.decide_together(hit, now);
        };
        match self.hold(hit, group, now).charge_at_once(hit.asked()) {
            Ok(charge) => Decision::charged(charge, now),
            Err(held) => held.decide(hit.asked()),
        }
    }

    /// The present moment by the clock that it decides on.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The moment of a decision, if `clock` would have told the same.
    pub(crate) fn decided_at(&self, now: Timestamp, clock: &Clock) -> Option<Timestamp> {
        self.shared.clock.is_same_as(clock).then_some(now)
    }

    /// Changes a charge at once.
    pub(crate) fn change(&self, receipt: &Receipt, change: Change) -> Settled {
        let all = &*self.shared;
        let settling = receipt.settling(change, all.clock.now());
        let (mut wrote, mut lost) = (false, false);
        for group in receipt.policy().groups() {
            let whose = all.whose(group, receipt.key_of(group));
            let settled = lock(all.shard(whose.hash)).settle(whose, settling);
            wrote |= settled.wrote;
            lost |= settled.lost;
        }
        match (lost, wrote) {
            (true, _) => Settled::Lost,
            (false, true) => Settled::Changed,
            (false, false) => Settled::Unchanged,
        }
    }
}

impl Shared {
    #[inline]
    fn whose<'a>(&'a self, group: &'a Group, key: &'a Key) -> Whose<'a> {
        let text = key.as_str();
        Whose {
            hasher: &self.hasher,
            hash: shard::hash_of(&self.hasher, group.name_hash, text),
            group,
            key,
            text,
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[self.place_of(hash)]
    }

    #[inline]
    fn place_of(&self, hash: u64) -> usize {
        // The table inside a shard uses the upper half.
        let lower = hash & u64::from(u32::MAX);
        let place = (lower * self.shards.len() as u64) >> 32;
        usize::try_from(place).unwrap_or(0)
    }
}

/// How many shards share `capacity` keys, so that the table of a full one has no place to spare.
///
/// A table is twice as large as the next smaller one, and is filled to seven eighths.
fn shard_count(capacity: usize) -> usize {
    let mut keys_of_a_shard = KEYS_OF_A_SMALL_SHARD;
    while capacity.div_ceil(keys_of_a_shard) > MOST_SHARDS {
        keys_of_a_shard *= 2;
    }
    capacity.div_ceil(keys_of_a_shard).max(1)
}

/// The shard, also after another thread panicked: a step leaves no half-written budget behind.
#[inline]
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    #[inline]
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        StoreFuture::ready(Ok(self.decide(&hit)))
    }

    fn settle(&self, receipt: &Receipt, change: Change) -> StoreFuture<Settled> {
        StoreFuture::ready(Ok(self.change(receipt, change)))
    }

    fn reset(&self, policy: &Policy, keys: &Keys) -> StoreFuture<()> {
        let shared = &*self.shared;
        let hit = Hit::by(policy, keys);
        let now = shared.clock.now();
        for group in policy.groups() {
            let whose = shared.whose(group, hit.key_of(group));
            lock(shared.shard(whose.hash)).reset(whose, now);
        }
        StoreFuture::ready(Ok(()))
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("capacity", &self.shared.capacity)
            .field("clock", &self.shared.clock)
            .finish_non_exhaustive()
    }
}
