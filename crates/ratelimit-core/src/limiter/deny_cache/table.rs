//! The table of the deny cache: set-associative, invalidated by version counters.

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

/// Sets of the table. The hash of the budgets chooses the set.
const SETS: usize = 1 << 10;
/// Denials in a set. A further one replaces the one that ends first.
const WAYS: usize = 8;
/// Version counters: enough that two busy budgets seldom share one. Budgets that share one only invalidate each other.
const COUNTERS: usize = 1 << 14;

/// Denials by budget, in bounded memory: 8,192 at most.
///
/// An entry holds the versions of its budgets from before its hit was sent, and is ignored once a version has changed. So a denial
/// that arrives after a reset, but was sent before it, is ignored as well. Entries are never removed, only replaced.
pub(super) struct Table {
    hasher: RandomState,
    /// The version counter of each budget, by its hash.
    versions: Box<[AtomicU32]>,
    sets: Box<[Mutex<Set>]>,
}

type Set = [Option<Box<CachedDenial>>; WAYS];

/// The versions of the budgets of a hit, and the time, from before it was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::limiter) struct Lookup {
    budgets: Version,
    at: Timestamp,
}

/// The budgets of a hit and the sum of their versions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    /// Identifies the budgets, in their order.
    hash: u64,
    /// Sum of the version counters. Each only grows, so the sum changes when any of them does.
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
    sent: Lookup,
    until: Timestamp,
    hit: OwnedHit,
    decision: Decision,
}

impl CachedDenial {
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

    /// Whether the store would deny another hit now: the same budgets and versions, and a cost that is not lower.
    fn applies_to(&self, hit: Hit<'_>, sent: Lookup) -> bool {
        let known = self.hit.as_hit();
        self.sent.budgets.hash == sent.budgets.hash
            && self.sent.budgets.sum == sent.budgets.sum
            && (self.sent.at..self.until).contains(&sent.at)
            && hit.cost >= known.cost
            && hit.overdraft == known.overdraft
            && hit.same_budgets_as(&known)
            && hit.can_ever_fit()
    }

    /// The decision with waits that are shorter by the age of the denial.
    fn aged(&self, now: Timestamp) -> Decision {
        self.decision.clone().aged_by(now.since(self.sent.at))
    }
}

impl Table {
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
            let count = self.version_of(hash).load(Ordering::SeqCst);
            budgets.hash = budgets.hash.rotate_left(1).wrapping_add(hash);
            budgets.sum = budgets.sum.wrapping_add(count);
        }
        budgets
    }

    /// Invalidates all denials of the budgets of a hit.
    pub(super) fn bump_version(&self, hit: Hit<'_>) {
        for hash in self.hashes(hit) {
            self.version_of(hash).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The denial that applies to a hit.
    pub(super) fn find(&self, hit: Hit<'_>, lookup: Lookup) -> Option<Decision> {
        let set = self.set(lookup.budgets.hash);
        let mut denials = set.iter().flatten();
        let found = denials.find(|known| known.applies_to(hit, lookup));
        found.map(|known| known.aged(lookup.at))
    }

    /// Inserts a denial in place of the last one of the same budgets, or else of the one that ends first.
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
    /// The version counter of a budget.
    fn version_of(&self, hash: u64) -> &AtomicU32 {
        &self.versions[(hash >> 32) as usize % COUNTERS]
    }

    /// Locks the set of a hash.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "any bits of a hash will do"
    )]
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
