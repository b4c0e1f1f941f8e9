//! Hits on the budget of one key: the most common ones are decided at once, all others at length.

use std::sync::MutexGuard;

use crate::store::memory::{
    MemoryInner, MemoryStore, lock,
    shard::{EntryId, Shard},
};
use crate::{
    decision::{Decision, FastCharge},
    policy::{HitParams, LimitGroup},
    store::hit::Hit,
    time::Timestamp,
};

/// A budget that a hit is about to be spent of, in a shard that nobody else can reach meanwhile.
pub(crate) struct LockedEntry<'a> {
    all: &'a MemoryInner,
    shard: MutexGuard<'a, Shard>,
    id: EntryId<'a>,
    index: Option<usize>,
    now: Timestamp,
}

impl MemoryStore {
    /// Takes hold of the budget that a hit on one group of limits is spent of.
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
    /// Decides a hit of the most common kind, at a fraction of the price, and no other.
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

    /// Decides any hit.
    #[inline(always)]
    pub(crate) fn decide(mut self, params: HitParams) -> Decision {
        let mut decision = Decision::empty(self.now);
        self.shard.check(self.id, self.index, params, &mut decision);
        self.release();
        decision
    }

    #[inline(always)]
    fn release(mut self) {
        let turn = self.shard.count_hit();
        if turn.is_some() || self.index.is_none() {
            self.all.tend(self.shard, turn, self.now);
        }
    }
}

impl MemoryInner {
    /// Sweeps a shard whose turn it is and some other, and reports.
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
