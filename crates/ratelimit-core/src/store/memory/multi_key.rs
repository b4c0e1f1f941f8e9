//! Hits on the budgets of several keys at once, all or nothing.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use crate::store::memory::{
    MemoryInner, MemoryStore, lock,
    shard::{EntryId, HitKeys, Shard},
};
use crate::{
    algorithm::Fit,
    budget::apply,
    decision::{Decision, LimitDecision},
    policy::MOST_LIMITS,
    store::hit::Hit,
    time::Timestamp,
};

/// The shards of all keys of a hit, each locked once, in an order that all hits keep to.
struct LockedShards<'a>(SmallVec<[(usize, MutexGuard<'a, Shard>); MOST_LIMITS]>);

impl<'a> LockedShards<'a> {
    fn new(all: &'a MemoryInner, keys: &[EntryId<'_>]) -> LockedShards<'a> {
        let mut places: SmallVec<[usize; MOST_LIMITS]> =
            keys.iter().map(|id| all.shard_index(id.hash)).collect();
        places.sort_unstable();
        places.dedup();
        let locked = places.into_iter();
        LockedShards(
            locked
                .map(|index| (index, lock(&all.shards[index])))
                .collect(),
        )
    }

    fn shard(&mut self, index: usize) -> &mut Shard {
        let found = self.0.iter_mut().find(|(locked, _)| *locked == index);
        &mut found.expect("all shards of the hit are locked").1
    }
}

impl MemoryStore {
    /// Decides a hit on several budgets: when one denies, none is charged.
    #[inline(never)]
    pub(crate) fn check_keys(&self, hit: &Hit<'_>, now: Timestamp) -> Decision {
        let all = &*self.shared;
        let params = hit.params();
        let groups = hit.policy.groups().iter();
        let keys: SmallVec<[EntryId<'_>; MOST_LIMITS]> = groups
            .map(|group| all.entry_id(group, hit.key_for(group)))
            .collect();
        let mut locked = LockedShards::new(all, &keys);
        let fits = keys.iter().map(|id| {
            let shard = locked.shard(all.shard_index(id.hash));
            shard.fit(*id, params, now)
        });
        let spend = apply(fits.max().unwrap_or(Fit::Now), params);
        let mut steps: SmallVec<[Option<LimitDecision>; MOST_LIMITS]> = SmallVec::new();
        steps.resize(hit.policy.limits().len(), None);
        let own = HitKeys { keys: &keys, now };
        for id in &keys {
            let shard = locked.shard(all.shard_index(id.hash));
            shard.apply(*id, own, params, spend, |effective, step| {
                steps[effective.index] = Some(step);
            });
        }
        all.release(locked, now);
        let mut decision = Decision::empty(now);
        let steps = steps.into_iter().flatten();
        steps.for_each(|step| decision.push_limit(step));
        decision.select_binding_limit();
        decision
    }
}

impl MemoryInner {
    /// Unlocks the shards; now and then it sweeps them and some other first.
    fn release(&self, mut locked: LockedShards<'_>, now: Timestamp) {
        let mut swept = None;
        for (_, shard) in &mut locked.0 {
            if let Some(turn) = shard.count_hit() {
                shard.sweep(now);
                swept = Some(turn);
            }
        }
        drop(locked);
        if let Some(turn) = swept {
            self.sweep_another(turn, now);
        }
        self.report(now);
    }
}
