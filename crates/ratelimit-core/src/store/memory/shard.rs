//! One part of the store: a table of keys, and two queues that say who makes room.

mod room;

use std::sync::Arc;

use ahash::RandomState;

use hashbrown::HashTable;

use super::{
    MemoryStats,
    queue::{Linked, Links, Queue},
};
use crate::{
    algorithm::{Fit, Spend},
    decision::{Decision, LimitDecision},
    key::Key,
    policy::{Asked, Bound, Budget, Group, Settled, Settling},
    time::Timestamp,
};

/// The budget that is meant: whose, and under which limits.
#[derive(Clone, Copy)]
pub(super) struct Whose<'a> {
    pub(super) hasher: &'a RandomState,
    pub(super) hash: u64,
    pub(super) group: &'a Group,
    pub(super) key: &'a Key,
}

/// As many stamps of a log take the room of one key.
const STAMPS_WORTH_A_KEY: usize = 8;
const SLOTS_PER_INSERT: usize = 2;

#[derive(Debug)]
pub(super) struct Shard {
    /// Places in `slots`, found by hash.
    table: HashTable<u32>,
    slots: Vec<Slot>,
    /// Keys with something left, the longest untouched first: they make room.
    plain: Queue,
    /// Used up keys: they do not.
    exhausted: Queue,
    /// One budget per policy for newcomers that found no room.
    overflow: Vec<(Arc<str>, Budget)>,
    bound: usize,
    weight: usize,
    /// Where the search for expired slots goes on.
    hand: usize,
    /// No budget here counts after this.
    all_expired_at: Timestamp,
    hits: u64,
    evicted: u64,
    overflowed: u64,
}

#[derive(Debug)]
struct Slot {
    key: Key,
    policy: Arc<str>,
    budget: Budget,
    links: Links,
    /// When the key has something left again; zero in the plain queue.
    exhausted_until: Timestamp,
}

impl Linked for Slot {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Slot {
    fn weight(&self) -> usize {
        weight(&self.budget)
    }

    fn is_plain(&self) -> bool {
        self.exhausted_until == Timestamp::default()
    }
}

/// Where a hit is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// On the budget of its key.
    Own,
    /// On the one of all newcomers that found no room.
    Shared,
}

fn is_used_up(mut limits: impl Iterator<Item = LimitDecision>) -> bool {
    limits.any(|limit| limit.remaining == 0)
}

fn weight(budget: &Budget) -> usize {
    1 + budget.stamps() / STAMPS_WORTH_A_KEY
}

pub(super) fn hash_of(hasher: &RandomState, policy: &str, key: &Key) -> u64 {
    hasher.hash_one((policy, key.as_str()))
}

impl Shard {
    pub(super) fn new(bound: usize) -> Shard {
        Shard {
            table: HashTable::new(),
            slots: Vec::new(),
            plain: Queue::new(),
            exhausted: Queue::new(),
            overflow: Vec::new(),
            bound,
            weight: 0,
            hand: 0,
            all_expired_at: Timestamp::default(),
            hits: 0,
            evicted: 0,
            overflowed: 0,
        }
    }

    pub(super) fn hit(&mut self, whose: Whose<'_>, asked: Asked, now: Timestamp) -> Decision {
        match self.find(whose) {
            Some(place) => self.hit_known(whose, place, asked, now),
            None => self.hit_newcomer(whose, asked, now),
        }
    }

    fn hit_known(
        &mut self,
        whose: Whose<'_>,
        place: u32,
        asked: Asked,
        now: Timestamp,
    ) -> Decision {
        let slot = &mut self.slots[place as usize];
        let weight_before = slot.weight();
        let hitting = slot.budget.hit(whose.group, now, asked);
        if hitting.wrote {
            let used_up = is_used_up(hitting.decision.limits());
            self.rewritten(whose, place, weight_before, used_up, now);
        }
        hitting.decision
    }

    fn hit_newcomer(&mut self, whose: Whose<'_>, asked: Asked, now: Timestamp) -> Decision {
        let mut budget = Budget::default();
        let hitting = budget.hit(whose.group, now, asked);
        if !hitting.wrote {
            return hitting.decision;
        }
        self.drop_expired(whose.hasher, SLOTS_PER_INSERT, now);
        if !self.make_room(whose.hasher, weight(&budget), now) {
            self.overflowed += 1;
            return self.overflow(whose).hit(whose.group, now, asked).decision;
        }
        let used_up = is_used_up(hitting.decision.limits());
        self.insert(whose, budget, used_up, now);
        hitting.decision
    }

    /// Whether a hit that concerns other budgets as well fits here, and where it will be spent.
    pub(super) fn fit(&mut self, whose: Whose<'_>, asked: Asked, now: Timestamp) -> (Fit, Seat) {
        if let Some(place) = self.find(whose) {
            let budget = &self.slots[place as usize].budget;
            return (budget.fit(whose.group, now, asked), Seat::Own);
        }
        self.drop_expired(whose.hasher, SLOTS_PER_INSERT, now);
        if self.make_room(whose.hasher, 1, now) {
            let fit = Budget::default().fit(whose.group, now, asked);
            return (fit, Seat::Own);
        }
        self.overflowed += 1;
        let fit = self.overflow(whose).fit(whose.group, now, asked);
        (fit, Seat::Shared)
    }

    /// Does what was decided for all budgets that a hit concerns.
    pub(super) fn spend(
        &mut self,
        whose: Whose<'_>,
        seat: Seat,
        asked: Asked,
        spend: Spend,
        now: Timestamp,
        mut each: impl FnMut(&Bound, LimitDecision),
    ) {
        let mut used_up = false;
        let each = |bound: &Bound, step: LimitDecision| {
            used_up |= step.remaining == 0;
            each(bound, step);
        };
        if seat == Seat::Shared {
            let budget = self.overflow(whose);
            budget.spend(whose.group, now, asked, spend, each);
            return;
        }
        if let Some(place) = self.find(whose) {
            let slot = &mut self.slots[place as usize];
            let weight_before = slot.weight();
            if slot.budget.spend(whose.group, now, asked, spend, each) {
                self.rewritten(whose, place, weight_before, used_up, now);
            }
            return;
        }
        let mut budget = Budget::default();
        if budget.spend(whose.group, now, asked, spend, each) {
            self.insert(whose, budget, used_up, now);
        }
    }

    /// Changes a charge that was made earlier.
    pub(super) fn settle(&mut self, whose: Whose<'_>, settling: Settling<'_>) -> Settled {
        let now = settling.now;
        if let Some(place) = self.find(whose) {
            let slot = &mut self.slots[place as usize];
            let weight_before = slot.weight();
            let settled = slot.budget.settle(whose.group, settling);
            if settled.wrote {
                self.rewritten(whose, place, weight_before, true, now);
            }
            return settled;
        }
        if let Some(place) = self.overflow_of(whose) {
            let shared = settling.on_shared_budget();
            return self.overflow[place].1.settle(whose.group, shared);
        }
        let mut budget = Budget::default();
        let settled = budget.settle(whose.group, settling);
        if settled.wrote && self.make_room(whose.hasher, weight(&budget), now) {
            self.insert(whose, budget, true, now);
        }
        settled
    }

    fn insert(&mut self, whose: Whose<'_>, budget: Budget, used_up: bool, now: Timestamp) {
        self.weight += weight(&budget);
        let place = u32::try_from(self.slots.len()).expect("a shard is bounded far below 2^32");
        self.slots.push(Slot {
            key: whose.key.clone(),
            policy: Arc::clone(&whose.group.name),
            budget,
            links: Links::LOOSE,
            exhausted_until: Timestamp::default(),
        });
        let slots = &self.slots;
        self.table.insert_unique(whose.hash, place, |&place| {
            let slot = &slots[place as usize];
            hash_of(whose.hasher, &slot.policy, &slot.key)
        });
        self.plain.push_back(&mut self.slots, place);
        self.requeue(place, whose.group, used_up, now);
    }

    /// The one budget of all newcomers that found no room.
    fn overflow(&mut self, whose: Whose<'_>) -> &mut Budget {
        let place = self.overflow_of(whose).unwrap_or_else(|| {
            let name = Arc::clone(&whose.group.name);
            self.overflow.push((name, Budget::default()));
            self.overflow.len() - 1
        });
        &mut self.overflow[place].1
    }

    fn overflow_of(&self, whose: Whose<'_>) -> Option<usize> {
        let name = &whose.group.name;
        self.overflow.iter().position(|(policy, _)| policy == name)
    }

    /// Sees to a key whose budget was written.
    fn rewritten(
        &mut self,
        whose: Whose<'_>,
        place: u32,
        weight_before: usize,
        used_up: bool,
        now: Timestamp,
    ) {
        self.weight = self.weight - weight_before + self.slots[place as usize].weight();
        self.requeue(place, whose.group, used_up, now);
        if self.weight > self.bound {
            // The key itself now stands at the back of its queue, so others go first.
            self.make_room(whose.hasher, 0, now);
        }
    }

    pub(super) fn forget(&mut self, whose: Whose<'_>) {
        if let Some(place) = self.find(whose) {
            self.remove(whose.hasher, place);
        }
    }

    fn find(&self, whose: Whose<'_>) -> Option<u32> {
        let same = |&place: &u32| {
            let slot = &self.slots[place as usize];
            slot.key == *whose.key && *slot.policy == *whose.group.name
        };
        self.table.find(whose.hash, same).copied()
    }

    pub(super) fn count_hit(&mut self) -> u64 {
        self.hits = self.hits.wrapping_add(1);
        self.hits
    }

    pub(super) fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.slots.len(),
            evicted: self.evicted,
            overflowed: self.overflowed,
        }
    }
}
