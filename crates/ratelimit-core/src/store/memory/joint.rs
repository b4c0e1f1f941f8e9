//! Hits and joint hits. A hit is a joint hit of one member.
//!
//! Lua twin: `lua/check.lua`.

use smallvec::SmallVec;

use crate::store::memory::{
    MemoryStore,
    entry::EntryId,
    locked::{Change, LockedBudget, decide},
    shard::{HitKeys, Shard},
};
use crate::{
    budget::Budget,
    decision::Charged,
    store::{
        hit::Hit,
        joint::{JointHit, passes},
    },
    time::Timestamp,
};

/// Decides a hit on one key. Out of line, because most hits take the fast path.
#[inline(never)]
fn decide_single(
    shard: &mut Shard,
    id: EntryId<'_>,
    index: Option<usize>,
    hit: &Hit<'_>,
    now: Timestamp,
) -> Charged {
    let own = HitKeys { keys: &[id], now };
    shard.write(id, index, own, |own| decide(hit, &(0..1), own, true, now))
}

impl MemoryStore {
    /// Decides a hit, all limits or none.
    #[inline]
    pub(crate) fn check(&self, hit: &Hit<'_>) -> Charged {
        let (all, now) = (&*self.shared, self.now());
        let [group] = hit.policy.groups() else {
            let keys = all.keys_of(hit);
            let numbers = 0..keys.len();
            return all.with_budgets(&keys, now, |own| decide(hit, &numbers, own, true, now));
        };
        let id = all.entry_id(group, hit.key_for(group));
        let mut shard = all.lock_shard(id);
        let index = shard.find(id);
        let charged = match shard.try_charge_fast(id, index, hit.params(), now) {
            Some(charged) => charged,
            None => decide_single(&mut shard, id, index, hit, now),
        };
        all.release(shard, index.is_some(), now);
        charged
    }

    /// Decides a joint hit. The answers are in the order of `members`.
    ///
    /// 1. The members are decided one after another, as if they were single hits.
    /// 2. If the joint hit does not pass, it begins again: members that fit are dry runs now, and those that do not only
    ///    have their denial recorded. A member that fits alone keeps its denial behind the others.
    pub(super) fn check_joint(&self, members: &[JointHit<'_>]) -> Vec<Charged> {
        let (all, now) = (&*self.shared, self.now());
        let mut keys: Vec<EntryId<'_>> = Vec::new();
        let mut numbers: Vec<SmallVec<[usize; 2]>> = Vec::new();
        for JointHit { hit, .. } in members {
            let own = all.keys_of(hit).into_iter().map(|id| {
                let known = keys.iter().position(|key| key.is_same_as(&id));
                known.unwrap_or_else(|| {
                    keys.push(id);
                    keys.len() - 1
                })
            });
            numbers.push(own.collect());
        }
        let order = JointHit::order(members);
        all.with_budgets(&keys, now, |budgets| {
            let before: Vec<Budget> = budgets.iter().map(|own| own.budget.clone()).collect();
            let step = |budgets: &mut [LockedBudget<'_, '_>], index: usize, is_charged| {
                let (hit, own) = (&members[index].hit, numbers[index].iter().copied());
                decide(hit, &own, budgets, is_charged, now)
            };
            let mut answers: Vec<Option<Charged>> = vec![None; members.len()];
            for &index in &order {
                answers[index] = Some(step(budgets, index, true));
            }
            let mut answers: Vec<Charged> = answers.into_iter().flatten().collect();
            let roles = members.iter().map(|member| member.role);
            if !passes(roles.zip(answers.iter().map(|charged| charged.is_allowed()))) {
                for (own, before) in budgets.iter_mut().zip(before) {
                    *own.budget = before;
                    own.change = Change::default();
                }
                for &index in &order {
                    let alone = step(budgets, index, false);
                    if answers[index].is_allowed() || !alone.is_allowed() {
                        answers[index] = alone;
                    }
                }
            }
            answers
        })
    }
}
