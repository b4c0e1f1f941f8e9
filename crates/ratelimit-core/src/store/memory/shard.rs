//! One part of the store: a table of keys, and two queues that say who makes room.

use std::sync::Arc;

use ahash::RandomState;

use hashbrown::HashTable;

use super::{
    MemoryStats,
    queue::{Linked, Links, Queue},
};
use crate::{
    decision::Decision,
    key::Key,
    policy::{Budget, Policy},
    store::contract::Hit,
    time::Timestamp,
};

/// As many stamps of a log take the room of one key.
const STAMPS_WORTH_A_KEY: usize = 8;
const SLOTS_PER_INSERT: usize = 2;
const SLOTS_PER_SWEEP: usize = 64;
/// How many recovered keys an insert takes out of the exhausted queue at the most.
const MOST_RECOVERIES: usize = 16;

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

    pub(super) fn hit(
        &mut self,
        hasher: &RandomState,
        hash: u64,
        hit: Hit<'_>,
        now: Timestamp,
    ) -> Decision {
        match self.find(hash, hit.policy, hit.key) {
            Some(place) => self.hit_known(hasher, place, hit, now),
            None => self.hit_newcomer(hasher, hash, hit, now),
        }
    }

    fn hit_known(
        &mut self,
        hasher: &RandomState,
        place: u32,
        hit: Hit<'_>,
        now: Timestamp,
    ) -> Decision {
        let slot = &mut self.slots[place as usize];
        let weight_before = slot.weight();
        let hitting = slot.budget.hit(hit.policy, now, hit.cost);
        if hitting.wrote {
            self.weight = self.weight - weight_before + slot.weight();
            self.requeue(place, hit.policy, &hitting.decision, now);
            if self.weight > self.bound {
                // The key itself now stands at the back of its queue, so others go first.
                self.make_room(hasher, 0, now);
            }
        }
        hitting.decision
    }

    fn hit_newcomer(
        &mut self,
        hasher: &RandomState,
        hash: u64,
        hit: Hit<'_>,
        now: Timestamp,
    ) -> Decision {
        let mut budget = Budget::default();
        let hitting = budget.hit(hit.policy, now, hit.cost);
        if !hitting.wrote {
            return hitting.decision;
        }
        self.drop_expired(hasher, SLOTS_PER_INSERT, now);
        if !self.make_room(hasher, weight(&budget), now) {
            return self.hit_overflow(hit, now);
        }
        self.weight += weight(&budget);
        let place = u32::try_from(self.slots.len()).expect("a shard is bounded far below 2^32");
        self.slots.push(Slot {
            key: hit.key.clone(),
            policy: Arc::clone(hit.policy.shared_name()),
            budget,
            links: Links::LOOSE,
            exhausted_until: Timestamp::default(),
        });
        let slots = &self.slots;
        self.table.insert_unique(hash, place, |&place| {
            let slot = &slots[place as usize];
            hash_of(hasher, &slot.policy, &slot.key)
        });
        self.plain.push_back(&mut self.slots, place);
        self.requeue(place, hit.policy, &hitting.decision, now);
        hitting.decision
    }

    fn hit_overflow(&mut self, hit: Hit<'_>, now: Timestamp) -> Decision {
        self.overflowed += 1;
        let name = hit.policy.shared_name();
        let known = self.overflow.iter().position(|(policy, _)| policy == name);
        let place = known.unwrap_or_else(|| {
            self.overflow.push((Arc::clone(name), Budget::default()));
            self.overflow.len() - 1
        });
        self.overflow[place]
            .1
            .hit(hit.policy, now, hit.cost)
            .decision
    }

    /// Puts a written key at the back of the queue that its state belongs to.
    fn requeue(&mut self, place: u32, policy: &Policy, decision: &Decision, now: Timestamp) {
        let used_up = decision.limits().any(|limit| limit.remaining == 0);
        self.unlink(place);
        let slot = &mut self.slots[place as usize];
        self.all_expired_at = self.all_expired_at.max(slot.budget.expires());
        slot.exhausted_until = if used_up {
            now + slot.budget.recovers_after(policy, now)
        } else {
            Timestamp::default()
        };
        self.link(place);
    }

    /// Frees `wanted` units, or as many as are over the bound; false when nobody can go.
    fn make_room(&mut self, hasher: &RandomState, wanted: usize, now: Timestamp) -> bool {
        let mut recoveries = 0;
        while self.weight + wanted > self.bound {
            let fronts = [self.plain.front(), self.exhausted.front()];
            let mut either = fronts.into_iter().flatten();
            if let Some(place) = either.find(|&place| self.expired(place, now)) {
                self.remove(hasher, place);
                continue;
            }
            match fronts {
                [_, Some(place)] if self.recovered(place, now) && recoveries < MOST_RECOVERIES => {
                    recoveries += 1;
                    self.unlink(place);
                    self.slots[place as usize].exhausted_until = Timestamp::default();
                    self.link(place);
                }
                [Some(place), _] => {
                    self.evicted += 1;
                    self.remove(hasher, place);
                }
                [None, _] => return false,
            }
        }
        true
    }

    fn expired(&self, place: u32, now: Timestamp) -> bool {
        self.slots[place as usize].budget.expires() <= now
    }

    fn recovered(&self, place: u32, now: Timestamp) -> bool {
        self.slots[place as usize].exhausted_until <= now
    }

    /// Looks at the next `count` slots in turn and drops those that expired.
    fn drop_expired(&mut self, hasher: &RandomState, count: usize, now: Timestamp) {
        for _ in 0..count.min(self.slots.len()) {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let place = u32::try_from(self.hand).expect("a shard is bounded far below 2^32");
            if self.expired(place, now) {
                self.remove(hasher, place);
            } else {
                self.hand += 1;
            }
            if self.slots.is_empty() {
                return;
            }
        }
    }

    /// Drops expired slots, and gives memory back when most of it is unused.
    pub(super) fn sweep(&mut self, hasher: &RandomState, now: Timestamp) {
        self.overflow.retain(|(_, budget)| budget.expires() > now);
        if self.all_expired_at <= now {
            let (hits, evicted, overflowed) = (self.hits, self.evicted, self.overflowed);
            *self = Shard {
                hits,
                evicted,
                overflowed,
                overflow: std::mem::take(&mut self.overflow),
                ..Shard::new(self.bound)
            };
            return;
        }
        self.drop_expired(hasher, SLOTS_PER_SWEEP, now);
        if self.slots.len() < self.slots.capacity() / 4 {
            let slots = &self.slots;
            self.table.shrink_to(slots.len() * 2, |&place| {
                let slot = &slots[place as usize];
                hash_of(hasher, &slot.policy, &slot.key)
            });
            self.slots.shrink_to(self.slots.len() * 2);
        }
    }

    pub(super) fn forget(&mut self, hasher: &RandomState, hash: u64, policy: &Policy, key: &Key) {
        if let Some(place) = self.find(hash, policy, key) {
            self.remove(hasher, place);
        }
    }

    fn find(&self, hash: u64, policy: &Policy, key: &Key) -> Option<u32> {
        let same = |&place: &u32| {
            let slot = &self.slots[place as usize];
            slot.key == *key && *slot.policy == *policy.name()
        };
        self.table.find(hash, same).copied()
    }

    /// Removes a slot; the last one takes its place.
    fn remove(&mut self, hasher: &RandomState, place: u32) {
        self.unlink(place);
        let last = u32::try_from(self.slots.len() - 1).expect("bounded far below 2^32");
        let slot = self.slots.swap_remove(place as usize);
        self.weight -= slot.weight();
        let slot_hash = hash_of(hasher, &slot.policy, &slot.key);
        if let Ok(entry) = self.table.find_entry(slot_hash, |&found| found == place) {
            entry.remove();
        }
        if place == last {
            return;
        }
        let moved = &self.slots[place as usize];
        let moved_hash = hash_of(hasher, &moved.policy, &moved.key);
        if let Some(found) = self.table.find_mut(moved_hash, |&found| found == last) {
            *found = place;
        }
        if moved.is_plain() {
            self.plain.moved(&mut self.slots, place);
        } else {
            self.exhausted.moved(&mut self.slots, place);
        }
    }

    fn link(&mut self, place: u32) {
        if self.slots[place as usize].is_plain() {
            self.plain.push_back(&mut self.slots, place);
        } else {
            self.exhausted.push_back(&mut self.slots, place);
        }
    }

    fn unlink(&mut self, place: u32) {
        if self.slots[place as usize].is_plain() {
            self.plain.remove(&mut self.slots, place);
        } else {
            self.exhausted.remove(&mut self.slots, place);
        }
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
