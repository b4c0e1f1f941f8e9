//! Prefetching from the memory store, under the locks of all shards of the hit.

use smallvec::SmallVec;

use crate::store::memory::{MemoryStore, locked::decide};
use crate::{
    algorithm::Effect,
    decision::{Charged, ChargedLimits},
    limit::Limit,
    policy::{HitMode, Overdraft},
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
        let keys = all.keys_of(hit);
        let is_charged = |charged: &Charged| charged.is_allowed() && params.cost > 0;
        Ok(all.with_budgets(&keys, now, |budgets| {
            // The states before the hit.
            let mut states: LimitStates = SmallVec::from_elem([0; 4], hit.policy.limits().len());
            let mut is_repaired = false;
            for own in &*budgets {
                let group = own.id.group;
                own.budget
                    .wire_states(group, now, |effective, (state, was_ahead)| {
                        is_repaired |= was_ahead;
                        states[effective.index] = state;
                    });
            }
            let charged = decide(hit, 0..keys.len(), budgets, true, now);
            let may_take = !is_repaired && hit.mode == HitMode::Charge && charged.is_allowed();
            let cost = if is_charged(&charged) { params.cost } else { 0 };
            // What each limit gives of the rest behind the hit.
            let limits = keys.iter().flat_map(|id| &id.group.limits);
            let grants = limits.map(|effective| {
                let share = LimitShare::new(effective, &request);
                share.grant(
                    &effective.limit,
                    states[effective.index],
                    cost,
                    now,
                    &request,
                )
            });
            let units = if may_take {
                LimitGrant::combine(grants)
            } else {
                0
            };
            if units > 0 {
                let further = hit.cost(units).overdraft(Overdraft::Refused);
                for own in budgets {
                    let group = own.id.group;
                    let mut limits = ChargedLimits::new();
                    let params = further.params();
                    own.budget
                        .apply(group, now, params, |_| Effect::Charge, &mut limits);
                    own.set_changed(true);
                }
            }
            PrefetchGrant::new(charged, units, states)
        }))
    }
}
