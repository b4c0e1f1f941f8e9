//! Taking owed hits out, as calls that charge them to the store.

use crate::limiter::fallback::owed::{LockedOwed, OwedCall, OwedId, calls};
use crate::{budget::Adjustment, key_set::KeySet, policy::Policy, time::Timestamp};

/// The calls that charge the owed hits on one budget.
pub(in crate::limiter::fallback) struct CatchUpCalls {
    pub(in crate::limiter::fallback) id: OwedId,
    pub(in crate::limiter::fallback) policy: Policy,
    pub(in crate::limiter::fallback) keys: KeySet,
    pub(in crate::limiter::fallback) calls: Vec<OwedCall>,
}

impl LockedOwed<'_> {
    /// A budget that owes something and is not being charged, to learn whether the store answers.
    pub(in crate::limiter::fallback) fn first(&self) -> Option<(OwedId, Policy, KeySet)> {
        let mut waiting = self
            .entries
            .iter()
            .filter(|(_, owed)| owed.sending.is_none());
        let (id, owed) = waiting.next()?;
        Some((id.clone(), owed.policy.clone(), owed.keys.clone()))
    }

    /// Drops the hits on a budget. Returns their units.
    pub(in crate::limiter::fallback) fn drop_budget(&mut self, id: &OwedId, now: Timestamp) -> u64 {
        let Some(owed) = self.entries.remove(id) else {
            return 0;
        };
        let groups = owed.policy.groups().iter();
        let units = groups
            .filter(|group| group.name == id.name)
            .flat_map(|group| {
                let budgets = owed.waiting.iter();
                budgets.flat_map(|budget| budget.units_spent(group, now).collect::<Vec<_>>())
            });
        units.max().unwrap_or(0)
    }

    /// Takes the hits on up to `count` budgets, which are in flight from now on.
    pub(in crate::limiter::fallback) fn take(
        &mut self,
        count: usize,
        now: Timestamp,
    ) -> Vec<CatchUpCalls> {
        let entries = self.entries.iter_mut();
        let waiting = entries.filter(|(_, owed)| owed.sending.is_none());
        let taken = waiting.take(count).map(|(id, owed)| {
            let sending = owed.waiting.take().unwrap_or_default();
            let mut groups = owed.policy.groups().iter();
            let group = groups.find(|group| group.name == id.name);
            let calls = group.map(|group| calls(group, &sending, owed.last, now));
            owed.sending = Some(sending);
            CatchUpCalls {
                id: id.clone(),
                policy: owed.policy.clone(),
                keys: owed.keys.clone(),
                calls: calls.unwrap_or_default(),
            }
        });
        taken.collect()
    }

    /// Ends the calls for a budget. The calls `unsent` wait again.
    pub(in crate::limiter::fallback) fn end(&mut self, id: &OwedId, unsent: &[OwedCall]) {
        let Some(owed) = self.entries.get_mut(id) else {
            return;
        };
        owed.sending = None;
        let policy = owed.policy.clone();
        let mut groups = policy.groups().iter();
        if let Some(group) = groups.find(|group| group.name == id.name) {
            for &(charged_at, units) in unsent {
                owed.charge(group, Adjustment::CatchUp { units }, charged_at);
            }
        }
        if owed.waiting.is_none() {
            self.entries.remove(id);
        }
    }
}
