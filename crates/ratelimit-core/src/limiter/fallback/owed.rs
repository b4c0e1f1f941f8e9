//! Hits that passed locally and that the store certainly did not charge.
//!
//! The hits on a budget are charged to one of their own, without those of the store. So they age by the algorithm: a
//! bucket owes its units minus the refill since, a window and a counter owe the present window, and a log owes the hits
//! that are younger than its period.

#[cfg(feature = "tokio")]
mod drain;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

#[cfg(feature = "tokio")]
pub(super) use self::drain::CatchUpCalls;
use crate::{
    budget::{Adjustment, AdjustmentRequest, Budget},
    key::Key,
    key_set::KeySet,
    metrics,
    policy::{LimitGroup, MAX_LIMITS, Policy},
    store::Hit,
    sync::lock,
    time::Timestamp,
};

/// Budgets that owe hits at most. Hits on further ones are dropped, which `rate_limiter_catch_up_units_total` counts.
const MAX_BUDGETS: usize = 65_536;
/// Budgets that a hit inspects for expiry, for each budget that it charges: its work does not grow with the table.
const SWEPT_PER_BUDGET: usize = 16;
/// Entries of owed logs at most, over all budgets: 64 MiB. Hits beyond them are dropped too.
const MAX_LOG_ENTRIES: usize = 8 << 20;
/// Calls for one budget at most. A log with more distinct stamps charges those of one part of its period together.
const MAX_CALLS: u64 = 64;

/// The units of each limit, by its index in the policy.
pub(super) type LimitUnits = [u64; MAX_LIMITS];
/// A call that charges owed hits: their time, and their units.
pub(super) type OwedCall = (Timestamp, LimitUnits);

/// The owed hits of all budgets.
#[derive(Debug, Default)]
pub(super) struct OwedHits {
    entries: Mutex<OwedEntries>,
    /// The number of budgets, to skip the lock while there are none.
    count: AtomicUsize,
}

/// The owed hits of all budgets, locked.
pub(super) struct LockedOwed<'a> {
    entries: MutexGuard<'a, OwedEntries>,
    count: &'a AtomicUsize,
}

/// The budgets that owe hits, and the size of their logs.
#[derive(Debug, Default)]
struct OwedEntries {
    budgets: HashMap<OwedId, OwedBudget>,
    /// The sum of [`OwedBudget::log_entries`].
    log_entries: usize,
    /// The budgets in the order in which they are looked at, with their [`OwedBudget::number`]. A budget that was removed
    /// stays here until its turn.
    turns: VecDeque<(u64, OwedId)>,
    /// The number of the next budget.
    next_number: u64,
}

/// Identifies a budget: the name of a group of limits, and the key that it counts by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwedId {
    name: Arc<str>,
    key: Key,
}

/// The owed hits on one budget.
///
/// - They wait until the store answers a peek, and are in flight while their calls are.
/// - Hits that were not sent wait again. Hits whose reply is lost are not sent a second time.
/// - Hits that are added while others are in flight wait for the next batch.
#[derive(Debug)]
struct OwedBudget {
    /// Tells it from an earlier budget of the same name and key.
    number: u64,
    /// The policy of the last hit, and its keys.
    policy: Policy,
    keys: KeySet,
    /// The hits that are not being charged yet.
    waiting: Option<Budget>,
    /// The hits whose calls are in flight.
    sending: Option<Budget>,
    /// The time of the last hit.
    last: Timestamp,
    /// The entries of its logs when it was changed last.
    log_entries: usize,
}

impl OwedId {
    /// The budget of a hit under one group of its limits.
    fn of(hit: &Hit<'_>, group: &LimitGroup) -> OwedId {
        OwedId {
            name: Arc::clone(&group.name),
            key: hit.key_for(group).clone(),
        }
    }
}

impl OwedHits {
    /// Whether no budget owes anything.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Locks the table. The number of budgets is published when the lock is released.
    pub(super) fn lock(&self) -> LockedOwed<'_> {
        LockedOwed {
            entries: lock(&self.entries),
            count: &self.count,
        }
    }
}

impl Drop for LockedOwed<'_> {
    /// Publishes the number of budgets, before the lock is released.
    fn drop(&mut self) {
        self.count
            .store(self.entries.budgets.len(), Ordering::Release);
    }
}

impl LockedOwed<'_> {
    /// Adds `units` of a hit to each of its budgets. Returns whether they are owed; a full table drops them.
    pub(super) fn add(&mut self, hit: &Hit<'_>, units: u64, now: Timestamp) -> bool {
        let swept = SWEPT_PER_BUDGET * hit.policy.groups().len();
        let is_full = self.entries.budgets.len() >= MAX_BUDGETS;
        if is_full || self.entries.log_entries >= MAX_LOG_ENTRIES {
            self.entries.sweep(swept, now);
        }
        let OwedEntries {
            budgets,
            log_entries,
            turns,
            next_number,
        } = &mut *self.entries;
        let mut is_owed = true;
        for group in hit.policy.groups() {
            let id = OwedId::of(hit, group);
            let is_full = budgets.len() >= MAX_BUDGETS && !budgets.contains_key(&id);
            let has_stamps = group.limits.iter().any(|own| own.limit.has_stamps());
            if is_full || (has_stamps && *log_entries >= MAX_LOG_ENTRIES) {
                is_owed = false;
                continue;
            }
            let entry = budgets.entry(id).or_insert_with_key(|id| {
                *next_number += 1;
                turns.push_back((*next_number, id.clone()));
                OwedBudget {
                    number: *next_number,
                    policy: hit.policy.clone(),
                    keys: hit.keys(),
                    waiting: None,
                    sending: None,
                    last: now,
                    log_entries: 0,
                }
            });
            // The hits of a changed policy are charged under its present limits.
            entry.policy = hit.policy.clone();
            entry.keys = hit.keys();
            entry.last = entry.last.max(now);
            entry.charge(group, Adjustment::Charge { units }, now);
            *log_entries = *log_entries - entry.log_entries + entry.count_log_entries();
        }
        if self.entries.turns.len() > self.entries.budgets.len() {
            self.entries.sweep(swept, now);
        }
        if !is_owed {
            metrics::count_catch_up("dropped", units);
        }
        is_owed
    }

    /// Removes up to `units` of a hit whose charge was given back.
    pub(super) fn remove(&mut self, hit: &Hit<'_>, units: u64, now: Timestamp) {
        self.each_owed(hit, |entry, group| {
            if let Some(waiting) = &mut entry.waiting {
                waiting.remove_units(group, units, now);
            }
        });
    }

    /// Runs `change` on the budgets of a hit that owe something, with the limits under which they owe it.
    fn each_owed(&mut self, hit: &Hit<'_>, change: impl Fn(&mut OwedBudget, &LimitGroup)) {
        for group in hit.policy.groups() {
            if let Some(entry) = self.entries.budgets.get_mut(&OwedId::of(hit, group)) {
                let policy = entry.policy.clone();
                if let Some(own) = policy.groups().iter().find(|own| own.name == group.name) {
                    change(entry, own);
                }
            }
        }
    }

    /// Forgets the hits on budgets that were reset.
    pub(super) fn forget(&mut self, hit: &Hit<'_>) {
        for group in hit.policy.groups() {
            self.remove_budget(&OwedId::of(hit, group));
        }
    }

    /// Removes a budget.
    fn remove_budget(&mut self, id: &OwedId) -> Option<OwedBudget> {
        self.entries.remove(id)
    }

    /// Whether a budget of a hit owes anything.
    pub(super) fn has(&self, hit: &Hit<'_>) -> bool {
        let mut groups = hit.policy.groups().iter();
        groups.any(|group| {
            let id = OwedId::of(hit, group);
            self.entries.budgets.contains_key(&id)
        })
    }

    /// The calls that charge the hits on one budget of a hit, those in flight included.
    pub(super) fn calls_of(
        &self,
        hit: &Hit<'_>,
        group: &LimitGroup,
        now: Timestamp,
    ) -> Vec<OwedCall> {
        let Some(entry) = self.entries.budgets.get(&OwedId::of(hit, group)) else {
            return Vec::new();
        };
        let owed = entry.waiting.iter().chain(&entry.sending);
        owed.flat_map(|budget| calls(group, budget, entry.last, now))
            .collect()
    }
}

impl OwedEntries {
    /// Removes a budget.
    fn remove(&mut self, id: &OwedId) -> Option<OwedBudget> {
        let owed = self.budgets.remove(id)?;
        self.log_entries -= owed.log_entries;
        Some(owed)
    }

    /// Looks at the `count` budgets whose turn it is. Removes those that expired, and sends the others to the end of the
    /// line.
    fn sweep(&mut self, count: usize, now: Timestamp) {
        for _ in 0..count {
            let Some((number, id)) = self.turns.pop_front() else {
                return;
            };
            match self.budgets.get(&id) {
                Some(owed) if owed.number != number => {}
                Some(owed) if owed.counts(now) => self.turns.push_back((number, id)),
                Some(_) => drop(self.remove(&id)),
                None => {}
            }
        }
    }
}

impl OwedBudget {
    /// Charges the hits that wait, as far as the limits have room: more than a limit holds cannot have passed.
    fn charge(&mut self, group: &LimitGroup, change: Adjustment, now: Timestamp) {
        let waiting = self.waiting.get_or_insert_default();
        let request = AdjustmentRequest {
            change,
            cost: 1,
            charged_at: now,
            marks: &[],
            slot: 0,
            now,
        };
        waiting.settle(group, request);
    }

    /// Counts the entries of its logs, which bound the memory of all budgets.
    fn count_log_entries(&mut self) -> usize {
        let budgets = self.waiting.iter().chain(&self.sending);
        self.log_entries = budgets.map(Budget::stored_entries).sum();
        self.log_entries
    }

    /// Whether a hit still counts, or is being charged.
    fn counts(&self, now: Timestamp) -> bool {
        let waiting = self.waiting.as_ref();
        self.sending.is_some() || waiting.is_some_and(|waiting| waiting.expires() > now)
    }
}

/// The calls that charge the hits on a budget, oldest first: one, and one for each part of the period of a log.
fn calls(group: &LimitGroup, budget: &Budget, last: Timestamp, now: Timestamp) -> Vec<OwedCall> {
    let mut calls: BTreeMap<Timestamp, LimitUnits> = BTreeMap::new();
    for (effective, units) in group.limits.iter().zip(budget.units_spent(group, now)) {
        if !effective.limit.has_stamps() {
            calls.entry(last).or_default()[effective.index] = units;
            continue;
        }
        let part = effective.limit.period_ticks().micros() / MAX_CALLS + 1;
        // Each stamp becomes the newest of its part, so that no hit is forgotten early.
        let mut newest: BTreeMap<u64, (Timestamp, u64)> = BTreeMap::new();
        for stamp in budget.stamps_of(group, effective.index, now) {
            let slot = newest.entry(stamp.as_micros() / part).or_default();
            *slot = (slot.0.max(stamp), slot.1 + 1);
        }
        for (stamp, units) in newest.into_values() {
            calls.entry(stamp).or_default()[effective.index] += units;
        }
    }
    calls.retain(|_, units| units.iter().any(|units| *units > 0));
    calls.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::new(format!("k{number}")).unwrap()
    }

    /// A table that is full of hits on keys with these numbers.
    fn full(policy: &Policy, from: usize, now: Timestamp) -> OwedHits {
        let owed = OwedHits::default();
        for number in from..from + MAX_BUDGETS {
            let key = key(number);
            assert!(owed.lock().add(&Hit::new(policy, &key), 1, now));
        }
        owed
    }

    #[test]
    fn a_hit_on_a_full_table_looks_at_a_few_budgets() {
        let policy = Policy::parse("p", "fixed_window 5/d").unwrap();
        let now = Timestamp::from_secs(600);
        let owed = full(&policy, 0, now);
        let front = |owed: &OwedHits| owed.lock().entries.turns[0].0;
        let before = front(&owed);

        let is_owed = owed
            .lock()
            .add(&Hit::new(&policy, &key(MAX_BUDGETS)), 1, now);

        assert!(!is_owed);
        assert_eq!(front(&owed) - before, SWEPT_PER_BUDGET as u64);
        assert_eq!(owed.lock().entries.turns.len(), MAX_BUDGETS);
    }

    #[test]
    fn expired_budgets_make_room_in_a_full_table() {
        let policy = Policy::parse("p", "fixed_window 5/min").unwrap();
        let owed = full(&policy, 0, Timestamp::from_secs(600));

        let later = Timestamp::from_secs(720);
        for number in MAX_BUDGETS..MAX_BUDGETS + 1_000 {
            let key = key(number);
            assert!(
                owed.lock().add(&Hit::new(&policy, &key), 1, later),
                "{number}"
            );
        }

        assert!(owed.lock().entries.budgets.len() <= MAX_BUDGETS);
    }

    #[test]
    fn expired_logs_make_room_for_others() {
        let policy = Policy::parse("p", "sliding_window_log 5/min").unwrap();
        let owed = OwedHits::default();
        let early = Timestamp::from_secs(600);
        assert!(owed.lock().add(&Hit::new(&policy, &key(0)), 1, early));
        // The log of this budget has all entries that there may be.
        let mut locked = owed.lock();
        for budget in locked.entries.budgets.values_mut() {
            budget.log_entries = MAX_LOG_ENTRIES;
        }
        locked.entries.log_entries = MAX_LOG_ENTRIES;
        assert!(!locked.add(&Hit::new(&policy, &key(1)), 1, early));

        let later = Timestamp::from_secs(720);

        assert!(locked.add(&Hit::new(&policy, &key(1)), 1, later));
    }

    #[test]
    fn budgets_that_come_and_go_leave_nothing_behind() {
        let policy = Policy::parse("p", "fixed_window 5/d").unwrap();
        let (owed, now) = (OwedHits::default(), Timestamp::from_secs(600));
        for number in 0..100 {
            let key = key(number);
            owed.lock().add(&Hit::new(&policy, &key), 1, now);
        }

        for _ in 0..10_000 {
            let key = key(1_000);
            let hit = Hit::new(&policy, &key);
            owed.lock().add(&hit, 1, now);
            owed.lock().forget(&hit);
        }

        let length = owed.lock().entries.turns.len();
        assert!(length <= 200, "{length}");
    }
}
