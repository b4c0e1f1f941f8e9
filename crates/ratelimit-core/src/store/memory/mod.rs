//! The memory store: budgets of this process, sharded, bounded and expiring.
//!
//! A store is a list of shards, each a hash table with one entry for each key and limit group. `locked.rs` is the way
//! to the budgets, with the lock order.

mod entry;
mod interner;
mod joint;
mod locked;
mod settled;
mod shard;
mod stats_reporter;

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _},
    sync::{Arc, Mutex, TryLockError},
};

pub(crate) use self::settled::Redemption;
pub use self::stats_reporter::MemoryStats;
use crate::store::memory::{
    entry::{Entry, EntryId},
    locked::INLINE_KEYS,
    settled::{SettledReceipts, SettledStats},
    shard::{Bounds, Shard},
    stats_reporter::StatsReporter,
};
use crate::store::{
    contract::{Settlement, Store, StoreFuture},
    hit::Hit,
    joint::JointHit,
    receipt::Receipt,
};
use crate::{
    budget::{Adjustment, Budget},
    decision::Charged,
    key::Key,
    key_set::KeySet,
    policy::{LimitGroup, Policy},
    sync::lock,
    time::{Clock, Timestamp},
};
use ahash::RandomState;
use smallvec::SmallVec;

/// Keys of a store whose capacity is not set: about 91 MB when it is full of short keys with budget.
const DEFAULT_CAPACITY: usize = 1_000_000;
/// Upper bound of the number of shards, and so of the locks that one report takes.
const MAX_SHARDS: usize = 256;
/// Keys that fill a `hashbrown` table of 1,024 buckets at its maximum load of 7/8.
const MIN_SHARD_KEYS: usize = 896;
/// Minimum bytes of a shard, unless the whole store has fewer: about six times the longest log of 10,000 stamps.
const MIN_SHARD_BYTES: usize = 1 << 20;
/// A key of [`MemoryStore::max_key_bytes`] fits into its shard this many times.
const LARGE_KEYS_PER_SHARD: usize = 4;

/// A store in the memory of this process, bounded by a number of keys and optionally by bytes.
///
/// - **Decisions** are synchronous: the futures of this store are always ready, and no call fails. A hit locks
///   one shard for one step of arithmetic. A hit on a known key allocates nothing.
/// - **Expiry**: a key without anything spent is dropped by sweeps that run as part of other hits. There is no
///   background task and no timer, so an idle store keeps its memory until the next hits.
/// - **Eviction**: a full store evicts a key that still has budget, and prefers one that was not hit recently.
///   An exhausted key is evicted only when every key is exhausted, and then the one that recovers first. A key
///   that holds concurrency slots counts as exhausted until its last slot ends.
/// - **After an eviction** the key starts with a full budget. [`stats`](MemoryStore::stats), metrics and a warning
///   report it. A new key is never rejected.
/// - **Own keys**: a hit never evicts a key of its own, so the limit of a single key holds at any bound.
/// - **Shards**: "every key" above means every key of one shard. A shard has 448 keys or more, if the store has.
/// - **Receipts** that were settled evict no budget. The store remembers as many as its capacity until they expire.
///   Beyond that it forgets the one with the oldest charge, and refuses receipts whose charge is not newer
///   ([`SettleError::Forgotten`](crate::SettleError::Forgotten)). A receipt is settled at most once at any number.
///
/// A [`Receipt`] does not know that its key was evicted. A refund then credits what the key was charged since.
///
/// Clones share one store. The setters return a new, empty store; set them before the first hit.
///
/// ```
/// use ratelimit_core::{Clock, Limiter, MemoryStore, Timestamp};
///
/// let clock = Clock::manual(Timestamp::from_secs(0));
/// let store = MemoryStore::new().capacity(10_000).clock(clock.clone());
/// let limiter = Limiter::new(store.clone());
/// assert_eq!(store.stats().keys, 0);
/// ```
#[derive(Clone)]
#[doc(alias = "in-memory")]
#[doc(alias = "local store")]
pub struct MemoryStore {
    shared: Arc<MemoryInner>,
}

/// The state that all clones of a [`MemoryStore`] share.
struct MemoryInner {
    /// One to [`MAX_SHARDS`] shards. The hash of a key selects its shard; see [`MemoryInner::shard_index`].
    shards: Box<[Mutex<Shard>]>,
    /// Seeded at random for each store, so clients cannot choose keys that collide.
    hasher: RandomState,
    /// Read once for each hit, before any lock is taken.
    clock: Clock,
    /// Maximum number of keys over all shards.
    capacity: usize,
    /// Maximum estimated bytes over all shards; `usize::MAX` means unbounded.
    max_bytes: usize,
    report: StatsReporter,
    /// Settled receipts, which evict no budget.
    settled: SettledReceipts,
}

impl MemoryStore {
    /// An empty store for 1,000,000 keys, without a bound on bytes, on the system clock.
    pub fn new() -> MemoryStore {
        MemoryStore::sized(DEFAULT_CAPACITY, usize::MAX, Clock::system())
    }

    /// Returns an empty store for `capacity` keys.
    ///
    /// A key counts once for each key name (`by`) of a policy, whatever the length of its log. The capacity is divided
    /// among the shards, so a shard can be full before the store is. 0 counts as 1.
    #[must_use]
    pub fn capacity(self, capacity: usize) -> MemoryStore {
        let shared = &self.shared;
        self.warn_if_used();
        MemoryStore::sized(capacity, shared.max_bytes, shared.clock.clone())
    }

    /// Returns an empty store that also evicts keys beyond about `max_bytes` bytes. There is no such bound by default.
    ///
    /// - The bytes are an estimate of the allocated memory. They are divided among the shards, which have 1 MiB or
    ///   more each.
    /// - A single key that is larger than its shard's part, such as a long log, is kept while it is hit. Hits on
    ///   other keys then evict it, so compare [`MemoryStore::max_bytes_of`] each policy with
    ///   [`MemoryStore::max_key_bytes`].
    /// - Settled receipts take up to a quarter as many bytes in addition.
    #[must_use]
    pub fn max_bytes(self, max_bytes: usize) -> MemoryStore {
        let shared = &self.shared;
        self.warn_if_used();
        MemoryStore::sized(shared.capacity, max_bytes, shared.clock.clone())
    }

    /// Returns an empty store that decides on `clock`, such as a [manual](Clock::manual) one in tests.
    #[must_use]
    pub fn clock(self, clock: Clock) -> MemoryStore {
        self.warn_if_used();
        MemoryStore::sized(self.shared.capacity, self.shared.max_bytes, clock)
    }

    /// Logs that a setter leaves the budgets of this store behind.
    fn warn_if_used(&self) {
        let keys = self.stats().keys;
        if keys > 0 {
            tracing::warn!(
                keys,
                "a setter of MemoryStore was called after the first hit: the new store starts without the budgets of the old"
            );
        }
    }

    /// A store with as many shards as both bounds allow.
    fn sized(capacity: usize, max_bytes: usize, clock: Clock) -> MemoryStore {
        let count = shard_count(capacity).min((max_bytes / MIN_SHARD_BYTES).max(1));
        MemoryStore::sharded(count, capacity, max_bytes, clock)
    }

    /// A store of `count` shards. The first shards take the remainder of the division; each holds one key or more.
    fn sharded(count: usize, capacity: usize, max_bytes: usize, clock: Clock) -> MemoryStore {
        let (each, rest) = (capacity / count, capacity % count);
        let bounds = (0..count).map(|index| Bounds {
            // At least one key: a shard without room would reject new keys.
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
            settled: SettledReceipts::new(capacity, max_bytes / 4),
        };
        let shared = Arc::new(shared);
        stats_reporter::register(Arc::downgrade(&shared));
        MemoryStore { shared }
    }

    /// Returns the maximum estimated bytes of a key under `policy`, over all its tiers.
    ///
    /// It is about 120 bytes, 40 for each limit, 16 for each stamp of a full log and 32 for each slot.
    pub fn max_bytes_of(policy: &Policy) -> usize {
        let tiers = policy.tiers().flat_map(|(_, tier)| tier.groups());
        let groups = policy.groups().iter().chain(tiers);
        groups.map(Entry::max_bytes).max().unwrap_or(0)
    }

    /// Returns the maximum bytes of a key whose limits hold beside other keys: a quarter of a shard's bytes.
    ///
    /// Hits on other keys can evict a larger key, which then starts with a full budget.
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
        self.shared.max_bytes / self.shared.shards.len() / LARGE_KEYS_PER_SHARD
    }

    /// Records that a receipt is settled, and returns whether it may be, with the time of the store.
    ///
    /// As many settled receipts as keys are remembered, in a quarter of the bytes.
    pub(crate) fn redeem(&self, receipt: &Receipt) -> (Redemption, Timestamp) {
        let shared = &*self.shared;
        let now = self.now();
        let redemption = shared.settled.redeem(receipt, now);
        shared.report(now);
        (redemption, now)
    }

    /// The number of clones of this store, this one included.
    pub(crate) fn clone_count(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    /// Returns the number of keys, their estimated bytes and the evictions so far.
    ///
    /// Shards are read one after another. Settled receipts are not included; the metrics include them.
    pub fn stats(&self) -> MemoryStats {
        self.shared.stats()
    }

    /// Brings the metrics of all memory stores of the process up to date. Call it before each scrape.
    ///
    /// Hits do the same, at most once a second. Without this call the gauges of an idle store stay as they were at its last
    /// hits, and its expired keys stay in memory.
    pub fn update_metrics() {
        for store in stats_reporter::live_stores() {
            store.update_metrics();
        }
    }

    /// The current time of the clock that this store decides on.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Returns `now`, the time of a decision of this store, if `clock` is the same clock. It saves a second read.
    pub(crate) fn decided_at(&self, now: Timestamp, clock: &Clock) -> Option<Timestamp> {
        self.shared.clock.is_same_as(clock).then_some(now)
    }

    /// A copy of the budget of a key; a full one for an unknown key.
    pub(crate) fn budget(&self, group: &LimitGroup, key: &Key) -> Budget {
        let id = self.shared.entry_id(group, key);
        let all = &*self.shared;
        all.with_budgets(&[id], all.clock.now(), |own| own[0].budget.clone())
    }

    /// Runs `step` on the budget of a key. It returns whether the budget changed.
    pub(crate) fn change_budget(
        &self,
        group: &LimitGroup,
        key: &Key,
        step: impl FnOnce(&mut Budget) -> bool,
    ) {
        let id = self.shared.entry_id(group, key);
        let all = &*self.shared;
        all.with_budgets(&[id], all.clock.now(), |own| {
            let is_changed = step(own[0].budget);
            own[0].set_changed(is_changed);
        });
    }

    /// Changes a charge.
    pub(crate) fn adjust(&self, receipt: &Receipt, change: Adjustment) -> Settlement {
        let all = &*self.shared;
        let now = all.clock.now();
        let settling = receipt.request(change, now);
        let groups = receipt.policy().groups().iter();
        let keys: SmallVec<[EntryId<'_>; INLINE_KEYS]> = groups
            .map(|group| all.entry_id(group, receipt.key_for(group)))
            .collect();
        let (mut stored, mut lost) = (false, false);
        all.with_budgets(&keys, now, |budgets| {
            for own in budgets {
                let settled = own.budget.settle(own.id.group, settling);
                own.set_changed(settled.stored);
                stored |= settled.stored;
                lost |= settled.lost;
            }
        });
        match (lost, stored) {
            (true, _) => Settlement::LeaseLost,
            (false, true) => Settlement::Applied,
            (false, false) => Settlement::Unchanged,
        }
    }
}

impl MemoryInner {
    /// Hashes a key once; the hash selects the shard and finds the entry.
    #[inline(always)]
    fn entry_id<'a>(&'a self, group: &'a LimitGroup, key: &'a Key) -> EntryId<'a> {
        let text = key.as_str();
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text.as_bytes());
        EntryId {
            // The name's hash is computed once when the policy is made, so a hit hashes the key's text only.
            hash: hasher.finish() ^ group.name_hash,
            group,
            key,
            text,
        }
    }

    /// The entries of a hit, in the order of the groups of its policy.
    #[inline]
    fn keys_of<'a>(&'a self, hit: &Hit<'a>) -> SmallVec<[EntryId<'a>; INLINE_KEYS]> {
        let groups = hit.policy.groups().iter();
        groups
            .map(|group| self.entry_id(group, hit.key_for(group)))
            .collect()
    }

    /// Maps a hash to the index of a shard by one multiplication, without a division.
    #[inline]
    fn shard_index(&self, hash: u64) -> usize {
        // The index depends on bits 24 to 31. The table of a shard uses the lowest and the highest bits.
        let lower = hash & u64::from(u32::MAX);
        let index = (lower * self.shards.len() as u64) >> 32;
        usize::try_from(index).unwrap_or(0)
    }

    /// Sweeps the shard whose turn it is, so that idle shards free their memory. A locked shard sweeps itself.
    fn sweep_another(&self, turn: u64, now: Timestamp) {
        let index = turn % self.shards.len() as u64;
        let other = &self.shards[usize::try_from(index).unwrap_or(0)];
        match other.try_lock() {
            Ok(mut other) => other.sweep(now),
            Err(TryLockError::Poisoned(held)) => held.into_inner().sweep(now),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Publishes the stats, at most once a second. The caller must hold no shard: this locks each of them in turn.
    fn report(&self, now: Timestamp) {
        if self.report.is_due(now) {
            self.publish(now);
        }
    }

    /// Publishes the stats with the settled receipts. The caller must hold no shard.
    fn publish(&self, now: Timestamp) {
        self.report
            .publish(|| (self.stats(), self.settled.stats()), now);
    }

    /// Sweeps every shard, and publishes the stats. A shard is locked for at most 16 entries.
    fn update_metrics(&self) {
        let now = self.clock.now();
        for shard in &self.shards {
            lock(shard).sweep(now);
        }
        self.settled.sweep(now);
        self.publish(now);
    }

    /// Sums up all shards. Each shard is locked for a few loads only.
    fn stats(&self) -> MemoryStats {
        let mut total = MemoryStats::default();
        for shard in &self.shards {
            lock(shard).add_stats(&mut total);
        }
        total
    }
}

impl Drop for MemoryInner {
    /// Subtracts the keys and bytes of this store from the gauges of the process.
    fn drop(&mut self) {
        let now = self.clock.now();
        // The gauges lose the keys of this store. Its evictions stay in the counters, which never fall.
        let gone = || {
            let evicted = MemoryStats {
                keys: 0,
                bytes: 0,
                ..self.stats()
            };
            let settled = SettledStats {
                receipts: 0,
                bytes: 0,
                ..self.settled.stats()
            };
            (evicted, settled)
        };
        self.report.publish(gone, now);
    }
}

/// The number of shards for `capacity` keys: the fewest with at most 896 x 2^n keys each, for the smallest n.
///
/// A `hashbrown` table has a power of two of buckets, filled to 7/8 at most. With one key more the table would double.
fn shard_count(capacity: usize) -> usize {
    let mut keys_per_shard = MIN_SHARD_KEYS;
    while capacity.div_ceil(keys_per_shard) > MAX_SHARDS {
        keys_per_shard *= 2;
    }
    capacity.div_ceil(keys_per_shard).max(1)
}

impl Store for MemoryStore {
    /// Decides before it returns; the future is ready.
    #[inline]
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        StoreFuture::ready(Ok(self.check(&hit)))
    }

    fn hit_joint(&self, members: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        StoreFuture::ready(Ok(self.check_joint(members)))
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        StoreFuture::ready(Ok(self.adjust(receipt, change)))
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        let (all, now) = (&*self.shared, self.now());
        let hit = Hit::for_keys(policy, keys);
        all.with_budgets(&all.keys_of(&hit), now, |budgets| {
            for own in budgets {
                own.budget.reset(now);
                // The entry stays until it expires: it has the time of the reset, so that receipts from before it give
                // nothing back.
                own.set_changed(own.is_known);
            }
        });
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
