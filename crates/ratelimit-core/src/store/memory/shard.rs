//! One part of the store: a hash table of its own, behind a lock of its own.

mod eviction;
mod partition;

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashTable;

use crate::store::memory::{MemoryStats, entry::Entry, interner::Interner};
use crate::{
    algorithm::{Effect, Fit},
    budget::{AdjustmentRequest, AdjustmentResult, Budget},
    decision::{Decision, FastCharge, LimitDecision},
    key::Key,
    policy::{EffectiveLimit, HitParams, LimitGroup},
    time::Timestamp,
};

/// The budget that is meant: of which key, and under which limits.
#[derive(Clone, Copy)]
pub(super) struct EntryId<'a> {
    pub(super) hash: u64,
    pub(super) group: &'a LimitGroup,
    pub(super) key: &'a Key,
    /// The key's text, read once.
    pub(super) text: &'a str,
}

/// The most that a shard keeps, apart from the keys of the hit that it decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) keys: usize,
    pub(super) bytes: usize,
}

/// The keys of the hit that is being decided, which it never evicts, and its time.
#[derive(Clone, Copy)]
pub(super) struct HitKeys<'a> {
    pub(super) keys: &'a [EntryId<'a>],
    pub(super) now: Timestamp,
}

/// Outcome of a step on a budget.
struct WriteResult {
    stored: bool,
    /// Whether a limit may have nothing left; a step that does not know says true.
    is_used_up: bool,
}

/// How many entries an insert looks at, to drop those that expired.
const SWEPT_PER_INSERT: usize = 2;
const HITS_BETWEEN_SWEEPS: u64 = 64;

/// A shard's entries, in two parts: those with budget left, and behind them the exhausted ones.
///
/// An entry is exhausted from the hit that left nothing until the hit that finds something again, or
/// until an eviction finds its recovery time past.
#[derive(Debug)]
pub(super) struct Shard {
    /// Indices into `entries`, found by hash.
    table: HashTable<u32>,
    entries: Vec<Entry>,
    /// Where the exhausted entries begin.
    exhausted_from: usize,
    /// The exhausted entries by recovery time and hash, the first to recover on top. A pair that no
    /// exhausted entry has is stale and skipped.
    recoveries: BinaryHeap<Reverse<(Timestamp, u64)>>,
    names: Interner,
    bounds: Bounds,
    /// The estimated bytes of all entries.
    bytes: usize,
    /// Where the search for a victim with budget goes on.
    clock_hand: usize,
    /// Where the search for expired entries goes on.
    sweep_hand: usize,
    /// Every entry has expired from then on.
    all_expired_at: Timestamp,
    hits: u64,
    evictions: Evictions,
}

/// How many entries that had not expired were evicted.
#[derive(Clone, Copy, Debug, Default)]
struct Evictions {
    all: u64,
    crowded_out: u64,
    exhausted: u64,
}

impl Shard {
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

    #[inline]
    pub(super) fn find(&self, id: EntryId<'_>) -> Option<usize> {
        let found = self.table.find(id.hash, |&index| {
            let entry = &self.entries[index as usize];
            self.names.matches(entry.name, id.group) && entry.key.as_str() == id.text
        });
        found.map(|&index| index as usize)
    }

    /// Fast path: decides a hit of the most common kind on a known key with budget left.
    #[inline(always)]
    pub(super) fn try_charge_fast(
        &mut self,
        group: &LimitGroup,
        index: usize,
        params: HitParams,
        now: Timestamp,
    ) -> Option<FastCharge> {
        if index >= self.exhausted_from {
            return None;
        }
        let entry = &mut self.entries[index];
        let charge = entry.budget.try_charge_fast(group, params, now)?;
        entry.was_hit = true;
        self.all_expired_at = self.all_expired_at.max(entry.budget.expires());
        Some(charge)
    }

    /// Decides any hit on one key.
    #[inline]
    pub(super) fn check(
        &mut self,
        id: EntryId<'_>,
        index: Option<usize>,
        params: HitParams,
        decision: &mut Decision,
    ) {
        let own = HitKeys {
            keys: &[id],
            now: decision.now,
        };
        self.write(id, index, own, |budget| WriteResult {
            stored: budget.check(id.group, params, decision),
            is_used_up: decision.is_exhausted(),
        });
    }

    /// Whether a hit that concerns other budgets as well fits here.
    pub(super) fn fit(&self, id: EntryId<'_>, params: HitParams, now: Timestamp) -> Fit {
        match self.find(id) {
            Some(index) => self.entries[index].budget.fit(id.group, now, params),
            None => Budget::default().fit(id.group, now, params),
        }
    }

    /// Does what was decided for all budgets that a hit concerns.
    pub(super) fn apply(
        &mut self,
        id: EntryId<'_>,
        own: HitKeys<'_>,
        params: HitParams,
        spend: Effect,
        mut each: impl FnMut(&EffectiveLimit, LimitDecision),
    ) {
        self.write(id, self.find(id), own, |budget| {
            let mut is_used_up = false;
            let stored = budget.apply(id.group, own.now, params, spend, |effective, step| {
                is_used_up |= step.remaining == 0;
                each(effective, step);
            });
            WriteResult { stored, is_used_up }
        });
    }

    /// Changes a charge that was made earlier.
    pub(super) fn settle(
        &mut self,
        id: EntryId<'_>,
        own: HitKeys<'_>,
        settling: AdjustmentRequest<'_>,
    ) -> AdjustmentResult {
        let mut settled = AdjustmentResult::default();
        self.write(id, self.find(id), own, |budget| {
            settled = budget.settle(id.group, settling);
            WriteResult {
                stored: settled.stored,
                is_used_up: true,
            }
        });
        settled
    }

    /// Lets `step` change the budget of a key, and keeps what it wrote.
    #[inline(always)]
    fn write(
        &mut self,
        id: EntryId<'_>,
        index: Option<usize>,
        own: HitKeys<'_>,
        step: impl FnOnce(&mut Budget) -> WriteResult,
    ) {
        let Some(index) = index else {
            let mut budget = Budget::default();
            let written = step(&mut budget);
            if written.stored {
                self.insert(id, budget, written.is_used_up, own);
            }
            return;
        };
        let entry = &mut self.entries[index];
        let bytes_before = entry.bytes();
        let WriteResult { stored, is_used_up } = step(&mut entry.budget);
        if !stored {
            // A peek or a denial under another tier does not know what the key has left under its own.
            return;
        }
        entry.written();
        self.bytes = self.bytes - bytes_before + entry.bytes();
        self.all_expired_at = self.all_expired_at.max(entry.budget.expires());
        let may_be_exhausted = is_used_up || entry.budget.is_pinned();
        if may_be_exhausted || index >= self.exhausted_from {
            self.classify(index, id.group, may_be_exhausted, own.now);
        }
        if self.bytes > self.bounds.bytes {
            self.make_room(0, 0, own);
        }
    }

    #[inline(never)]
    fn insert(&mut self, id: EntryId<'_>, budget: Budget, is_used_up: bool, own: HitKeys<'_>) {
        self.drop_expired(SWEPT_PER_INSERT, own.now);
        let entry = Entry::new(id, self.names.intern(id.group), budget);
        self.make_room(1, entry.bytes(), own);
        self.bytes += entry.bytes();
        self.all_expired_at = self.all_expired_at.max(entry.budget.expires());
        let may_be_exhausted = is_used_up || entry.budget.is_pinned();
        let index = self.push(entry);
        if may_be_exhausted {
            self.classify(index, id.group, may_be_exhausted, own.now);
        }
    }

    /// Forgets what a key has spent.
    pub(super) fn reset(&mut self, id: EntryId<'_>, own: HitKeys<'_>) {
        if let Some(index) = self.find(id) {
            self.write(id, Some(index), own, |budget| {
                budget.reset(own.now);
                WriteResult {
                    stored: true,
                    is_used_up: false,
                }
            });
        }
    }

    /// Counts a hit; now and then it answers a number, and the shard is to be swept.
    #[inline]
    pub(super) fn count_hit(&mut self) -> Option<u64> {
        self.hits = self.hits.wrapping_add(1);
        let is_due = self.hits.is_multiple_of(HITS_BETWEEN_SWEEPS);
        is_due.then_some(self.hits / HITS_BETWEEN_SWEEPS)
    }

    #[inline]
    pub(super) fn add_stats(&self, total: &mut MemoryStats) {
        total.keys += self.entries.len();
        total.bytes += self.bytes;
        // The report of each second reads every shard, and most shards evict nothing.
        if self.evictions.all > 0 {
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
}

#[cfg(test)]
mod tests;
