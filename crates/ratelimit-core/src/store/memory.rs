//! Budgets in this process: sharded, bounded, expiring.

mod alone;
mod entry;
mod names;
mod report;
mod shard;
mod together;

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
};

pub(crate) use self::alone::Held;
use self::{
    entry::Entry,
    report::Report,
    shard::{Bounds, Own, Shard, Whose},
};
use super::{
    contract::{Settled, Store, StoreFuture},
    hit::Hit,
    receipt::Receipt,
};
use crate::{
    decision::Decision,
    key::Key,
    keys::Keys,
    policy::{Change, Group, MOST_LIMITS, Policy},
    time::{Clock, Timestamp},
};
use ahash::RandomState;
use smallvec::SmallVec;

const DEFAULT_CAPACITY: usize = 1_000_000;
const MOST_SHARDS: usize = 256;
/// As many keys fill a table of 1,024 places.
const KEYS_OF_A_SMALL_SHARD: usize = 896;

/// A store in this process's memory, bounded by a number of keys and, where it is set, of bytes.
///
/// - A key that has nothing spent any more is dropped in the background of other hits.
/// - A full store evicts a key that has budget left, and prefers one that was not hit lately. It evicts an
///   exhausted key only when every key is exhausted: the one that recovers first. A key that holds
///   concurrency slots counts as exhausted until the last of them ends.
/// - An evicted key starts with a whole budget again. A new key is never turned away.
/// - The keys of a hit are never evicted by that hit, so a single key's limit holds at any bound.
///
/// The store is divided into shards of 896 keys or more, and "every key" means those of one shard.
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
    max_bytes: usize,
    report: Report,
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
    /// The estimated bytes that they take.
    pub bytes: usize,
    /// Keys with budget left that were evicted to make room.
    pub evicted: u64,
    /// Exhausted keys that were evicted to make room, because every key was exhausted.
    pub evicted_exhausted: u64,
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
    /// The bytes are estimated, and divided among the shards. One key that is larger than its shard's part,
    /// such as a long log, is kept all the same.
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
        MemoryStore::sharded(shard_count(capacity), capacity, max_bytes, clock)
    }

    fn sharded(count: usize, capacity: usize, max_bytes: usize, clock: Clock) -> MemoryStore {
        let (each, rest) = (capacity / count, capacity % count);
        let bounds = (0..count).map(|place| Bounds {
            keys: (each + usize::from(place < rest)).max(1),
            bytes: max_bytes / count,
        });
        let shared = Shared {
            shards: bounds
                .map(|bounds| Mutex::new(Shard::new(bounds)))
                .collect(),
            hasher: RandomState::new(),
            clock,
            capacity,
            max_bytes,
            report: Report::default(),
        };
        MemoryStore {
            shared: Arc::new(shared),
        }
    }

    /// The estimated bytes of a key under `policy` whose logs and slots are full: about 120, and 16 for each
    /// stamp of a log and each slot.
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

    /// What it holds and has done.
    pub fn stats(&self) -> MemoryStats {
        self.shared.stats()
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
        let now = all.clock.now();
        let settling = receipt.settling(change, now);
        let groups = receipt.policy().groups().iter();
        let keys: SmallVec<[Whose<'_>; MOST_LIMITS]> = groups
            .map(|group| all.whose(group, receipt.key_of(group)))
            .collect();
        let own = Own { keys: &keys, now };
        let (mut wrote, mut lost) = (false, false);
        for whose in &keys {
            let settled = lock(all.shard(whose.hash)).settle(*whose, own, settling);
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
        let mut hasher = self.hasher.build_hasher();
        hasher.write(text.as_bytes());
        Whose {
            hash: hasher.finish() ^ group.name_hash,
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
        // The table inside a shard uses the lowest and the highest bits.
        let lower = hash & u64::from(u32::MAX);
        let place = (lower * self.shards.len() as u64) >> 32;
        usize::try_from(place).unwrap_or(0)
    }

    /// Sweeps the shard whose turn it is, so that quiet ones give their memory back as well.
    fn sweep_another(&self, turn: u64, now: Timestamp) {
        let place = turn % self.shards.len() as u64;
        let other = &self.shards[usize::try_from(place).unwrap_or(0)];
        match other.try_lock() {
            Ok(mut other) => other.sweep(now),
            Err(TryLockError::Poisoned(held)) => held.into_inner().sweep(now),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Tells operators once a second what it holds and has done; no shard is locked.
    fn report(&self, now: Timestamp) {
        if self.report.is_due(now) {
            self.report.publish(self.stats(), now);
        }
    }

    fn stats(&self) -> MemoryStats {
        let mut total = MemoryStats::default();
        for shard in &self.shards {
            let stats = lock(shard).stats();
            total.keys += stats.keys;
            total.bytes += stats.bytes;
            total.evicted += stats.evicted;
            total.evicted_exhausted += stats.evicted_exhausted;
        }
        total
    }
}

impl Drop for Shared {
    /// Takes the store out of the gauges.
    fn drop(&mut self) {
        let now = self.clock.now();
        let gone = MemoryStats {
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
            let own = Own {
                keys: &[whose],
                now,
            };
            lock(shared.shard(whose.hash)).reset(whose, own);
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
