//! What this process knows of budgets in a shared store: the last reply, units in flight, and uncharged units.

use std::{
    iter,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use ahash::RandomState;
use hashbrown::HashTable;
use smallvec::SmallVec;
#[cfg(feature = "tokio")]
use tokio::sync::watch;

use crate::{
    budget::{AdjustmentRequest, Budget, LimitUnits},
    key::Key,
    key_set::KeySet,
    policy::{LimitGroup, MAX_LIMITS, Policy},
    store::{Hit, life},
    time::Timestamp,
};

/// Entries that an insert into a full table inspects: its work does not grow with the table.
const MAX_INSPECTED: usize = 16;
/// A reply whose time is earlier than that of the last one by more than this is not late: the clock of the server was set
/// back, or another node took over.
const MAX_DISORDER_MICROS: u64 = 3_000_000;

/// A bounded table of recently used budgets.
///
/// A full table evicts an entry that was not used recently. Budgets with hits in flight, or with uncharged units that time has
/// not restored, are never evicted, and exhausted ones only where there is no other.
#[derive(Debug)]
pub(super) struct KnownBudgets {
    /// Indices into `entries`, found by the hash of name and key.
    table: HashTable<u32>,
    entries: Vec<Entry>,
    capacity: usize,
    /// Where the next search for an entry to evict begins.
    hand: usize,
    hasher: RandomState,
    /// The number of budgets with uncharged units.
    uncharged: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Entry {
    hash: u64,
    /// The name of the group of limits, and the key that it counts by.
    name: Arc<str>,
    key: Key,
    /// Set by every use, and cleared when the hand passes.
    was_used: bool,
    budget: KnownBudget,
}

/// What is known of one budget.
#[derive(Debug, Default)]
pub(super) struct KnownBudget {
    reply: Option<Reply>,
    /// Units of hits that the store has not answered yet.
    pub(super) in_flight: u64,
    /// Made by the first local decision after a reply.
    local: Option<Box<LocalDecisions>>,
}

/// The last reply of a store about one group of limits.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// The time of the store.
    pub(super) at: Timestamp,
    /// In the order of the group.
    pub(super) limits: SmallVec<[LimitReply; 1]>,
}

/// The last reply of a store about one limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitReply {
    /// The limit, and the units of it that are spent.
    pub(super) limit: u64,
    pub(super) spent: u64,
    /// The end of a block; the epoch without one.
    pub(super) blocked_until: Timestamp,
    /// When a limit without anything left resets; the epoch for any other.
    pub(super) exhausted_until: Timestamp,
}

/// The local decisions on a budget since the last reply.
#[derive(Debug)]
struct LocalDecisions {
    /// The states of which the store knows: those of the last reply, and hits that it may have charged since. What the local
    /// budget has spent beyond them is uncharged.
    known: Budget,
    /// The number of instances that share the limits; `None` for whole limits.
    instances: Option<NonZeroU32>,
    uncharged: Option<Uncharged>,
}

/// Hits that passed locally and that the store certainly did not charge.
#[derive(Debug)]
pub(super) struct Uncharged {
    /// The policy and the keys of the last hit.
    pub(super) policy: Policy,
    pub(super) keys: KeySet,
    /// The time of the last hit.
    pub(super) last: Timestamp,
    /// Units that the local budget has no room for, because the limits or the share of this instance became smaller.
    excess: LimitUnits,
    /// Whether hits passed since the charge in flight began.
    is_growing: bool,
    charging: Option<ChargeInFlight>,
}

/// A charge of uncharged units that was begun.
#[derive(Debug)]
struct ChargeInFlight {
    /// The local states when it began.
    local: Budget,
    #[cfg(feature = "tokio")]
    end: ChargeEnd,
}

/// Tells the end of a charge to those who wait for it: whether it may have been made.
#[cfg(feature = "tokio")]
pub(super) type ChargeEnd = watch::Receiver<Option<bool>>;

impl KnownBudgets {
    /// An empty table for `capacity` budgets, which keeps the number of those with `uncharged` units.
    pub(super) fn new(capacity: usize, uncharged: Arc<AtomicUsize>) -> KnownBudgets {
        KnownBudgets {
            table: HashTable::new(),
            entries: Vec::new(),
            capacity: capacity.clamp(1, u32::MAX as usize),
            hand: 0,
            hasher: RandomState::new(),
            uncharged,
        }
    }

    /// The budget of a hit under one group of its limits.
    pub(super) fn get(&mut self, hit: &Hit<'_>, group: &LimitGroup) -> Option<&mut KnownBudget> {
        let index = self.find(self.hash(hit, group), hit, group)?;
        Some(&mut self.entries[index].budget)
    }

    /// The same, inserted if it is new; `None` if the table is full of budgets that must stay.
    pub(super) fn get_or_insert(
        &mut self,
        hit: &Hit<'_>,
        group: &LimitGroup,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<&mut KnownBudget> {
        let hash = self.hash(hit, group);
        let index = match self.find(hash, hit, group) {
            Some(index) => index,
            None => self.insert(hash, hit, group, now)?,
        };
        let entry = &mut self.entries[index];
        entry.was_used = true;
        Some(&mut entry.budget)
    }

    /// Adds a budget, and returns its index.
    fn insert(
        &mut self,
        hash: u64,
        hit: &Hit<'_>,
        group: &LimitGroup,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<usize> {
        let index = self.free_index(now)?;
        let entry = Entry {
            hash,
            name: Arc::clone(&group.name),
            key: hit.key_for(group).clone(),
            was_used: true,
            budget: KnownBudget::default(),
        };
        if index == self.entries.len() {
            self.entries.push(entry);
        } else {
            self.entries[index] = entry;
        }
        let number = u32::try_from(index).expect("the capacity is below 2^32");
        let entries = &self.entries;
        self.table
            .insert_unique(hash, number, |&index| entries[index as usize].hash);
        Some(index)
    }

    /// The index of a budget with uncharged units that are not in flight, from `start` on.
    #[cfg(feature = "tokio")]
    pub(super) fn next_uncharged(&self, start: usize) -> Option<(usize, &Uncharged)> {
        let entries = self.entries.iter().enumerate().skip(start);
        let mut waiting = entries.filter_map(|(index, entry)| {
            let uncharged = entry.budget.uncharged()?;
            uncharged.charging.is_none().then_some((index, uncharged))
        });
        waiting.next()
    }

    fn hash(&self, hit: &Hit<'_>, group: &LimitGroup) -> u64 {
        self.hasher.hash_one((&*group.name, hit.key_for(group)))
    }

    fn find(&self, hash: u64, hit: &Hit<'_>, group: &LimitGroup) -> Option<usize> {
        let key = hit.key_for(group);
        let found = self.table.find(hash, |&index| {
            let entry = &self.entries[index as usize];
            entry.hash == hash && entry.key == *key && entry.name == group.name
        });
        found.map(|&index| index as usize)
    }

    /// An index for a new entry: the end, or that of an evicted entry.
    fn free_index(&mut self, now: impl FnOnce() -> Timestamp) -> Option<usize> {
        if self.entries.len() < self.capacity {
            return Some(self.entries.len());
        }
        let now = now();
        let mut exhausted = None;
        let mut victim = None;
        for _ in 0..MAX_INSPECTED.min(self.capacity) {
            let index = self.hand % self.capacity;
            self.hand = index + 1;
            let entry = &mut self.entries[index];
            if entry.budget.must_stay(now) {
                continue;
            }
            if entry.budget.is_exhausted(now) {
                exhausted = exhausted.or(Some(index));
            } else if !std::mem::take(&mut entry.was_used) {
                victim = Some(index);
                break;
            } else {
                victim = victim.or(Some(index));
            }
        }
        let index = victim.or(exhausted)?;
        self.entries[index].budget.clear_uncharged(&self.uncharged);
        let hash = self.entries[index].hash;
        let is_own = |&number: &u32| number as usize == index;
        if let Ok(found) = self.table.find_entry(hash, is_own) {
            found.remove();
        }
        Some(index)
    }
}

impl KnownBudget {
    /// The last reply.
    pub(super) const fn reply(&self) -> Option<&Reply> {
        self.reply.as_ref()
    }

    /// Takes up a reply, unless it is older than the last one or a charge is in flight, of which it may not know. Returns
    /// whether it was taken.
    ///
    /// The replies of a batch have one time: the one that has spent most is the last.
    pub(super) fn accepts(&self, reply: &Reply) -> bool {
        if self.uncharged().is_some_and(|own| own.charging.is_some()) {
            return false;
        }
        let Some(last) = &self.reply else {
            return true;
        };
        let behind = last.at.as_micros().saturating_sub(reply.at.as_micros());
        match behind {
            0 if last.at == reply.at => reply.spent_most() >= last.spent_most(),
            0 => true,
            behind => behind > MAX_DISORDER_MICROS,
        }
    }

    /// Replaces the reply. The next local decision begins with it.
    pub(super) fn set_reply(&mut self, reply: Reply) {
        self.reply = Some(reply);
        if self.uncharged().is_none() {
            self.local = None;
        }
    }

    /// Whether the local states were made of the last reply, with limits that this many instances share.
    pub(super) fn is_seeded_for(&self, instances: Option<NonZeroU32>) -> bool {
        let local = self.local.as_ref();
        local.is_some_and(|local| local.instances == instances)
    }

    /// Records the states of which the store knows. Uncharged units stay.
    pub(super) fn set_seeded(&mut self, known: Budget, instances: Option<NonZeroU32>) {
        let uncharged = self.local.take().and_then(|local| local.uncharged);
        self.local = Some(Box::new(LocalDecisions {
            known,
            instances,
            uncharged,
        }));
    }

    /// The number of instances that shared the limits in the last local decision.
    pub(super) fn instances(&self) -> Option<NonZeroU32> {
        self.local.as_ref().and_then(|local| local.instances)
    }

    /// The states of which the store knows.
    pub(super) fn known(&mut self) -> Option<&mut Budget> {
        self.local.as_mut().map(|local| &mut local.known)
    }

    /// The hits that the store was not charged for.
    pub(super) fn uncharged(&self) -> Option<&Uncharged> {
        self.local.as_ref()?.uncharged.as_ref()
    }

    /// Records that a hit passed locally that the store did not charge. `count` is the number of such budgets.
    pub(super) fn add_uncharged(&mut self, hit: &Hit<'_>, now: Timestamp, count: &AtomicUsize) {
        let Some(local) = &mut self.local else {
            return;
        };
        if let Some(uncharged) = &mut local.uncharged {
            // The units of a changed policy are charged under its present limits.
            uncharged.policy = hit.policy.clone();
            uncharged.keys = hit.keys();
            uncharged.last = uncharged.last.max(now);
            uncharged.is_growing = true;
            return;
        }
        local.uncharged = Some(Uncharged {
            policy: hit.policy.clone(),
            keys: hit.keys(),
            last: now,
            excess: [0; MAX_LIMITS],
            is_growing: false,
            charging: None,
        });
        count.fetch_add(1, Ordering::Release);
    }

    /// The uncharged units that the local budget has no room for.
    pub(super) fn excess(&self, now: Timestamp) -> LimitUnits {
        let uncharged = self.uncharged().filter(|own| !own.is_restored(now));
        uncharged.map_or([0; MAX_LIMITS], |own| own.excess)
    }

    /// Records the uncharged units that the local budget has no room for.
    pub(super) fn set_excess(&mut self, units: LimitUnits) {
        let local = self.local.as_mut();
        if let Some(uncharged) = local.and_then(|own| own.uncharged.as_mut()) {
            uncharged.excess = units;
        }
    }

    /// Forgets uncharged hits: they were charged, or no longer count.
    pub(super) fn clear_uncharged(&mut self, count: &AtomicUsize) {
        let local = self.local.as_mut();
        if local.and_then(|local| local.uncharged.take()).is_some() {
            count.fetch_sub(1, Ordering::Release);
        }
    }

    /// Forgets all but the hits in flight.
    pub(super) fn forget(&mut self, count: &AtomicUsize) {
        self.clear_uncharged(count);
        self.reply = None;
        self.local = None;
    }

    /// Charges a hit to the known states that the store may have charged.
    pub(super) fn charge_known(&mut self, group: &LimitGroup, cost: u64, now: Timestamp) {
        for states in self.known_states() {
            states.charge_units(group, [cost; MAX_LIMITS], now);
        }
    }

    /// Refunds a hit that [`charge_known`](Self::charge_known) charged.
    pub(super) fn refund_known(&mut self, group: &LimitGroup, refund: AdjustmentRequest<'_>) {
        for states in self.known_states() {
            states.settle(group, refund);
        }
    }

    /// The known states, and those that a charge in flight makes known.
    fn known_states(&mut self) -> impl Iterator<Item = &mut Budget> {
        self.local.as_deref_mut().into_iter().flat_map(|local| {
            let uncharged = local.uncharged.as_mut();
            let charging = uncharged.and_then(|own| own.charging.as_mut());
            iter::once(&mut local.known).chain(charging.map(|own| &mut own.local))
        })
    }

    /// The latest end of a block that the store reported, with the index of its limit in the policy.
    pub(super) fn block(&self, group: &LimitGroup, now: Timestamp) -> Option<(Timestamp, usize)> {
        let limits = &self.reply.as_ref()?.limits;
        let ends = limits.iter().zip(&group.limits);
        let ends = ends.map(|(limit, own)| (limit.blocked_until, own.index));
        ends.filter(|(until, _)| *until > now).max()
    }

    fn must_stay(&self, now: Timestamp) -> bool {
        let must_stay = |own: &Uncharged| own.charging.is_some() || !own.is_restored(now);
        self.in_flight > 0 || self.uncharged().is_some_and(must_stay)
    }

    fn is_exhausted(&self, now: Timestamp) -> bool {
        let mut limits = self.reply.iter().flat_map(|reply| &reply.limits);
        limits.any(|limit| limit.exhausted_until > now)
    }
}

#[cfg(feature = "tokio")]
impl KnownBudget {
    /// Begins a charge of all that `local` has spent beyond the known states.
    pub(super) fn begin_charge(&mut self, local: Budget, end: ChargeEnd) {
        let own = self.local.as_mut();
        if let Some(uncharged) = own.and_then(|own| own.uncharged.as_mut()) {
            uncharged.charging = Some(ChargeInFlight { local, end });
            uncharged.is_growing = false;
        }
    }

    /// The end of the charge in flight.
    pub(super) fn charge_end(&self) -> Option<&ChargeEnd> {
        let charging = self.uncharged()?.charging.as_ref()?;
        Some(&charging.end)
    }

    /// Ends a charge, and returns whether it was in flight. If it may have been made, the store knows of its units.
    ///
    /// A charge from before a reset changes nothing.
    pub(super) fn end_charge(
        &mut self,
        end: &ChargeEnd,
        may_be_made: bool,
        count: &AtomicUsize,
    ) -> bool {
        let Some(local) = &mut self.local else {
            return false;
        };
        let Some(uncharged) = &mut local.uncharged else {
            return false;
        };
        let is_own = |charging: &mut ChargeInFlight| charging.end.same_channel(end);
        let Some(charged) = uncharged.charging.take_if(is_own) else {
            return false;
        };
        if may_be_made {
            local.known = charged.local;
            uncharged.excess = [0; MAX_LIMITS];
            if !uncharged.is_growing {
                self.clear_uncharged(count);
            }
        }
        true
    }
}

impl Uncharged {
    /// Whether time has restored all units.
    fn is_restored(&self, now: Timestamp) -> bool {
        self.last + life(&self.policy) <= now
    }
}

impl Reply {
    /// Whether nothing is spent or blocked.
    pub(super) fn is_unspent(&self) -> bool {
        let is_unspent =
            |limit: &LimitReply| limit.spent == 0 && limit.blocked_until == Timestamp::default();
        self.limits.iter().all(is_unspent)
    }

    /// The units that local decisions under `own` begin with, by the index of the limit in the policy. Each instance gets
    /// its part of what is left, rounded up.
    pub(super) fn spent(&self, own: &LimitGroup, instances: Option<NonZeroU32>) -> LimitUnits {
        let mut units = [0; MAX_LIMITS];
        for (reply, effective) in self.limits.iter().zip(&own.limits) {
            units[effective.index] = match instances {
                None => reply.spent,
                Some(instances) => {
                    let left = reply.limit.saturating_sub(reply.spent);
                    let part = left.div_ceil(u64::from(instances.get()));
                    effective.limit.capacity().saturating_sub(part)
                }
            };
        }
        units
    }

    fn spent_most(&self) -> u64 {
        self.limits
            .iter()
            .map(|limit| limit.spent)
            .max()
            .unwrap_or(0)
    }
}
