//! The one way into the budgets of the memory store: all shards of a call are locked while it runs.
//!
//! Lock order of the memory store:
//!
//! 1. A call locks its shards in ascending order of their index, and takes no other lock while it holds them. Its caller
//!    may hold one: the local fallback locks its table before it calls its store.
//! 2. A sweep of another shard runs after the call has unlocked its own, and uses `try_lock`.
//! 3. The stats reporter takes its own lock and then one shard after another. It runs only while the thread holds no
//!    shard.

use std::sync::MutexGuard;

use smallvec::SmallVec;

use crate::store::memory::{
    MemoryInner,
    entry::EntryId,
    shard::{HitKeys, Shard, TakenBudget},
};
use crate::{
    algorithm::{Effect, Fit},
    budget::{Budget, ChargedLimits, effect_of},
    decision::Charged,
    store::hit::Hit,
    sync::lock,
    time::Timestamp,
};

/// Keys of a call whose lists need no allocation. Most policies count by one key or two.
pub(super) const INLINE_KEYS: usize = 2;

/// A budget whose shard is locked, and what a call has done with it.
pub(super) struct LockedBudget<'a, 'b> {
    pub(super) id: EntryId<'a>,
    /// An unknown key has an empty budget.
    pub(super) budget: &'b mut Budget,
    /// Whether the store has an entry of the key.
    pub(super) is_known: bool,
    pub(super) change: Change,
}

/// What a call has done with a budget.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// Whether the budget must be stored. An unknown key takes no memory otherwise.
    pub(super) is_stored: bool,
    /// Whether a limit may have nothing left. The shard computes it then.
    pub(super) may_be_exhausted: bool,
}

impl<'a, 'b> LockedBudget<'a, 'b> {
    #[inline]
    pub(super) fn new(id: EntryId<'a>, budget: &'b mut Budget, is_known: bool) -> Self {
        LockedBudget {
            id,
            budget,
            is_known,
            change: Change::default(),
        }
    }

    /// Records a change after which it is not known what is left.
    pub(super) fn set_changed(&mut self, is_stored: bool) {
        self.change = Change {
            is_stored,
            may_be_exhausted: true,
        };
    }
}

/// The locked shards of all keys of a call, in ascending order of their index. Each is locked once, also where two keys
/// share it.
///
/// Dropping it unlocks all shards. A panic under the locks poisons them, which `lock` ignores.
struct LockedShards<'a>(SmallVec<[(usize, MutexGuard<'a, Shard>); INLINE_KEYS]>);

impl<'a> LockedShards<'a> {
    fn new(all: &'a MemoryInner, keys: &[EntryId<'_>]) -> LockedShards<'a> {
        let mut indices: SmallVec<[usize; INLINE_KEYS]> =
            keys.iter().map(|id| all.shard_index(id.hash)).collect();
        indices.sort_unstable();
        indices.dedup();
        let locked = indices.into_iter();
        LockedShards(
            locked
                .map(|index| (index, lock(&all.shards[index])))
                .collect(),
        )
    }

    /// The locked shard of a key. A linear search: a hit has at most eight keys, and so has each member of a joint hit.
    fn of(&mut self, all: &MemoryInner, id: EntryId<'_>) -> &mut Shard {
        let index = all.shard_index(id.hash);
        let found = self.0.iter_mut().find(|(locked, _)| *locked == index);
        &mut found.expect("all shards of the call are locked").1
    }
}

impl MemoryInner {
    /// Runs `step` on the budgets of `keys`, which are distinct, under the locks of all their shards, and stores those that
    /// it changed. No other call sees a part of it.
    #[inline]
    pub(super) fn with_budgets<'a, R>(
        &'a self,
        keys: &[EntryId<'a>],
        now: Timestamp,
        step: impl FnOnce(&mut [LockedBudget<'a, '_>]) -> R,
    ) -> R {
        // One key needs no lists.
        let [id] = keys else {
            return self.with_several(keys, now, step);
        };
        let mut shard = self.lock_shard(*id);
        let index = shard.find(*id);
        let result = shard.write(*id, index, HitKeys { keys, now }, step);
        self.release(shard, index.is_some(), now);
        result
    }

    /// Locks the shard of a key.
    #[inline]
    pub(super) fn lock_shard(&self, id: EntryId<'_>) -> MutexGuard<'_, Shard> {
        lock(&self.shards[self.shard_index(id.hash)])
    }

    /// Counts a call and unlocks its shard. Every 64th call, and every call on an unknown key, also does maintenance.
    #[inline]
    pub(super) fn release(&self, mut shard: MutexGuard<'_, Shard>, is_known: bool, now: Timestamp) {
        let turn = shard.count_hit();
        // A known key skips even the check whether a report is due: that would load an atomic that all threads share.
        if turn.is_some() || !is_known {
            self.maintain(shard, turn, now);
        }
    }

    /// The same for several keys. Their budgets are taken out of the shards while `step` runs; if it panics, they are lost.
    #[inline(never)]
    fn with_several<'a, R>(
        &'a self,
        keys: &[EntryId<'a>],
        now: Timestamp,
        step: impl FnOnce(&mut [LockedBudget<'a, '_>]) -> R,
    ) -> R {
        let mut locked = LockedShards::new(self, keys);
        let mut taken: SmallVec<[TakenBudget; INLINE_KEYS]> = SmallVec::new();
        for id in keys {
            taken.push(locked.of(self, *id).take(*id));
        }
        let mut budgets: SmallVec<[LockedBudget<'a, '_>; INLINE_KEYS]> = SmallVec::new();
        for (id, taken) in keys.iter().zip(&mut taken) {
            budgets.push(LockedBudget::new(*id, &mut taken.budget, taken.is_known));
        }
        let result = step(&mut budgets);
        let changes: SmallVec<[Change; INLINE_KEYS]> =
            budgets.iter().map(|own| own.change).collect();
        drop(budgets);
        // Known keys first: an insert drops expired entries, and one whose budget was taken out counts as expired.
        for is_known in [true, false] {
            for ((id, taken), change) in keys.iter().zip(&mut taken).zip(&changes) {
                if taken.is_known == is_known {
                    let shard = locked.of(self, *id);
                    shard.put(*id, HitKeys { keys, now }, taken, *change);
                }
            }
        }
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
        result
    }

    /// Sweeps the shard if its turn has come and one other shard, and reports.
    ///
    /// It unlocks its own shard before it locks another one, and before it reports.
    #[inline(never)]
    fn maintain(&self, mut own: MutexGuard<'_, Shard>, turn: Option<u64>, now: Timestamp) {
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

/// Decides a hit on its budgets, `numbers` of `budgets`, and charges it to all of them if it fits and `is_charged`.
///
/// | the hit | effect |
/// |---|---|
/// | fits, `is_charged` | charged to all its budgets |
/// | fits, not `is_charged` | none, as a dry run |
/// | does not fit | its denial is recorded by limits that count denials |
/// | can never fit, or is read only | none |
#[inline(always)]
pub(super) fn decide(
    hit: &Hit<'_>,
    numbers: &(impl Iterator<Item = usize> + Clone),
    budgets: &mut [LockedBudget<'_, '_>],
    is_charged: bool,
    now: Timestamp,
) -> Charged {
    let (params, groups) = (hit.params(), hit.policy.groups());
    let own = || groups.iter().zip(numbers.clone());
    let effect_of = |fit| match effect_of(fit, params) {
        Effect::Charge if !is_charged => Effect::None,
        effect => effect,
    };
    // Most hits: a known key under one limit.
    if let ([group], Some(number)) = (groups, numbers.clone().next()) {
        let own = &mut budgets[number];
        if let Some((limit, is_stored)) = own.budget.apply_single(group, now, params, effect_of) {
            own.change.is_stored |= is_stored;
            own.change.may_be_exhausted |= limit.decision.remaining == 0;
            return Charged::of_limit(limit.decision, limit.mark, now);
        }
    }
    // One limit is compared and charged in one step. Of several, all are compared before any is charged.
    let effect = (hit.policy.limits().len() > 1).then(|| {
        let fits = own().map(|(group, number)| budgets[number].budget.fit(group, now, params));
        effect_of(fits.max().unwrap_or(Fit::Now))
    });
    let mut limits = ChargedLimits::new();
    for (group, number) in own() {
        let (own, first) = (&mut budgets[number], limits.len());
        let effect = |fit| effect.unwrap_or_else(|| effect_of(fit));
        let is_stored = own.budget.apply(group, now, params, effect, &mut limits);
        own.change.is_stored |= is_stored;
        let mut added = limits[first..].iter();
        own.change.may_be_exhausted |= added.any(|limit| limit.decision.remaining == 0);
    }
    Charged::from_limits(now, &mut limits)
}
