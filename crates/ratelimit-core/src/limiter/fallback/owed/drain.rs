//! Taking owed hits out, as calls that charge them to the store.

use crate::limiter::fallback::owed::{LockedOwed, OwedCall, OwedEntries, OwedId, calls};
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
            .budgets
            .iter()
            .filter(|(_, owed)| owed.sending.is_none());
        let (id, owed) = waiting.next()?;
        Some((id.clone(), owed.policy.clone(), owed.keys.clone()))
    }

    /// Drops the hits on a budget. Returns their units.
    pub(in crate::limiter::fallback) fn drop_budget(&mut self, id: &OwedId, now: Timestamp) -> u64 {
        let Some(owed) = self.remove_budget(id) else {
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
        let entries = self.entries.budgets.iter_mut();
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

    /// Ends the `calls` for a budget, of which the first `sent` were sent. The others wait again.
    pub(in crate::limiter::fallback) fn end(
        &mut self,
        id: &OwedId,
        calls: &[OwedCall],
        sent: usize,
    ) {
        let OwedEntries {
            budgets,
            log_entries,
            ..
        } = &mut *self.entries;
        let Some(owed) = budgets.get_mut(id) else {
            return;
        };
        let sending = owed.sending.take();
        if owed.waiting.is_none() && sent == 0 && !calls.is_empty() {
            // Units are whole: making a budget of them again would round a fraction up once more.
            owed.waiting = sending;
            return;
        }
        let policy = owed.policy.clone();
        let mut groups = policy.groups().iter();
        if let Some(group) = groups.find(|group| group.name == id.name) {
            for &(charged_at, units) in &calls[sent..] {
                owed.charge(group, Adjustment::CatchUp { units }, charged_at);
            }
        }
        *log_entries = *log_entries - owed.log_entries + owed.count_log_entries();
        if owed.waiting.is_none() {
            self.remove_budget(id);
        }
    }
}
