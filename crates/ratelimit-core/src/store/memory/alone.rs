//! Hits on the budget of one key: the most common ones are decided at once, all others at length.

use std::sync::MutexGuard;

use super::{
    MemoryStore, Shared, lock,
    shard::{Shard, Whose},
};
use crate::{
    decision::{Charge, Decision},
    policy::{Asked, Group},
    store::hit::Hit,
    time::Timestamp,
};

/// A budget that a hit is about to be spent of, in a shard that nobody else can reach meanwhile.
pub(crate) struct Held<'a> {
    all: &'a Shared,
    shard: MutexGuard<'a, Shard>,
    whose: Whose<'a>,
    index: Option<usize>,
    now: Timestamp,
}

impl MemoryStore {
    /// Takes hold of the budget that a hit on one group of limits is spent of.
    #[inline(always)]
    pub(crate) fn hold<'a>(&'a self, hit: &Hit<'a>, group: &'a Group, now: Timestamp) -> Held<'a> {
        let all = &*self.shared;
        let whose = all.whose(group, hit.key_of(group));
        let shard = lock(all.shard(whose.hash));
        Held {
            all,
            index: shard.find(whose),
            shard,
            whose,
            now,
        }
    }
}

impl Held<'_> {
    /// Decides a hit of the most common kind, at a fraction of the price, and no other.
    #[inline(always)]
    pub(crate) fn charge_at_once(mut self, asked: Asked) -> Result<Charge, Self> {
        let Some(index) = self.index else {
            return Err(self);
        };
        let group = self.whose.group;
        let Some(charge) = self.shard.charge_at_once(group, index, asked, self.now) else {
            return Err(self);
        };
        self.let_go();
        Ok(charge)
    }

    /// Decides any hit.
    #[inline(always)]
    pub(crate) fn decide(mut self, asked: Asked) -> Decision {
        let mut decision = Decision::blank(self.now);
        self.shard.hit(self.whose, self.index, asked, &mut decision);
        self.let_go();
        decision
    }

    #[inline(always)]
    fn let_go(mut self) {
        let turn = self.shard.count_hit();
        if turn.is_some() || self.index.is_none() {
            self.all.tend(self.shard, turn, self.now);
        }
    }
}

impl Shared {
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
