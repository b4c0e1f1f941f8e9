//! Hits on the budgets of several keys at once, all or nothing.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::{
    MemoryStore, Shared, lock,
    shard::{Own, Shard, Whose},
};
use crate::{
    algorithm::Fit,
    decision::{Decision, LimitDecision},
    policy::{MOST_LIMITS, spend},
    store::hit::Hit,
    time::Timestamp,
};

/// The shards of all keys of a hit, each locked once, in an order that all hits keep to.
struct Locked<'a>(SmallVec<[(usize, MutexGuard<'a, Shard>); MOST_LIMITS]>);

impl<'a> Locked<'a> {
    fn new(all: &'a Shared, keys: &[Whose<'_>]) -> Locked<'a> {
        let mut places: SmallVec<[usize; MOST_LIMITS]> =
            keys.iter().map(|whose| all.place_of(whose.hash)).collect();
        places.sort_unstable();
        places.dedup();
        let locked = places.into_iter();
        Locked(
            locked
                .map(|place| (place, lock(&all.shards[place])))
                .collect(),
        )
    }

    fn shard(&mut self, place: usize) -> &mut Shard {
        let found = self.0.iter_mut().find(|(locked, _)| *locked == place);
        &mut found.expect("all shards of the hit are locked").1
    }
}

impl MemoryStore {
    /// Decides a hit on several budgets: when one denies, none is charged.
    #[inline(never)]
    pub(crate) fn decide_together(&self, hit: &Hit<'_>, now: Timestamp) -> Decision {
        let all = &*self.shared;
        let asked = hit.asked();
        let groups = hit.policy.groups().iter();
        let keys: SmallVec<[Whose<'_>; MOST_LIMITS]> = groups
            .map(|group| all.whose(group, hit.key_of(group)))
            .collect();
        let mut locked = Locked::new(all, &keys);
        let fits = keys.iter().map(|whose| {
            let shard = locked.shard(all.place_of(whose.hash));
            shard.fit(*whose, asked, now)
        });
        let spend = spend(fits.max().unwrap_or(Fit::Now), asked);
        let mut steps: SmallVec<[Option<LimitDecision>; MOST_LIMITS]> = SmallVec::new();
        steps.resize(hit.policy.limits().len(), None);
        let own = Own { keys: &keys, now };
        for whose in &keys {
            let shard = locked.shard(all.place_of(whose.hash));
            shard.spend(*whose, own, asked, spend, |bound, step| {
                steps[bound.place] = Some(step);
            });
        }
        all.let_go(locked, now);
        let mut decision = Decision::blank(now);
        let steps = steps.into_iter().flatten();
        steps.for_each(|step| decision.gather(step));
        decision.conclude();
        decision
    }
}

impl Shared {
    /// Unlocks the shards; now and then it sweeps them and some other first.
    fn let_go(&self, mut locked: Locked<'_>, now: Timestamp) {
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
