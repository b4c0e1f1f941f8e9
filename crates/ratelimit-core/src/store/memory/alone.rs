//! Hits on the budget of one key: the most common ones are decided at once, all others at length.

use std::sync::{MutexGuard, TryLockError};

use super::{
    HITS_BETWEEN_SWEEPS, MemoryStore, Shared, lock,
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
    place: Option<u32>,
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
            place: shard.find(whose),
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
        let Some(place) = self.place else {
            return Err(self);
        };
        let group = self.whose.group;
        let Some(charge) = self.shard.charge_at_once(group, place, asked, self.now) else {
            return Err(self);
        };
        self.let_go();
        Ok(charge)
    }

    /// Decides any hit.
    #[inline(always)]
    pub(crate) fn decide(mut self, asked: Asked) -> Decision {
        let mut decision = Decision::blank(self.now);
        let (shard, whose) = (&mut *self.shard, self.whose);
        match self.place {
            Some(place) => shard.hit_known(whose, place, asked, &mut decision),
            None => shard.hit_newcomer(whose, asked, &mut decision),
        }
        self.let_go();
        decision
    }

    #[inline(always)]
    fn let_go(mut self) {
        let hits = self.shard.count_hit();
        if hits.is_multiple_of(HITS_BETWEEN_SWEEPS) {
            let turn = hits / HITS_BETWEEN_SWEEPS;
            self.all.sweep(self.shard, turn, self.now);
        }
    }
}

impl Shared {
    /// Cleans a shard and then some other, in turn, so that quiet ones give their memory back as well.
    #[inline(never)]
    fn sweep(&self, mut own: MutexGuard<'_, Shard>, turn: u64, now: Timestamp) {
        own.sweep(&self.hasher, now);
        drop(own);
        let place = turn % self.shards.len() as u64;
        let other = &self.shards[usize::try_from(place).unwrap_or(0)];
        match other.try_lock() {
            Ok(mut other) => other.sweep(&self.hasher, now),
            Err(TryLockError::Poisoned(held)) => held.into_inner().sweep(&self.hasher, now),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}
