//! Budgets in this process: sharded, bounded, expiring.

mod entry;
mod interner;
mod locked_entry;
mod multi_key;
mod shard;
mod stats_reporter;

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError},
};

pub(crate) use self::locked_entry::LockedEntry;
pub use self::stats_reporter::MemoryStats;
use crate::store::memory::{
    entry::Entry,
    shard::{Bounds, EntryId, HitKeys, Shard},
    stats_reporter::StatsReporter,
};
use crate::store::{
    contract::{Settlement, Store, StoreFuture},
    hit::Hit,
    receipt::Receipt,
};
use crate::{
    budget::Adjustment,
    decision::Decision,
    key::Key,
    key_set::KeySet,
    policy::{LimitGroup, MOST_LIMITS, Policy},
    time::{Clock, Timestamp},
};
use ahash::RandomState;
use smallvec::SmallVec;

const DEFAULT_CAPACITY: usize = 1_000_000;
const MOST_SHARDS: usize = 256;
/// As many keys fill a table of 1,024 places.
const KEYS_OF_A_SMALL_SHARD: usize = 896;
/// A shard has no fewer bytes, unless the whole store has: six times those of the longest log.
const MIN_SHARD_BYTES: usize = 1 << 20;
/// A shard holds so many of the largest keys, or its other keys are evicted for one of them.
const LARGE_KEYS_OF_A_SHARD: usize = 4;

/// A store in this process's memory, bounded by a number of keys and, where it is set, of bytes.
///
/// - A key that has nothing spent any more is dropped in the background of other hits.
/// - A full store evicts a key that has budget left, and prefers one that was not hit lately. It evicts an
///   exhausted key only when every key is exhausted: the one that recovers first. A key that holds
///   concurrency slots counts as exhausted until the last of them ends.
/// - An evicted key starts with a whole budget again. A new key is never turned away.
/// - The keys of a hit are never evicted by that hit, so a single key's limit holds at any bound.
/// - Receipts that were settled are kept apart, so they evict no budget.
///
/// The store is divided into shards of 896 keys or more, and "every key" means those of one shard.
///
/// A [`Receipt`] does not know that its key was evicted. A refund then credits what the key was charged since.
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
    shared: Arc<MemoryInner>,
}

struct MemoryInner {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    clock: Clock,
    capacity: usize,
    max_bytes: usize,
    report: StatsReporter,
    /// Receipts that were settled, apart from the budgets: each is an exhausted key for as long as it lives.
    settled: OnceLock<MemoryStore>,
}

impl MemoryStore {
    /// A store for a million keys, on the system's clock.
    pub fn new() -> MemoryStore {
        MemoryStore::sized(DEFAULT_CAPACITY, usize::MAX, Clock::system())
    }

    /// An empty store for `capacity` keys; the length of their logs does not count.
    #[must_use]
    pub fn capacity(self, capacity: usize) -> MemoryStore {
        let shared = &self.shared;
        MemoryStore::sized(capacity, shared.max_bytes, shared.clock.clone())
    }

    /// An empty store that evicts keys beyond about `max_bytes` bytes as well; no such bound by default.
    ///
    /// The bytes are estimated, and divided among the shards, which have 1 MiB or more each. One key that is
    /// larger than its shard's part, such as a long log, is kept while it is hit. Other keys then evict it, so
    /// compare [`MemoryStore::max_bytes_of`] each policy with [`MemoryStore::max_key_bytes`].
    ///
    /// Receipts that were settled are kept beside, in up to a quarter as many bytes.
    ///
    /// ```
    /// use ratelimit_core::MemoryStore;
    ///
    /// let store = MemoryStore::new().max_bytes(512 << 20);
    /// assert_eq!(store.stats().bytes, 0);
    /// ```
    #[must_use]
    pub fn max_bytes(self, max_bytes: usize) -> MemoryStore {
        let shared = &self.shared;
        MemoryStore::sized(shared.capacity, max_bytes, shared.clock.clone())
    }

    /// An empty store that reads `clock`.
    #[must_use]
    pub fn clock(self, clock: Clock) -> MemoryStore {
        MemoryStore::sized(self.shared.capacity, self.shared.max_bytes, clock)
    }

    fn sized(capacity: usize, max_bytes: usize, clock: Clock) -> MemoryStore {
        let count = shard_count(capacity).min((max_bytes / MIN_SHARD_BYTES).max(1));
        MemoryStore::sharded(count, capacity, max_bytes, clock)
    }

    fn sharded(count: usize, capacity: usize, max_bytes: usize, clock: Clock) -> MemoryStore {
        let (each, rest) = (capacity / count, capacity % count);
        let bounds = (0..count).map(|index| Bounds {
            keys: (each + usize::from(index < rest)).max(1),
            bytes: max_bytes / count,
        });
        let shared = MemoryInner {
            shards: bounds
                .map(|bounds| Mutex::new(Shard::new(bounds)))
                .collect(),
            hasher: RandomState::new(),
            clock,
            capacity,
            max_bytes,
            report: StatsReporter::default(),
            settled: OnceLock::new(),
        };
        MemoryStore {
            shared: Arc::new(shared),
        }
    }

    /// The most estimated bytes of a key under `policy`: about 120, 40 for each limit, 16 for each stamp of a
    /// log and 32 for each slot.
    ///
    /// ```
    /// use ratelimit_core::{MemoryStore, Policy};
    ///
    /// let log = Policy::parse("search", "sliding_window_log 1000/h")?;
    /// assert!(MemoryStore::max_bytes_of(&log) > 16_000);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    pub fn max_bytes_of(policy: &Policy) -> usize {
        let tiers = policy.tiers().flat_map(|(_, tier)| tier.groups());
        let groups = policy.groups().iter().chain(tiers);
        groups.map(Entry::max_bytes).max().unwrap_or(0)
    }

    /// The most bytes of one key whose limits hold beside other keys: a quarter of a shard's bytes.
    ///
    /// ```
    /// use ratelimit_core::{MemoryStore, Policy};
    ///
    /// let store = MemoryStore::new().max_bytes(16 << 20);
    /// let log = Policy::parse("search", "sliding_window_log 10000/h")?;
    /// assert!(MemoryStore::max_bytes_of(&log) <= store.max_key_bytes());
    /// assert!(MemoryStore::max_bytes_of(&log) > store.max_bytes(500_000).max_key_bytes());
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    pub fn max_key_bytes(&self) -> usize {
        let shared = &self.shared;
        shared.max_bytes / shared.shards.len() / LARGE_KEYS_OF_A_SHARD
    }

    /// The store for the receipts of this store that were settled: for as many keys, in a quarter of the bytes.
    pub(crate) fn settled_receipts(&self) -> &MemoryStore {
        let shared = &*self.shared;
        shared.settled.get_or_init(|| {
            let max_bytes = shared.max_bytes / 4;
            MemoryStore::sized(shared.capacity, max_bytes, shared.clock.clone())
        })
    }

    /// How many clones of it there are, this one included.
    pub(crate) fn clone_count(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    /// What it holds and has done, apart from settled receipts, which the metrics include.
    pub fn stats(&self) -> MemoryStats {
        self.shared.stats()
    }

    /// Decides a hit.
    #[inline]
    pub(crate) fn check(&self, hit: &Hit<'_>) -> Decision {
        let now = self.now();
        let [group] = hit.policy.groups() else {
            return self.check_keys(hit, now);
        };
        match self
            .lock_entry(hit, group, now)
            .try_charge_fast(hit.params())
        {
            Ok(charge) => Decision::from_fast_charge(charge, now),
            Err(held) => held.decide(hit.params()),
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
    pub(crate) fn adjust(&self, receipt: &Receipt, change: Adjustment) -> Settlement {
        let all = &*self.shared;
        let now = all.clock.now();
        let settling = receipt.request(change, now);
        let groups = receipt.policy().groups().iter();
        let keys: SmallVec<[EntryId<'_>; MOST_LIMITS]> = groups
            .map(|group| all.entry_id(group, receipt.key_for(group)))
            .collect();
        let own = HitKeys { keys: &keys, now };
        let (mut stored, mut lost) = (false, false);
        for id in &keys {
            let settled = lock(all.shard(id.hash)).settle(*id, own, settling);
            stored |= settled.stored;
            lost |= settled.lost;
        }
        match (lost, stored) {
            (true, _) => Settlement::LeaseLost,
            (false, true) => Settlement::Applied,
            (false, false) => Settlement::Unchanged,
        }
    }
}

impl MemoryInner {
    #[inline]
    fn entry_id<'a>(&'a self, group: &'a LimitGroup, key: &'a Key) -> EntryId<'a> {
        let text = key.as_str();
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text.as_bytes());
        EntryId {
            hash: hasher.finish() ^ group.name_hash,
            group,
            key,
            text,
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[self.shard_index(hash)]
    }

    #[inline]
    fn shard_index(&self, hash: u64) -> usize {
        // The table inside a shard uses the lowest and the highest bits.
        let lower = hash & u64::from(u32::MAX);
        let index = (lower * self.shards.len() as u64) >> 32;
        usize::try_from(index).unwrap_or(0)
    }

    /// Sweeps the shard whose turn it is, so that quiet ones give their memory back as well.
    fn sweep_another(&self, turn: u64, now: Timestamp) {
        let index = turn % self.shards.len() as u64;
        let other = &self.shards[usize::try_from(index).unwrap_or(0)];
        match other.try_lock() {
            Ok(mut other) => other.sweep(now),
            Err(TryLockError::Poisoned(held)) => held.into_inner().sweep(now),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Tells operators once a second what it holds and has done; no shard is locked.
    fn report(&self, now: Timestamp) {
        if self.report.is_due(now) {
            self.report.publish(|| self.stats(), now);
        }
    }

    fn stats(&self) -> MemoryStats {
        let mut total = MemoryStats::default();
        for shard in &self.shards {
            lock(shard).add_stats(&mut total);
        }
        total
    }
}

impl Drop for MemoryInner {
    /// Takes the store out of the gauges.
    fn drop(&mut self) {
        let now = self.clock.now();
        let gone = || MemoryStats {
            keys: 0,
            bytes: 0,
            ..self.stats()
        };
        self.report.publish(gone, now);
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
        StoreFuture::ready(Ok(self.check(&hit)))
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        StoreFuture::ready(Ok(self.adjust(receipt, change)))
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        let shared = &*self.shared;
        let hit = Hit::for_keys(policy, keys);
        let now = shared.clock.now();
        for group in policy.groups() {
            let id = shared.entry_id(group, hit.key_for(group));
            let own = HitKeys { keys: &[id], now };
            lock(shared.shard(id.hash)).reset(id, own);
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
