//! The table of the deny cache: set-associative, invalidated by version counters.
//!
//! One hash of the budgets selects the set with its low bits. The high half of each budget's own
//! hash selects its version counter. The two arrays need no common lock:
//!
//! - A lookup loads the counters, and then locks one set for a scan of at most eight entries.
//! - A change increments counters and takes no lock.
//! - No code holds two sets at once, and none awaits while it holds one.

use std::{
    array,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ahash::RandomState;

use crate::{
    decision::Decision,
    store::{Hit, OwnedHit},
    sync::lock,
    time::Timestamp,
};

/// Sets of the table. The hash of the budgets chooses the set. More sets mean fewer threads at one
/// lock.
const SETS: usize = 1 << 10;
/// Denials in a set. A further one replaces the one that ends first. The scan of a full set stays
/// short.
const WAYS: usize = 8;
/// Version counters: enough that two busy budgets seldom share one. Budgets that share one only
/// invalidate each other. They take 64 KiB.
const COUNTERS: usize = 1 << 14;

/// Denials by budget, in bounded memory: 8,192 at most.
///
/// - An entry holds the versions of its budgets from before its hit was sent, and is ignored once a
///   version has changed. So a denial that arrives after a reset, but was sent before it, is
///   ignored as well.
/// - Entries are never removed, only replaced. There is no sweep, and a flood of new keys cannot
///   make the table grow.
/// - Equal hashes are possible, so a match also compares the policy, the keys and the cost.
pub(super) struct Table {
    /// Keyed at random for each table: a client cannot choose keys that fall into one set.
    hasher: RandomState,
    /// The version counter of each budget, by its hash; [`COUNTERS`] of them.
    versions: Box<[AtomicU32]>,
    /// [`SETS`] sets, each behind a lock of its own.
    sets: Box<[Mutex<Set>]>,
}

/// The denials of one set. They are boxed: an empty table takes 8 bytes for each place.
type Set = [Option<Box<CachedDenial>>; WAYS];

/// The versions of the budgets of a hit, and the time, from before it was sent.
///
/// A cached denial keeps the lookup of its own hit. A later hit matches it with a lookup of its
/// own.
#[derive(Clone, Copy, Debug)]
pub(in crate::limiter) struct Lookup {
    /// The versions before the hit was sent.
    budgets: Version,
    /// The time before the hit was sent, by the clock of the cache.
    at: Timestamp,
}

/// The budgets of a hit and the sum of their versions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// Identifies the budgets, in their order.
    hash: u64,
    /// Sum of the version counters, modulo 2^32. Each only grows, so the sum changes when any of
    /// them does. A sum would repeat after 2^32 changes within the second that a denial lives.
    sum: u32,
}

impl Version {
    /// The lookup of a hit that is sent at `at`.
    pub(super) const fn sent_at(self, at: Timestamp) -> Lookup {
        Lookup { budgets: self, at }
    }
}

/// A denial and the time until which it holds.
pub(super) struct CachedDenial {
    /// The versions and the time before the hit was sent. The age counts from here, which is
    /// earlier than the store decided.
    sent: Lookup,
    /// The end of the denial, exclusive.
    until: Timestamp,
    /// The denied hit: policy, keys and cost.
    hit: OwnedHit,
    /// The decision of the store, with the waits at the time of `sent`.
    decision: Decision,
}

impl CachedDenial {
    /// A denial that holds for `life` from before its hit was sent.
    pub(super) fn new(
        hit: Hit<'_>,
        sent: Lookup,
        decision: &Decision,
        life: Duration,
    ) -> CachedDenial {
        CachedDenial {
            sent,
            until: sent.at + life,
            hit: OwnedHit::new(hit),
            decision: decision.clone(),
        }
    }

    /// Whether the store would deny another hit now: the same budgets and versions, and a cost that
    /// is not lower.
    ///
    /// A hit that can never pass does not match: its outcome is `Impossible`, not denied.
    fn applies_to(&self, hit: Hit<'_>, sent: Lookup) -> bool {
        let known = self.hit.as_hit();
        // Cheap comparisons first. `same_budgets_as` compares the texts of policies and keys.
        self.sent.budgets.hash == sent.budgets.hash
            && self.sent.budgets.sum == sent.budgets.sum
            // A manual clock may step back before `sent`, where the denial proves nothing.
            && (self.sent.at..self.until).contains(&sent.at)
            && hit.cost >= known.cost
            && hit.overdraft == known.overdraft
            && hit.same_budgets_as(&known)
            && hit.can_ever_fit()
    }

    /// The decision with waits that are shorter by the age of the denial. They never exceed those
    /// of the store.
    fn aged(&self, now: Timestamp) -> Decision {
        self.decision.clone().aged_by(now.since(self.sent.at))
    }
}

impl Table {
    /// An empty table with all its sets: about 136 KiB.
    pub(super) fn new() -> Table {
        let set = |_| Mutex::new(array::from_fn(|_| None));
        Table {
            hasher: RandomState::new(),
            versions: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            sets: (0..SETS).map(set).collect(),
        }
    }

    /// The present versions of the budgets of a hit.
    pub(super) fn version(&self, hit: Hit<'_>) -> Version {
        let mut budgets = Version { hash: 0, sum: 0 };
        for hash in self.hashes(hit) {
            // Sequentially consistent with `bump_version`: a hit that is sent after a completed
            // change sees its bump.
            let count = self.version_of(hash).load(Ordering::SeqCst);
            // This hash selects the set and filters entries. `same_budgets_as` decides about a
            // match.
            budgets.hash = budgets.hash.rotate_left(1).wrapping_add(hash);
            budgets.sum = budgets.sum.wrapping_add(count);
        }
        budgets
    }

    /// Invalidates all denials of the budgets of a hit.
    ///
    /// The caller has completed the change. A denial whose hit was sent before the bump never
    /// applies after it.
    pub(super) fn bump_version(&self, hit: Hit<'_>) {
        for hash in self.hashes(hit) {
            self.version_of(hash).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The denial that applies to a hit.
    ///
    /// The set is locked for the scan and one clone of the decision.
    pub(super) fn find(&self, hit: Hit<'_>, lookup: Lookup) -> Option<Decision> {
        let set = self.set(lookup.budgets.hash);
        let mut denials = set.iter().flatten();
        let found = denials.find(|known| known.applies_to(hit, lookup));
        found.map(|known| known.aged(lookup.at))
    }

    /// Inserts a denial in place of the last one of the same budgets, or else of the one that ends first.
    ///
    /// `None` sorts first, so the entry of the same budgets is replaced even if a place is free.
    /// Two denials of one budget with different costs replace each other.
    pub(super) fn insert(&self, denial: CachedDenial) {
        let hash = denial.sent.budgets.hash;
        let mut set = self.set(hash);
        let way = set.iter_mut().min_by_key(|way| match way {
            Some(known) if known.sent.budgets.hash == hash => None,
            Some(other) => Some(other.until),
            None => Some(Timestamp::default()),
        });
        if let Some(way) = way {
            *way = Some(Box::new(denial));
        }
    }

    /// The hash of each budget of a hit.
    fn hashes(&self, hit: Hit<'_>) -> impl Iterator<Item = u64> {
        hit.budget_names()
            .map(|budget| self.hasher.hash_one(budget))
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "any bits of a hash will do"
    )]
    /// The version counter of a budget. It uses the high half of the hash, and the sets use the low
    /// bits, so that budgets which share a set seldom share a counter.
    fn version_of(&self, hash: u64) -> &AtomicU32 {
        &self.versions[(hash >> 32) as usize % COUNTERS]
    }

    /// Locks the set of a hash.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "any bits of a hash will do"
    )]
    /// Locks the entries that share the lowest bits of a hash.
    fn set(&self, hash: u64) -> MutexGuard<'_, Set> {
        let set = &self.sets[hash as usize % SETS];
        lock(set)
    }
}

#[cfg(test)]
impl Table {
    pub(super) fn len(&self) -> usize {
        let sets = self.sets.iter().map(|set| set.lock().unwrap());
        sets.map(|set| set.iter().flatten().count()).sum()
    }
}
