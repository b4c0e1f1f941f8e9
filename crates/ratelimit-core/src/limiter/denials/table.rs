//! Denials by budget, in bounded memory.

use std::{
    array,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ahash::RandomState;

use crate::{decision::Decision, limiter::check::Asked, store::Hit, time::Timestamp};

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

type Set = [Option<Box<Denial>>; WAYS];

/// What is known of a hit from before it was sent.
#[derive(Clone, Copy, Debug)]
pub(in crate::limiter) struct Sent {
    budgets: Budgets,
    at: Timestamp,
}

/// All budgets of a hit together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budgets {
    hash: u64,
    changes: u32,
}

impl Budgets {
    pub(super) const fn sent_at(self, at: Timestamp) -> Sent {
        Sent { budgets: self, at }
    }
}

/// A denial, and for how long it holds.
pub(super) struct Denial {
    sent: Sent,
    until: Timestamp,
    asked: Asked,
    decision: Decision,
}

impl Denial {
    pub(super) fn new(hit: Hit<'_>, sent: Sent, decision: &Decision, life: Duration) -> Denial {
        Denial {
            sent,
            until: sent.at + life,
            asked: Asked::of(hit),
            decision: decision.clone(),
        }
    }

    /// Whether the store would deny another hit as well, which is about to be sent.
    fn covers(&self, hit: Hit<'_>, sent: Sent) -> bool {
        let known = self.asked.hit();
        self.sent.budgets.hash == sent.budgets.hash
            && self.sent.budgets.changes == sent.budgets.changes
            && (self.sent.at..self.until).contains(&sent.at)
            && hit.cost >= known.cost
            && hit.overdraft == known.overdraft
            && hit.spends_like(&known)
            && hit.is_possible()
    }

    /// What there is to say of it now.
    fn told(&self, now: Timestamp) -> Decision {
        self.decision.clone().after(now.since(self.sent.at))
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
    pub(super) fn count(&self, hit: Hit<'_>) -> Budgets {
        let mut budgets = Budgets {
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
    pub(super) fn change(&self, hit: Hit<'_>) {
        for hash in self.hashes(hit) {
            self.count_of(hash).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The denial that covers a hit which is about to be sent.
    pub(super) fn find(&self, hit: Hit<'_>, sent: Sent) -> Option<Decision> {
        let places = self.set(sent.budgets.hash);
        let mut denials = places.iter().flatten();
        let found = denials.find(|known| known.covers(hit, sent));
        found.map(|known| known.told(sent.at))
    }

    /// Keeps a denial in place of the last one of the same budgets, or of the one that ends first.
    pub(super) fn keep(&self, denial: Denial) {
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
        hit.budgets().map(|budget| self.hasher.hash_one(budget))
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
        set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Table {
    pub(super) fn len(&self) -> usize {
        let sets = self.sets.iter().map(|set| set.lock().unwrap());
        sets.map(|set| set.iter().flatten().count()).sum()
    }
}
