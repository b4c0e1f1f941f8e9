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
//! A hit on one key calls [`Shard::find`], then [`Shard::try_charge_fast`] or [`Shard::check`]. A hit on several keys
//! calls [`Shard::fit`] for each key, then [`Shard::apply`] for each. All calls of a hit run under one lock.

mod eviction;
mod partition;

use std::{cmp::Reverse, collections::BinaryHeap};

use hashbrown::HashTable;

use crate::store::memory::{
    MemoryStats,
    entry::{Entry, EntryId},
    interner::Interner,
};
use crate::{
    algorithm::{Effect, Fit},
    budget::{AdjustmentRequest, AdjustmentResult, Budget},
    decision::{Decision, FastCharge, LimitDecision},
    policy::{EffectiveLimit, HitParams, LimitGroup},
    time::Timestamp,
};

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

/// Result of a step on a budget.
struct WriteResult {
    /// Whether the step changed the budget. If not, the entry keeps its part and its bytes.
    stored: bool,
    /// Whether a limit may have nothing left. A step that does not know returns `true`; then
    /// [`Shard::classify`] computes it.
    is_used_up: bool,
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
/// - A panic leaves the shard usable: steps compute before they write.
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

    /// Fast path: charges a known key with budget left under a single token bucket.
    ///
    /// Returns `None` without a change when the hit needs the general path. The entry stays in its part, because
    /// [`Budget::try_charge_fast`] succeeds only if tokens are left after the hit; so neither classification nor
    /// bytes have to be updated.
    #[inline(always)]
    pub(super) fn try_charge_fast(
        &mut self,
        group: &LimitGroup,
        index: usize,
        params: HitParams,
        now: Timestamp,
    ) -> Option<FastCharge> {
        // An exhausted entry must be reclassified after the hit, which the fast path does not do.
        if index >= self.exhausted_from {
            return None;
        }
        let entry = &mut self.entries[index];
        let charge = entry.budget.try_charge_fast(group, params, now)?;
        entry.was_hit = true;
        self.all_expired_at = self.all_expired_at.max(entry.budget.expires());
        Some(charge)
    }

    /// Decides any hit on one key, and fills `decision`.
    ///
    /// `index` is the result of [`Shard::find`] under the same lock.
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

    /// Whether a hit on several keys fits into this budget. It changes nothing; [`Shard::apply`] follows.
    ///
    /// An unknown key is a full budget. A cost above the capacity of a limit does not fit even then.
    pub(super) fn fit(&self, id: EntryId<'_>, params: HitParams, now: Timestamp) -> Fit {
        match self.find(id) {
            Some(index) => self.entries[index].budget.fit(id.group, now, params),
            None => Budget::default().fit(id.group, now, params),
        }
    }

    /// Applies the decision of a hit on several keys to this budget, and reports the numbers of its limits to `each`.
    ///
    /// `spend` is the same for all budgets of the hit: charge, count a denial, or nothing. The caller holds the locks of
    /// all their shards since [`Shard::fit`].
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

    /// Changes a charge that was made earlier. A key that is not in the shard has nothing to give back.
    ///
    /// A key that was evicted and inserted again is not recognised: the refund credits its new charges.
    pub(super) fn settle(
        &mut self,
        id: EntryId<'_>,
        own: HitKeys<'_>,
        settling: AdjustmentRequest<'_>,
    ) -> AdjustmentResult {
        let mut settled = AdjustmentResult::default();
        self.write(id, self.find(id), own, |budget| {
            settled = budget.settle(id.group, settling);
            // A settlement does not know what is left, so the entry is classified again.
            WriteResult {
                stored: settled.stored,
                is_used_up: true,
            }
        });
        settled
    }

    /// A copy of the budget of a key; a full one for an unknown key.
    pub(super) fn budget(&self, id: EntryId<'_>) -> Budget {
        let entry = self.find(id).map(|index| &self.entries[index]);
        entry.map_or_else(Budget::default, |entry| entry.budget.clone())
    }

    /// Replaces the budget of a key by one that was decided under the same lock.
    pub(super) fn replace(&mut self, id: EntryId<'_>, own: HitKeys<'_>, decided: Budget) {
        self.write(id, self.find(id), own, |budget| {
            *budget = decided;
            // Several members may have spent from it, so the entry is classified again.
            WriteResult {
                stored: true,
                is_used_up: true,
            }
        });
    }

    /// Runs `step` on the budget of a key, and updates the shard if the step wrote something.
    ///
    /// 1. An unknown key gets an empty budget, which is inserted only if the step wrote to it. A denied hit or a
    ///    peek on an unknown key therefore takes no memory.
    /// 2. A known key updates its bytes and its reference bit, and is classified if its part may have changed.
    /// 3. If the shard exceeds its bytes now, other entries are evicted.
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
            // A peek or a denial does not move the entry: under another tier it does not know what the key has left
            // under its own.
            return;
        }
        entry.was_hit = true;
        self.bytes = self.bytes - bytes_before + entry.bytes();
        self.all_expired_at = self.all_expired_at.max(entry.budget.expires());
        let may_be_exhausted = is_used_up || entry.budget.is_pinned();
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
    fn insert(&mut self, id: EntryId<'_>, budget: Budget, is_used_up: bool, own: HitKeys<'_>) {
        // Expired entries go first: dropping them costs no client its budget.
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

    /// Clears what a key has spent.
    ///
    /// The entry stays until it expires: its budget records the time of the reset, so that receipts from before it
    /// give nothing back.
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
