//! The hot keys of a limiter, in bounded memory, and the counts of the others.

use std::{
    array,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use ahash::RandomState;
use tokio::sync::Notify;

use crate::limiter::prefetch::{age::Moment, hot_key::HotKey};
use crate::{
    key::Key,
    metrics::PrefetchMetrics,
    policy::Policy,
    store::{Hit, OwnedHit},
    sync::lock,
};

/// Sets of the table; the hash of the budgets chooses the set.
const SETS: usize = 1 << 10;
/// Hot keys in a set. A further one is decided by the store.
const WAYS: usize = 8;
/// Counts of keys that are not hot. Two keys that share one only become hot too early. They take 128 KiB.
const COUNTS: usize = 1 << 14;

/// Hot keys by their budgets, 8,192 at most.
pub(super) struct HotKeys {
    /// Keyed at random for each table: a client cannot choose keys that fall into one set.
    hasher: RandomState,
    sets: Box<[Mutex<HotSet>]>,
    counts: Box<[AtomicU64]>,
}

/// The hot keys of one hash.
type HotSet = [Option<Arc<HotEntry>>; WAYS];

/// One hot key, shared with its keeper.
pub(super) struct HotEntry {
    hash: u64,
    /// The policy and the key, where there is one key.
    single: Option<(Policy, Key)>,
    /// Policy and keys of its hits.
    pub(super) hit: OwnedHit,
    pub(super) key: Mutex<HotKey>,
    /// Wakes the keeper.
    pub(super) wake: Notify,
    /// Held by the keeper while a call is under way, and while it gives units back.
    pub(super) calling: tokio::sync::Mutex<()>,
    pub(super) metrics: PrefetchMetrics,
}

/// Units that were wanted of a key that is not hot, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColdCount {
    pub(super) units: u64,
    pub(super) since: Moment,
}

impl HotEntry {
    /// Whether a hit spends from the same budgets under equal limits.
    ///
    /// Fast path: the very policy and one key, which spares the comparison of all limits.
    #[inline]
    fn is_of(&self, hit: &Hit<'_>) -> bool {
        if let (Some((policy, key)), [group]) = (&self.single, hit.policy.groups())
            && policy.is_same_as(hit.policy)
        {
            return key.as_str() == hit.key_for(group).as_str();
        }
        hit.same_budgets_as(&self.hit.as_hit())
    }
}

impl HotKeys {
    /// An empty table.
    pub(super) fn new() -> HotKeys {
        let set = |_| Mutex::new(array::from_fn(|_| None));
        HotKeys {
            hasher: RandomState::new(),
            sets: (0..SETS).map(set).collect(),
            counts: (0..COUNTS).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Identifies the budgets of a hit, in their order.
    #[inline]
    pub(super) fn hash(&self, hit: &Hit<'_>) -> u64 {
        let groups = hit.policy.groups().iter();
        groups.fold(0, |hash: u64, group| {
            let key = self.hasher.hash_one(hit.key_for(group).as_str());
            hash.rotate_left(1) ^ key ^ group.name_hash
        })
    }

    /// Calls `each` with the hot key of the budgets and limits of a hit, if there is one.
    ///
    /// The set stays locked, which spares a reference count; `each` may lock the key, and nothing else.
    #[inline]
    pub(super) fn with<T>(
        &self,
        hash: u64,
        hit: &Hit<'_>,
        each: impl FnOnce(&Arc<HotEntry>) -> T,
    ) -> Option<T> {
        let set = lock(self.set(hash));
        let is_same = |entry: &&Arc<HotEntry>| entry.hash == hash && entry.is_of(hit);
        set.iter().flatten().find(is_same).map(each)
    }

    /// Adds a key. `None` if its set is full, or another thread has added it.
    pub(super) fn insert(&self, hash: u64, hit: &Hit<'_>, key: HotKey) -> Option<Arc<HotEntry>> {
        let mut set = lock(self.set(hash));
        let is_same =
            |entry: &Arc<HotEntry>| entry.hash == hash && hit.same_budgets_as(&entry.hit.as_hit());
        if set.iter().flatten().any(is_same) {
            return None;
        }
        let free = set.iter_mut().find(|place| place.is_none())?;
        let entry = Arc::new(HotEntry {
            hash,
            single: match hit.policy.groups() {
                [group] => Some((hit.policy.clone(), hit.key_for(group).clone())),
                _ => None,
            },
            hit: OwnedHit::new(hit.cost(0)),
            key: Mutex::new(key),
            wake: Notify::new(),
            calling: tokio::sync::Mutex::default(),
            metrics: PrefetchMetrics::new(hit.policy.shared_name()),
        });
        *free = Some(Arc::clone(&entry));
        Some(entry)
    }

    /// Removes a key whose keeper ends.
    pub(super) fn remove(&self, entry: &Arc<HotEntry>) {
        let mut set = lock(self.set(entry.hash));
        for place in &mut *set {
            if place
                .as_ref()
                .is_some_and(|known| Arc::ptr_eq(known, entry))
            {
                *place = None;
            }
        }
    }

    /// Removes all keys for which `is_gone` is true, and returns them.
    pub(super) fn drain(&self, is_gone: impl Fn(&HotEntry) -> bool) -> Vec<Arc<HotEntry>> {
        let mut drained = Vec::new();
        for set in &self.sets {
            for place in &mut *lock(set) {
                if place.as_ref().is_some_and(|entry| is_gone(entry)) {
                    drained.extend(place.take());
                }
            }
        }
        drained
    }

    /// Counts units of a key that is not hot. The count begins again after `span` microseconds.
    ///
    /// Threads may overwrite each other's counts. A key then becomes hot a little later.
    pub(super) fn count_cold(&self, hash: u64, units: u64, span: u64, now: Moment) -> ColdCount {
        let count = &self.counts[index(hash >> 32, COUNTS)];
        let packed = count.load(Ordering::Relaxed);
        // The moment in the low 40 bits, 12 days of microseconds; the units in the high 24.
        let (since, known) = (packed & TIME_MASK, packed >> TIME_BITS);
        let age = now.low_bits(TIME_MASK).wrapping_sub(since) & TIME_MASK;
        let (since, known) = if packed == 0 || age > span {
            (now.low_bits(TIME_MASK), 0)
        } else {
            (since, known)
        };
        let units = (known + units).min(u64::MAX >> TIME_BITS);
        count.store(units << TIME_BITS | since, Ordering::Relaxed);
        let age = now.low_bits(TIME_MASK).wrapping_sub(since) & TIME_MASK;
        ColdCount {
            units,
            since: now.before(age),
        }
    }

    /// The keys that share the lowest bits of a hash.
    fn set(&self, hash: u64) -> &Mutex<HotSet> {
        &self.sets[index(hash, SETS)]
    }
}

/// The bits of a time in microseconds: 12 days.
const TIME_BITS: u32 = 40;
/// The lowest bits of a word, which hold the time.
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The place of a hash among `count`, a power of two.
fn index(hash: u64, count: usize) -> usize {
    usize::try_from(hash & (count as u64 - 1)).unwrap_or(0)
}
