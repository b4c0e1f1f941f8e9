//! One shard of the memory store: a hash table and its entries, behind one lock.
//!
//! ```text
//! table:      hash -> index
//!                       |
//! entries:    [ with budget ... | exhausted ... ]
//!               ^ clock_hand     ^ exhausted_from
//! recoveries: heap of (recovers_at, hash), the first to recover on top
//! ```
//!
//! A victim with budget is found by the clock hand, and an exhausted victim on top of the heap. Neither searches
//! the shard (`docs/decisions/0012-memory-store.md`).
//!
//! A call on one key runs in [`Shard::write`]. One on several keys takes their budgets out with [`Shard::take`], decides on
//! them, and puts them back with [`Shard::put`], all under the locks of their shards.

mod eviction;
mod partition;

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashTable;

use crate::store::memory::{
    MemoryStats,
    entry::{Entry, EntryId},
    interner::Interner,
    locked::{Change, LockedBudget},
};
use crate::{budget::Budget, decision::Charged, policy::HitParams, time::Timestamp};

/// The bounds of one shard. The keys of the hit that is being decided may exceed them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Maximum number of entries; at least 1.
    pub(super) keys: usize,
    /// Maximum estimated bytes of all entries.
    pub(super) bytes: usize,
}

/// The keys of the hit that is being decided, and its time.
///
/// An eviction never chooses one of these keys. Otherwise a hit on two keys could evict its own first charge.
#[derive(Clone, Copy)]
pub(super) struct HitKeys<'a> {
    pub(super) keys: &'a [EntryId<'a>],
    pub(super) now: Timestamp,
}

/// A budget that was taken out of its entry.
pub(super) struct TakenBudget {
    pub(super) budget: Budget,
    /// Whether the shard has an entry of the key.
    pub(super) is_known: bool,
    /// The estimated bytes of the budget before.
    bytes: usize,
}

/// Entries that an insert checks for expiry. With two for each insert the sweep outruns a flood of new keys.
const SWEPT_PER_INSERT: usize = 2;
/// Hits on a shard between two sweeps.
const SWEEP_INTERVAL_HITS: u64 = 64;

/// The entries of one shard, in two parts: entries with budget left, and behind them the exhausted ones.
///
/// - An entry becomes exhausted by the hit that left nothing. It gets budget again by a hit that finds some, or by
///   an eviction or a sweep that finds its recovery time past. Time alone moves no entry.
/// - A write that leaves the entry in its part moves nothing. A write that changes the part swaps the entry with
///   the one at the border, which updates two indices of the table.
/// - Every method needs `&mut self`, so the lock of the shard makes each of them atomic.
#[derive(Debug)]
pub(super) struct Shard {
    /// Indices into `entries`, found by hash. Each index occurs exactly once.
    table: HashTable<u32>,
    /// All entries, without gaps. An index is valid only until the next insert, removal or reclassification.
    entries: Vec<Entry>,
    /// The index of the first exhausted entry; at most `entries.len()`.
    exhausted_from: usize,
    /// The exhausted entries by recovery time and hash, the first to recover on top.
    ///
    /// Every exhausted entry has its pair here. A pair that matches no exhausted entry is stale and is skipped, so a
    /// change of the recovery time pushes a new pair and leaves the old one.
    recoveries: BinaryHeap<Reverse<(Timestamp, u64)>>,
    names: Interner,
    bounds: Bounds,
    /// The sum of [`Entry::bytes`] over all entries.
    bytes: usize,
    /// The index at which the next search for a victim with budget begins; may be beyond the part.
    clock_hand: usize,
    /// The index at which the next search for expired entries begins; may be beyond the end.
    sweep_hand: usize,
    /// A time from which on every entry has expired; an upper bound. An idle shard is then cleared in one step.
    all_expired_at: Timestamp,
    /// Hits so far, modulo 2^64; decides when the next sweep is due.
    hits: u64,
    evictions: Evictions,
}

/// Counts of evicted entries that had not expired.
#[derive(Clone, Copy, Debug, Default)]
struct Evictions {
    /// All of them, including the two kinds below.
    all: u64,
    /// Entries with budget, evicted while more than three quarters of the shard were exhausted.
    crowded_out: u64,
    /// Exhausted entries, evicted because the shard had no other.
    exhausted: u64,
}

impl Shard {
    /// An empty shard. It allocates nothing until the first insert.
    pub(super) fn new(bounds: Bounds) -> Shard {
        Shard {
            table: HashTable::new(),
            entries: Vec::new(),
            exhausted_from: 0,
            recoveries: BinaryHeap::new(),
            names: Interner::default(),
            bounds,
            bytes: 0,
            clock_hand: 0,
            sweep_hand: 0,
            all_expired_at: Timestamp::default(),
            hits: 0,
            evictions: Evictions::default(),
        }
    }

    /// Returns the index of the entry, or `None` for an unknown key.
    ///
    /// It compares the name and the key's text, so two keys with one hash are different entries.
    #[inline]
    pub(super) fn find(&self, id: EntryId<'_>) -> Option<usize> {
        let found = self.table.find(id.hash, |&index| {
            let entry = &self.entries[index as usize];
            self.names.matches(entry.name, id.group) && entry.key.as_str() == id.text
        });
        found.map(|&index| index as usize)
    }

    /// Fast path of [`write`](Shard::write): charges a known key with budget left under a single token bucket.
    ///
    /// Returns `None` without a change when the hit needs the general path. The entry stays in its part and keeps its
    /// bytes, because [`Budget::try_charge_fast`] succeeds only if tokens are left after the hit.
    #[inline]
    pub(super) fn try_charge_fast(
        &mut self,
        id: EntryId<'_>,
        index: Option<usize>,
        params: HitParams,
        now: Timestamp,
    ) -> Option<Charged> {
        // An exhausted entry must be classified after the hit.
        let index = index.filter(|index| *index < self.exhausted_from)?;
        let entry = &mut self.entries[index];
        let charged = entry.budget.try_charge_fast(id.group, params, now)?;
        entry.was_hit = true;
        self.all_expired_at = self.all_expired_at.max(entry.budget.expires());
        Some(charged)
    }

    /// Runs `step` on the budget of a key, and stores it if it has changed. `index` is the result of
    /// [`find`](Shard::find) under the same lock.
    ///
    /// An unknown key is inserted only if its budget has changed. A denied hit or a peek on an unknown key therefore
    /// takes no memory.
    #[inline(always)]
    pub(super) fn write<'a, R>(
        &mut self,
        id: EntryId<'a>,
        index: Option<usize>,
        own: HitKeys<'_>,
        step: impl FnOnce(&mut [LockedBudget<'a, '_>]) -> R,
    ) -> R {
        let Some(index) = index else {
            let mut budget = Budget::default();
            let mut locked = LockedBudget::new(id, &mut budget, false);
            let result = step(std::slice::from_mut(&mut locked));
            let change = locked.change;
            if change.is_stored {
                self.insert(id, budget, change, own);
            }
            return result;
        };
        let entry = &mut self.entries[index];
        let bytes_before = entry.budget_bytes();
        let mut locked = LockedBudget::new(id, &mut entry.budget, true);
        let result = step(std::slice::from_mut(&mut locked));
        let change = locked.change;
        if change.is_stored {
            self.update(id, index, bytes_before, change, own);
        } else {
            self.recount(index, bytes_before);
        }
        result
    }

    /// Counts the memory of an entry again whose budget did not change, but may be a copy with less capacity.
    fn recount(&mut self, index: usize, bytes_before: usize) {
        self.bytes = self.bytes - bytes_before + self.entries[index].budget_bytes();
    }

    /// Takes the budget of a key out of its entry; an unknown key has an empty one. [`put`](Shard::put) must follow
    /// under the same lock.
    pub(super) fn take(&mut self, id: EntryId<'_>) -> TakenBudget {
        let entry = self.find(id).map(|index| &mut self.entries[index]);
        TakenBudget {
            is_known: entry.is_some(),
            bytes: entry.as_ref().map_or(0, |entry| entry.budget_bytes()),
            budget: entry.map_or_else(Budget::default, |entry| std::mem::take(&mut entry.budget)),
        }
    }

    /// Puts a budget back that was taken out, and stores it if it has changed.
    pub(super) fn put(
        &mut self,
        id: EntryId<'_>,
        own: HitKeys<'_>,
        taken: &mut TakenBudget,
        change: Change,
    ) {
        let budget = std::mem::take(&mut taken.budget);
        match self.find(id) {
            Some(index) => {
                self.entries[index].budget = budget;
                if change.is_stored {
                    self.update(id, index, taken.bytes, change, own);
                } else {
                    self.recount(index, taken.bytes);
                }
            }
            None if change.is_stored => self.insert(id, budget, change, own),
            None => {}
        }
    }

    /// Updates the shard after the budget of an entry has changed: its bytes, its reference bit, and its part if that may
    /// have changed. If the shard exceeds its bytes now, other entries are evicted.
    #[inline]
    fn update(
        &mut self,
        id: EntryId<'_>,
        index: usize,
        bytes_before: usize,
        change: Change,
        own: HitKeys<'_>,
    ) {
        let entry = &mut self.entries[index];
        entry.was_hit = true;
        self.bytes = self.bytes - bytes_before + entry.budget_bytes();
        self.all_expired_at = self.all_expired_at.max(entry.budget.expires());
        let may_be_exhausted = change.may_be_exhausted || entry.budget.is_pinned();
        if may_be_exhausted || index >= self.exhausted_from {
            self.classify(index, id.group, may_be_exhausted, own.now);
        }
        // A known key grows with its log or its slots.
        if self.bytes > self.bounds.bytes {
            self.make_room(0, 0, own);
        }
    }

    /// Inserts a new key: drops expired entries, makes room, then classifies the entry.
    ///
    /// Room is made before the entry is added, so the new entry cannot be its own victim.
    ///
    /// Out of line: most hits are on known keys.
    #[inline(never)]
    fn insert(&mut self, id: EntryId<'_>, budget: Budget, change: Change, own: HitKeys<'_>) {
        // Expired entries go first: dropping them costs no client its budget.
        self.drop_expired(SWEPT_PER_INSERT, own.now);
        let entry = Entry::new(id, self.names.intern(id.group), budget);
        self.make_room(1, entry.bytes(), own);
        self.bytes += entry.bytes();
        self.all_expired_at = self.all_expired_at.max(entry.budget.expires());
        let may_be_exhausted = change.may_be_exhausted || entry.budget.is_pinned();
        let index = self.push(entry);
        if may_be_exhausted {
            self.classify(index, id.group, may_be_exhausted, own.now);
        }
    }

    /// Counts a hit. Every 64th hit returns a number, and the caller then sweeps this shard and, by that number, another.
    #[inline]
    pub(super) fn count_hit(&mut self) -> Option<u64> {
        self.hits = self.hits.wrapping_add(1);
        let is_due = self.hits.is_multiple_of(SWEEP_INTERVAL_HITS);
        is_due.then_some(self.hits / SWEEP_INTERVAL_HITS)
    }

    /// Adds the size and the evictions of this shard to `total`.
    #[inline]
    pub(super) fn add_stats(&self, total: &mut MemoryStats) {
        total.keys += self.entries.len();
        total.bytes += self.bytes;
        let Evictions {
            all,
            crowded_out,
            exhausted,
        } = self.evictions;
        total.evicted += all - crowded_out - exhausted;
        total.evicted_crowded_out += crowded_out;
        total.evicted_exhausted += exhausted;
    }
}

#[cfg(test)]
mod tests;
