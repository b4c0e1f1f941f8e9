//! Denials by budget, in bounded memory.

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

const SETS: usize = 1 << 10;
/// How many denials a set holds; of more, those that end first are forgotten.
const WAYS: usize = 8;
/// So many that hardly any two busy budgets share a count.
const COUNTS: usize = 1 << 14;

/// Denials by budget, in bounded memory.
///
/// Nothing is ever taken out: a denial remembers how often its budgets had been changed when its hit
/// was sent, and means nothing once that count has moved. So one that arrives after a
/// reset, and was sent before, is void as well.
pub(super) struct Table {
    hasher: RandomState,
    /// How often a budget was changed; several share a count.
    counts: Box<[AtomicU32]>,
    sets: Box<[Mutex<Set>]>,
}

type Set = [Option<Box<CachedDenial>>; WAYS];

/// What is known of a hit from before it was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::limiter) struct Lookup {
    budgets: Version,
    at: Timestamp,
}

/// All budgets of a hit together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version {
    hash: u64,
    changes: u32,
}

impl Version {
    pub(super) const fn sent_at(self, at: Timestamp) -> Lookup {
        Lookup { budgets: self, at }
    }
}

/// A denial, and for how long it holds.
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

    /// Whether the store would deny another hit as well, which is about to be sent.
    fn applies_to(&self, hit: Hit<'_>, sent: Lookup) -> bool {
        let known = self.hit.as_hit();
        self.sent.budgets.hash == sent.budgets.hash
            && self.sent.budgets.changes == sent.budgets.changes
            && (self.sent.at..self.until).contains(&sent.at)
            && hit.cost >= known.cost
            && hit.overdraft == known.overdraft
            && hit.same_budgets_as(&known)
            && hit.can_ever_fit()
    }

    /// What there is to say of it now.
    fn aged(&self, now: Timestamp) -> Decision {
        self.decision.clone().aged_by(now.since(self.sent.at))
    }
}

impl Table {
    pub(super) fn new() -> Table {
        let set = |_| Mutex::new(array::from_fn(|_| None));
        Table {
            hasher: RandomState::new(),
            counts: (0..COUNTS).map(|_| AtomicU32::new(0)).collect(),
            sets: (0..SETS).map(set).collect(),
        }
    }

    /// How often the budgets of a hit were changed so far.
    pub(super) fn version(&self, hit: Hit<'_>) -> Version {
        let mut budgets = Version {
            hash: 0,
            changes: 0,
        };
        for hash in self.hashes(hit) {
            let count = self.count_of(hash).load(Ordering::SeqCst);
            budgets.hash = budgets.hash.rotate_left(1).wrapping_add(hash);
            budgets.changes = budgets.changes.wrapping_add(count);
        }
        budgets
    }

    /// The budgets of a hit are not what they were.
    pub(super) fn bump_version(&self, hit: Hit<'_>) {
        for hash in self.hashes(hit) {
            self.count_of(hash).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The denial that covers a hit which is about to be sent.
    pub(super) fn find(&self, hit: Hit<'_>, sent: Lookup) -> Option<Decision> {
        let places = self.set(sent.budgets.hash);
        let mut deny_cache = places.iter().flatten();
        let found = deny_cache.find(|known| known.applies_to(hit, sent));
        found.map(|known| known.aged(sent.at))
    }

    /// Keeps a denial in place of the last one of the same budgets, or of the one that ends first.
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

    fn hashes(&self, hit: Hit<'_>) -> impl Iterator<Item = u64> {
        hit.budget_names()
            .map(|budget| self.hasher.hash_one(budget))
    }

    #[allow(
        clippy::cast_possible_truncation,
        reason = "any bits of a hash will do"
    )]
    fn count_of(&self, hash: u64) -> &AtomicU32 {
        &self.counts[(hash >> 32) as usize % COUNTS]
    }

    /// A set, also after another thread panicked: nothing between lock and unlock can.
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
