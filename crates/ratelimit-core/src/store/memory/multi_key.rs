//! Hits on the budgets of several keys, decided all or nothing.
//!
//! All shards of the hit are locked for the whole decision, so no other hit sees a part of it.
//!
//! Lock order of the memory store:
//!
//! 1. A hit locks its shards in ascending order of their index. It holds no other lock.
//! 2. A sweep of another shard runs after the hit has unlocked its own, and uses `try_lock`.
//! 3. The stats reporter takes its own lock and then one shard after another. It runs only while the thread holds no
//!    shard.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use crate::store::memory::{
    MemoryInner, MemoryStore,
    entry::EntryId,
    shard::{HitKeys, Shard},
};
use crate::{
    algorithm::Fit,
    budget::apply,
    decision::{Decision, LimitDecision},
    policy::MAX_LIMITS,
    store::hit::Hit,
    sync::lock,
    time::Timestamp,
};

/// The locked shards of all keys of a hit.
///
/// Each shard is locked once, also when two keys share it: a second lock by the same thread would deadlock. All
/// hits lock in ascending order of the index, so two hits never wait for each other.
///
/// Dropping it unlocks all shards. A panic under the locks poisons them, which `lock` ignores.
pub(super) struct LockedShards<'a>(SmallVec<[(usize, MutexGuard<'a, Shard>); MAX_LIMITS]>);

impl<'a> LockedShards<'a> {
    /// Locks the shards of `keys`, without duplicates, in ascending order.
    pub(super) fn new(all: &'a MemoryInner, keys: &[EntryId<'_>]) -> LockedShards<'a> {
        let mut indices: SmallVec<[usize; MAX_LIMITS]> =
            keys.iter().map(|id| all.shard_index(id.hash)).collect();
        // The lock order of the store: ascending, and each shard once.
        indices.sort_unstable();
        indices.dedup();
        let locked = indices.into_iter();
        LockedShards(
            locked
                .map(|index| (index, lock(&all.shards[index])))
                .collect(),
        )
    }

    /// The locked shard with this index. A linear search: a hit has at most eight keys.
    pub(super) fn shard(&mut self, index: usize) -> &mut Shard {
        let found = self.0.iter_mut().find(|(locked, _)| *locked == index);
        &mut found.expect("all shards of the hit are locked").1
    }
}

impl MemoryStore {
    /// Decides a hit on several budgets. When one denies, none is charged.
    ///
    /// 1. Lock all shards.
    /// 2. Ask every budget whether the hit fits; the worst answer decides for all.
    /// 3. Apply the effect to every budget: charge, count the denial, or only report.
    /// 4. Unlock, then make one decision of the numbers of all limits.
    ///
    /// The general path of a single key decides and charges in one step; here the answers of all keys must be known first.
    /// Out of line, because the checks of policies with one key would otherwise carry its stack frame.
    #[inline(never)]
    pub(crate) fn check_keys(&self, hit: &Hit<'_>, now: Timestamp) -> Decision {
        let all = &*self.shared;
        let params = hit.params();
        let groups = hit.policy.groups().iter();
        let keys: SmallVec<[EntryId<'_>; MAX_LIMITS]> = groups
            .map(|group| all.entry_id(group, hit.key_for(group)))
            .collect();
        let mut locked = LockedShards::new(all, &keys);
        // All locks are held from here to `release`, so no budget changes between its answer and its charge.
        let fits = keys.iter().map(|id| {
            let shard = locked.shard(all.shard_index(id.hash));
            shard.fit(*id, params, now)
        });
        let spend = apply(fits.max().unwrap_or(Fit::Now), params);
        // Groups are visited by key; the decision lists limits in the order of the policy.
        let mut steps: SmallVec<[Option<LimitDecision>; MAX_LIMITS]> = SmallVec::new();
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
    /// Counts the hit in each shard, sweeps the shards whose turn has come, and unlocks all of them.
    ///
    /// Then it sweeps one other shard and reports; neither happens under a lock of this hit.
    pub(super) fn release(&self, mut locked: LockedShards<'_>, now: Timestamp) {
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
