//! Taking owed hits out, as calls that charge them to the store.

use std::collections::BTreeMap;

use crate::limiter::fallback::owed::{Budgets, LimitUnits, LockedOwed, OwedHit, OwedKey, units};
use crate::{budget::Adjustment, key_set::KeySet, policy::Policy, time::Timestamp};

/// Calls for one key at most. A log with more distinct stamps charges its oldest ones with a later stamp.
const MAX_CALLS: usize = 16;

/// The calls that charge the owed hits of one key.
pub(in crate::limiter::fallback) struct CatchUpCalls {
    pub(in crate::limiter::fallback) key: OwedKey,
    pub(in crate::limiter::fallback) policy: Policy,
    /// The time of the hits, and their units; oldest first. Only a log needs more than one call.
    pub(in crate::limiter::fallback) calls: Vec<(Timestamp, LimitUnits)>,
}

impl OwedKey {
    pub(in crate::limiter::fallback) const fn keys(&self) -> &KeySet {
        &self.keys
    }
}

impl LockedOwed<'_> {
    /// Any key that owes something, to learn whether the store answers.
    pub(in crate::limiter::fallback) fn first(&self) -> Option<(Policy, KeySet)> {
        let (key, entry) = self.entries.iter().next()?;
        Some((entry.policy.clone(), key.keys.clone()))
    }

    /// Takes the hits of up to `count` keys, which are in flight from now on.
    pub(in crate::limiter::fallback) fn take(
        &mut self,
        count: usize,
        now: Timestamp,
    ) -> Vec<CatchUpCalls> {
        let waiting = self.entries.iter_mut();
        let waiting = waiting.filter(|(_, entry)| entry.sending.is_none());
        let taken = waiting.take(count).map(|(key, entry)| {
            let sending = std::mem::take(&mut entry.waiting);
            let calls = calls(&entry.policy, &sending, now);
            entry.sending = Some(sending);
            CatchUpCalls {
                key: key.clone(),
                policy: entry.policy.clone(),
                calls,
            }
        });
        taken.collect()
    }

    /// Ends the calls of a key. Hits that were not sent wait again.
    pub(in crate::limiter::fallback) fn end(
        &mut self,
        key: &OwedKey,
        unsent: &[(Timestamp, LimitUnits)],
    ) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        entry.sending = None;
        for (charged_at, units) in unsent {
            entry.catch_up(*charged_at, *units);
        }
        if entry.waiting.is_empty() {
            self.entries.remove(key);
        }
    }
}

impl OwedHit {
    fn catch_up(&mut self, charged_at: Timestamp, units: LimitUnits) {
        self.adjust(Adjustment::CatchUp { units }, charged_at);
    }
}

/// The calls that charge these hits: one, or one for each time at which a log was charged.
fn calls(policy: &Policy, budgets: &Budgets, now: Timestamp) -> Vec<(Timestamp, LimitUnits)> {
    let mut calls: BTreeMap<Timestamp, LimitUnits> = BTreeMap::new();
    let total = units(policy, budgets, now);
    let last = calls.entry(now).or_default();
    for limit in 0..policy.limits().len() {
        if !policy.limits()[limit].has_stamps() {
            last[limit] = total[limit];
        }
    }
    for (group, budget) in policy.groups().iter().zip(budgets) {
        for (effective, stamp) in budget.stamps(group, now) {
            calls.entry(stamp).or_default()[effective] += 1;
        }
    }
    // The oldest stamps become those of the oldest call that is kept.
    while calls.len() > MAX_CALLS
        && let Some((_, oldest)) = calls.pop_first()
        && let Some(mut next) = calls.first_entry()
    {
        let next = next.get_mut().iter_mut();
        next.zip(oldest).for_each(|(next, oldest)| *next += oldest);
    }
    calls.retain(|_, units| units.iter().any(|units| *units > 0));
    calls.into_iter().collect()
}
