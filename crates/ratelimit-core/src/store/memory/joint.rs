//! Joint hits: several policies, decided in one step under the locks of all their shards.
//!
//! The lock order is that of `multi_key.rs`: ascending, each shard once, all of them before the first budget is read. Two joint
//! hits that name their members in different orders therefore never wait for each other.
//!
//! Lua twin: `lua/check.lua`.

use smallvec::SmallVec;

use crate::store::memory::{MemoryStore, entry::EntryId, multi_key::LockedShards, shard::HitKeys};
use crate::{
    algorithm::{Effect, Fit},
    budget::{Budget, apply},
    decision::{Decision, LimitDecision},
    policy::{EffectiveLimit, MAX_LIMITS},
    store::{
        hit::Hit,
        joint::{JointHit, passes},
    },
    time::Timestamp,
};

/// A budget that members of a joint hit spend from, as it would be after those decided so far.
#[derive(Clone)]
struct DraftBudget {
    budget: Budget,
    has_changed: bool,
}

impl MemoryStore {
    /// Decides a joint hit. The decisions are in the order of `members`.
    ///
    /// 1. Lock the shards of all keys, in ascending order.
    /// 2. Decide the members one after another on drafts, as if they were single hits.
    /// 3. If the joint hit does not pass, begin again: members that fit are dry runs now, and those that do not only
    ///    have their denial recorded. A member that fits alone keeps its denial behind the others.
    /// 4. Store the drafts that have changed, and unlock.
    pub(super) fn check_joint(&self, members: &[JointHit<'_>]) -> Vec<Decision> {
        let (all, now) = (&*self.shared, self.now());
        let mut keys: Vec<EntryId<'_>> = Vec::new();
        let mut numbers: Vec<SmallVec<[usize; 2]>> = Vec::new();
        for JointHit { hit, .. } in members {
            let groups = hit.policy.groups().iter();
            let own = groups.map(|group| {
                let id = all.entry_id(group, hit.key_for(group));
                let known = keys.iter().position(|key| key.is_same_as(&id));
                known.unwrap_or_else(|| {
                    keys.push(id);
                    keys.len() - 1
                })
            });
            numbers.push(own.collect());
        }
        let mut locked = LockedShards::new(all, &keys);
        let stored = keys.iter().map(|id| DraftBudget {
            budget: locked.shard(all.shard_index(id.hash)).budget(*id),
            has_changed: false,
        });
        let stored: Vec<DraftBudget> = stored.collect();

        let order = JointHit::order(members);
        let mut drafts = stored.clone();
        let mut decisions = vec![Decision::empty(now); members.len()];
        for &index in &order {
            decisions[index] = step(members[index].hit, &numbers[index], &mut drafts, true, now);
        }
        let roles = members.iter().map(|member| member.role);
        if !passes(roles.zip(decisions.iter().map(Decision::is_allowed))) {
            drafts = stored;
            for &index in &order {
                let alone = step(members[index].hit, &numbers[index], &mut drafts, false, now);
                if decisions[index].is_allowed() || !alone.is_allowed() {
                    decisions[index] = alone;
                }
            }
        }
        let own = HitKeys { keys: &keys, now };
        for (id, draft) in keys.iter().zip(drafts) {
            if draft.has_changed {
                let shard = locked.shard(all.shard_index(id.hash));
                shard.replace(*id, own, draft.budget);
            }
        }
        all.release(locked, now);
        decisions
    }
}

/// Decides one member on the drafts of its budgets, and charges it if it fits and `is_charged`.
///
/// | the member | effect |
/// |---|---|
/// | fits, `is_charged` | charged to all its budgets |
/// | fits, not `is_charged` | none, as a dry run |
/// | does not fit | its denial is recorded by limits that count denials |
/// | can never fit, or is read only | none |
fn step(
    hit: Hit<'_>,
    numbers: &[usize],
    drafts: &mut [DraftBudget],
    is_charged: bool,
    now: Timestamp,
) -> Decision {
    let (params, groups) = (hit.params(), hit.policy.groups());
    let own = || groups.iter().zip(numbers);
    let fits = own().map(|(group, &number)| drafts[number].budget.fit(group, now, params));
    let effect = match apply(fits.max().unwrap_or(Fit::Now), params) {
        Effect::Charge if !is_charged => Effect::None,
        effect => effect,
    };
    let mut steps: SmallVec<[Option<LimitDecision>; MAX_LIMITS]> = SmallVec::new();
    steps.resize(hit.policy.limits().len(), None);
    for (group, &number) in own() {
        let draft = &mut drafts[number];
        let gather = |effective: &EffectiveLimit, step| {
            steps[effective.index] = Some(step);
        };
        draft.has_changed |= draft.budget.apply(group, now, params, effect, gather);
    }
    let steps: SmallVec<[LimitDecision; MAX_LIMITS]> = steps.into_iter().flatten().collect();
    Decision::from_limits(now, steps.into_iter())
}
