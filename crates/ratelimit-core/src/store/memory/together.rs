//! Hits on the budgets of several keys at once, all or nothing.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use super::{
    MemoryStore, Shared, lock,
    shard::{Seat, Shard, Whose},
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
        let mut worst = Fit::Now;
        let mut seats: SmallVec<[Seat; MOST_LIMITS]> = SmallVec::new();
        for whose in &keys {
            let shard = locked.shard(all.place_of(whose.hash));
            let (fit, seat) = shard.fit(*whose, asked, now);
            worst = worst.max(fit);
            seats.push(seat);
        }
        let spend = spend(worst, asked);
        let mut steps: SmallVec<[Option<LimitDecision>; MOST_LIMITS]> = SmallVec::new();
        steps.resize(hit.policy.limits().len(), None);
        for (whose, seat) in keys.iter().zip(seats) {
            let shard = locked.shard(all.place_of(whose.hash));
            shard.spend(*whose, seat, asked, spend, now, |bound, step| {
                steps[bound.place] = Some(step);
            });
        }
        for (_, shard) in &mut locked.0 {
            if shard.count_hit().is_multiple_of(super::HITS_BETWEEN_SWEEPS) {
                shard.sweep(&all.hasher, now);
            }
        }
        let mut decision = Decision::blank(now);
        let steps = steps.into_iter().flatten();
        steps.for_each(|step| decision.gather(step));
        decision.conclude();
        decision
    }
}
