//! Prefetching from the memory store, under the locks of all shards of the hit.

use smallvec::SmallVec;

use crate::store::memory::{MemoryStore, entry::EntryId, multi_key::LockedShards, shard::HitKeys};
use crate::{
    algorithm::{Effect, Fit},
    budget::apply,
    decision::{Decision, LimitDecision},
    limit::Limit,
    policy::{HitMode, HitParams, MAX_LIMITS, Overdraft},
    store::{
        contract::StoreError,
        hit::Hit,
        prefetch::{
            CannotPrefetch, LimitGrant, LimitShare, LimitStates, PrefetchGrant, PrefetchRequest,
        },
    },
};

impl MemoryStore {
    /// Decides a hit and charges further units, all in one step.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] for a policy with a limit that cannot be prefetched.
    pub(super) fn grant(
        &self,
        hit: &Hit<'_>,
        request: PrefetchRequest,
    ) -> Result<PrefetchGrant, StoreError> {
        if hit
            .policy
            .limits()
            .iter()
            .any(|limit| Limit::not_prefetchable(limit).is_some())
        {
            return Err(StoreError::refused(CannotPrefetch));
        }
        let (all, now, params) = (&*self.shared, self.now(), hit.params());
        let groups = hit.policy.groups().iter();
        let keys: SmallVec<[EntryId<'_>; MAX_LIMITS]> = groups
            .map(|group| all.entry_id(group, hit.key_for(group)))
            .collect();
        let mut locked = LockedShards::new(all, &keys);
        let fits = keys.iter().map(|id| {
            let shard = locked.shard(all.shard_index(id.hash));
            shard.fit(*id, params, now)
        });
        let effect = apply(fits.max().unwrap_or(Fit::Now), params);
        let charged = if effect == Effect::Charge {
            params.cost
        } else {
            0
        };

        // The states before the hit, and what each limit gives of the rest behind it.
        let mut states: LimitStates = SmallVec::from_elem([0; 4], hit.policy.limits().len());
        let mut grants: SmallVec<[LimitGrant; MAX_LIMITS]> = SmallVec::new();
        let mut is_repaired = false;
        for id in &keys {
            let shard = locked.shard(all.shard_index(id.hash));
            shard.wire_states(*id, now, |effective, (state, was_ahead)| {
                is_repaired |= was_ahead;
                let limit_share = LimitShare::new(effective, &request);
                states[effective.index] = state;
                grants.push(limit_share.grant(&effective.limit, state, charged, now, &request));
            });
        }
        let may_take = !is_repaired
            && hit.mode == HitMode::Charge
            && (effect == Effect::Charge || params.cost == 0);
        let units = if may_take {
            LimitGrant::combine(grants.into_iter())
        } else {
            0
        };

        let mut steps: SmallVec<[Option<LimitDecision>; MAX_LIMITS]> = SmallVec::new();
        steps.resize(hit.policy.limits().len(), None);
        let own = HitKeys { keys: &keys, now };
        let further = HitParams {
            cost: units,
            overdraft: Overdraft::Refused,
            ..params
        };
        for id in &keys {
            let shard = locked.shard(all.shard_index(id.hash));
            shard.apply(*id, own, params, effect, |effective, step| {
                steps[effective.index] = Some(step);
            });
            if units > 0 {
                shard.apply(*id, own, further, Effect::Charge, |_, _| {});
            }
        }
        all.release(locked, now);
        let steps: SmallVec<[LimitDecision; MAX_LIMITS]> = steps.into_iter().flatten().collect();
        let decision = Decision::from_limits(now, steps.into_iter());
        Ok(PrefetchGrant::new(decision, units, states))
    }
}
