//! Hits on the budget of one key: the fast path, and the general path for every other hit.
//!
//! The two-step API ([`MemoryStore::lock_entry`], then [`LockedEntry::try_charge_fast`] or
//! [`LockedEntry::decide`]) lets the caller inline the fast path and keep the general path out of line. The key is
//! hashed, locked and looked up once for both.

use std::sync::MutexGuard;

use crate::store::memory::{MemoryInner, MemoryStore, entry::EntryId, shard::Shard};
use crate::{
    decision::{Decision, FastCharge},
    policy::{HitParams, LimitGroup},
    store::hit::Hit,
    sync::lock,
    time::Timestamp,
};

/// A budget in a locked shard, about to be charged.
///
/// It holds the lock of exactly one shard. Dropping it without a decision unlocks the shard and changes nothing.
pub(crate) struct LockedEntry<'a> {
    all: &'a MemoryInner,
    shard: MutexGuard<'a, Shard>,
    id: EntryId<'a>,
    /// The entry of the key, or `None` for a key that the shard does not know. Valid while the lock is held.
    index: Option<usize>,
    /// The time of the decision, read before the lock was taken.
    now: Timestamp,
}

impl MemoryStore {
    /// Decides a hit. [`Check`](crate::Check) calls the same paths itself, to keep the four words of a fast charge.
    #[inline]
    pub(crate) fn check(&self, hit: &Hit<'_>) -> Decision {
        let now = self.now();
        let [group] = hit.policy.groups() else {
            return self.check_keys(hit, now);
        };
        match self
            .lock_entry(hit, group, now)
            .try_charge_fast(hit.params())
        {
            Ok(charge) => Decision::from_fast_charge(charge, now),
            Err(held) => held.decide(hit.params()),
        }
    }

    /// Locks the shard of the key that `group` counts by, and finds its entry.
    // `inline(always)`, here and below: as calls of their own, these steps hand a 64-byte struct on in memory, which
    // costs more than the decision (`allow(clippy::inline_always)` in `lib.rs`).
    #[inline(always)]
    pub(crate) fn lock_entry<'a>(
        &'a self,
        hit: &Hit<'a>,
        group: &'a LimitGroup,
        now: Timestamp,
    ) -> LockedEntry<'a> {
        let all = &*self.shared;
        let id = all.entry_id(group, hit.key_for(group));
        let shard = lock(all.shard(id.hash));
        LockedEntry {
            all,
            index: shard.find(id),
            shard,
            id,
            now,
        }
    }
}

impl LockedEntry<'_> {
    /// Fast path: charges a known key under a single token bucket that has tokens left after the hit.
    ///
    /// Returns the lock back as the error when the hit needs the general path; nothing was changed then. The
    /// result is four words, in place of a decision of about 100 bytes. A property test in `budget/tests.rs` compares
    /// both paths.
    ///
    /// # Errors
    ///
    /// The unchanged entry: the key is unknown or exhausted, or [`Budget`](crate::budget::Budget) has no fast path
    /// for this hit.
    #[inline(always)]
    pub(crate) fn try_charge_fast(mut self, params: HitParams) -> Result<FastCharge, Self> {
        let Some(index) = self.index else {
            return Err(self);
        };
        let group = self.id.group;
        let Some(charge) = self.shard.try_charge_fast(group, index, params, self.now) else {
            return Err(self);
        };
        self.release();
        Ok(charge)
    }

    /// General path: decides any hit on one key, and inserts the key if something is written.
    ///
    /// The decision is written in place and returned once; moving it again would copy about 100 bytes.
    #[inline(always)]
    pub(crate) fn decide(mut self, params: HitParams) -> Decision {
        let mut decision = Decision::empty(self.now);
        self.shard.check(self.id, self.index, params, &mut decision);
        self.release();
        decision
    }

    /// Counts the hit and unlocks the shard. Every 64th hit, and every hit on an unknown key, also does upkeep.
    #[inline(always)]
    fn release(mut self) {
        let turn = self.shard.count_hit();
        // A known key skips even the check whether a report is due: that would load an atomic that all threads share.
        if turn.is_some() || self.index.is_none() {
            self.all.tend(self.shard, turn, self.now);
        }
    }
}

impl MemoryInner {
    /// Upkeep after a hit: sweeps the shard if its turn has come, sweeps one other shard, and reports.
    ///
    /// It unlocks its own shard before it locks another one, and before it reports.
    #[inline(never)]
    fn tend(&self, mut own: MutexGuard<'_, Shard>, turn: Option<u64>, now: Timestamp) {
        if let Some(turn) = turn {
            own.sweep(now);
            drop(own);
            self.sweep_another(turn, now);
        } else {
            drop(own);
        }
        self.report(now);
    }
}
