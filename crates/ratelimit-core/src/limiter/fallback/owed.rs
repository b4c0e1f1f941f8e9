//! Hits that passed locally and that the store certainly did not charge.
//!
//! The hits of a key are charged to budgets of their own, without those of the store. So they age by the algorithm: a
//! bucket owes its units minus the refill since, a window and a counter owe the present window, and a log owes the hits
//! that are younger than its period.

#[cfg(feature = "tokio")]
mod drain;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use smallvec::SmallVec;

#[cfg(feature = "tokio")]
pub(super) use self::drain::CatchUpCalls;

use crate::{
    budget::{Adjustment, AdjustmentRequest, Budget},
    key_set::KeySet,
    metrics,
    policy::{MAX_LIMITS, Policy},
    store::Hit,
    sync::lock,
    time::Timestamp,
};

/// Keys that owe hits at most. Further keys owe nothing, which `rate_limiter_catch_up_units_total` counts.
const MAX_KEYS: usize = 65_536;
/// The units of each limit, by its index in the policy.
pub(super) type LimitUnits = [u64; MAX_LIMITS];

/// The owed hits of all keys.
#[derive(Debug, Default)]
pub(super) struct OwedHits {
    entries: Mutex<OwedEntries>,
    /// The number of keys, to skip the lock while there are none.
    count: AtomicUsize,
}

/// The owed hits of all keys, locked.
pub(super) struct LockedOwed<'a> {
    entries: MutexGuard<'a, OwedEntries>,
    count: &'a AtomicUsize,
}

type OwedEntries = HashMap<OwedKey, OwedHit>;

/// Identifies the budgets of a hit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwedKey {
    policy: Arc<str>,
    keys: KeySet,
}

/// The owed hits of one key.
#[derive(Debug)]
struct OwedHit {
    policy: Policy,
    /// The hits that are not being charged yet, one budget for each group of limits.
    waiting: Budgets,
    /// The hits whose call is in flight.
    sending: Option<Budgets>,
}

type Budgets = SmallVec<[Budget; 1]>;

impl OwedKey {
    fn of(hit: &Hit<'_>) -> OwedKey {
        OwedKey {
            policy: Arc::clone(hit.policy.shared_name()),
            keys: hit.keys(),
        }
    }
}

impl OwedHits {
    /// Whether no key owes anything.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    pub(super) fn lock(&self) -> LockedOwed<'_> {
        LockedOwed {
            entries: lock(&self.entries),
            count: &self.count,
        }
    }
}

impl Drop for LockedOwed<'_> {
    fn drop(&mut self) {
        self.count.store(self.entries.len(), Ordering::Release);
    }
}

impl LockedOwed<'_> {
    /// Adds `units` of a hit. Returns whether they are owed; a full table drops them.
    pub(super) fn add(&mut self, hit: &Hit<'_>, units: u64, now: Timestamp) -> bool {
        let key = OwedKey::of(hit);
        if self.entries.len() >= MAX_KEYS && !self.entries.contains_key(&key) {
            metrics::count_catch_up("dropped", units);
            return false;
        }
        let entry = self.entries.entry(key).or_insert_with(|| OwedHit {
            policy: hit.policy.clone(),
            waiting: Budgets::new(),
            sending: None,
        });
        // The hits of a changed policy are charged under its present limits.
        entry.policy = hit.policy.clone();
        entry.charge(units, now);
        true
    }

    /// Removes up to `units` of a hit, whose charge was given back.
    pub(super) fn remove(&mut self, hit: &Hit<'_>, units: u64, now: Timestamp) {
        if let Some(entry) = self.entries.get_mut(&OwedKey::of(hit)) {
            for (group, budget) in entry.policy.groups().iter().zip(&mut entry.waiting) {
                budget.remove_units(group, units, now);
            }
        }
    }

    /// Forgets the hits of a key that was reset.
    pub(super) fn forget(&mut self, hit: &Hit<'_>) {
        self.entries.remove(&OwedKey::of(hit));
    }

    /// Whether the key of a hit owes anything.
    pub(super) fn has(&self, hit: &Hit<'_>) -> bool {
        self.entries.contains_key(&OwedKey::of(hit))
    }

    /// The units that the key of a hit owes, those in flight included; `None` if it owes nothing.
    pub(super) fn units_of(&self, hit: &Hit<'_>, now: Timestamp) -> Option<LimitUnits> {
        let entry = self.entries.get(&OwedKey::of(hit))?;
        let mut units = units(&entry.policy, &entry.waiting, now);
        if let Some(sending) = &entry.sending {
            let sent = self::units(&entry.policy, sending, now);
            units
                .iter_mut()
                .zip(sent)
                .for_each(|(all, sent)| *all += sent);
        }
        Some(units)
    }
}

impl OwedHit {
    fn charge(&mut self, units: u64, now: Timestamp) {
        self.adjust(Adjustment::Charge { units }, now);
    }

    fn adjust(&mut self, change: Adjustment, now: Timestamp) {
        let groups = self.policy.groups();
        self.waiting.resize(groups.len(), Budget::default());
        for (group, budget) in groups.iter().zip(&mut self.waiting) {
            budget.settle(
                group,
                AdjustmentRequest {
                    change,
                    cost: 1,
                    charged_at: now,
                    marks: &[],
                    slot: 0,
                    now,
                },
            );
        }
    }
}

/// The units of each limit that still count.
fn units(policy: &Policy, budgets: &Budgets, now: Timestamp) -> LimitUnits {
    let mut units = LimitUnits::default();
    for (group, budget) in policy.groups().iter().zip(budgets) {
        for (effective, owed) in group.limits.iter().zip(budget.units_spent(group, now)) {
            units[effective.index] = owed;
        }
    }
    units
}
