//! One part of the store: a table of keys, and two queues that say who makes room.

mod room;

use std::{
    hash::{BuildHasher as _, Hasher as _},
    sync::Arc,
};

use ahash::RandomState;

use super::{
    MemoryStats,
    names::Names,
    places::Places,
    queue::{Links, Queue},
    slab::Slab,
    slot::{Slot, Standing, weight},
};
use crate::{
    algorithm::{Fit, Spend},
    decision::{Charge, Decision, LimitDecision},
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
    /// The key's text, read once.
    pub(super) text: &'a str,
}

const SLOTS_PER_INSERT: usize = 2;

#[derive(Debug)]
pub(super) struct Shard {
    /// Places in `slots`, found by hash.
    places: Places,
    slots: Slab<Slot>,
    /// Where each slot stands in its queue: kept apart, because a hit does not need it.
    links: Slab<Links>,
    names: Names,
    /// Keys with something left: they make room, and those that were hit meanwhile are passed over
    /// once.
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

/// Where a hit is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seat {
    /// On the budget of its key.
    Own,
    /// On the one of all newcomers that found no room.
    Shared,
}

/// The hash of a key under a name that has the hash `name`.
#[inline]
pub(super) fn hash_of(hasher: &RandomState, name: u64, key: &str) -> u64 {
    let mut hashing = hasher.build_hasher();
    hashing.write(key.as_bytes());
    hashing.finish() ^ name
}

impl Shard {
    pub(super) fn new(bound: usize) -> Shard {
        Shard {
            places: Places::default(),
            slots: Slab::new(),
            links: Slab::new(),
            names: Names::default(),
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

    /// Decides a hit of the most common kind on a known key.
    #[inline(always)]
    pub(super) fn charge_at_once(
        &mut self,
        group: &Group,
        place: u32,
        asked: Asked,
        now: Timestamp,
    ) -> Option<Charge> {
        let slot = &mut self.slots[place as usize];
        let charge = slot.charge_at_once(group, asked, now)?;
        self.all_expired_at = self.all_expired_at.max(slot.budget.expires());
        Some(charge)
    }

    #[inline]
    pub(super) fn hit_known(
        &mut self,
        whose: Whose<'_>,
        place: u32,
        asked: Asked,
        decision: &mut Decision,
    ) {
        let slot = &mut self.slots[place as usize];
        let weight_before = slot.weight();
        if slot.budget.hit(whose.group, asked, decision) {
            let used_up = decision.is_used_up();
            self.rewritten(whose, place, weight_before, used_up, decision.now);
        }
    }

    #[inline(never)]
    pub(super) fn hit_newcomer(&mut self, whose: Whose<'_>, asked: Asked, decision: &mut Decision) {
        let now = decision.now;
        let mut budget = Budget::default();
        if !budget.hit(whose.group, asked, decision) {
            return;
        }
        self.drop_expired(whose.hasher, SLOTS_PER_INSERT, now);
        if self.make_room(whose.hasher, weight(&budget), now) {
            self.insert(whose, budget, decision.is_used_up(), now);
        } else {
            self.overflowed += 1;
            *decision = Decision::blank(now);
            self.overflow(whose).hit(whose.group, asked, decision);
        }
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
            name: self.names.enter(whose.group),
            standing: Standing::PLAIN,
            budget,
        });
        self.links.push(Links::LOOSE);
        self.places.insert(whose.hash, place);
        self.plain.push_back(&mut self.links, place);
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

    /// Forgets what was spent.
    pub(super) fn reset(&mut self, whose: Whose<'_>, now: Timestamp) {
        if let Some(place) = self.find(whose) {
            self.slots[place as usize].budget.reset(now);
            self.requeue(place, whose.group, false, now);
        }
    }

    #[inline]
    pub(super) fn find(&self, whose: Whose<'_>) -> Option<u32> {
        let same = |place: u32| {
            let slot = &self.slots[place as usize];
            self.names.is_of(slot.name, whose.group) && slot.key.as_str() == whose.text
        };
        self.places.find(whose.hash, same)
    }

    #[inline]
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
