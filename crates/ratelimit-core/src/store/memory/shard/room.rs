//! Who makes room: keys that expired, then those that have something left.

use ahash::RandomState;

use super::{Shard, Slot, Standing, Whose, hash_of};
use crate::{policy::Group, time::Timestamp};

const SLOTS_PER_SWEEP: usize = 16;
/// How many keys an insert moves to the back of the plain queue at the most: recovered ones, and
/// those that were hit since they were queued.
const MOST_MOVES: usize = 16;

impl Shard {
    /// Sees to a key whose budget was written.
    #[inline]
    pub(super) fn rewritten(
        &mut self,
        whose: Whose<'_>,
        place: u32,
        weight_before: usize,
        used_up: bool,
        now: Timestamp,
    ) {
        let slot = &mut self.slots[place as usize];
        if slot.is_touched(weight_before, used_up) {
            self.all_expired_at = self.all_expired_at.max(slot.budget.expires());
        } else {
            self.requeue_weighed(whose, place, weight_before, used_up, now);
        }
    }

    /// Moves a key to the back of the queue that it belongs to, and weighs it anew.
    #[inline(never)]
    fn requeue_weighed(
        &mut self,
        whose: Whose<'_>,
        place: u32,
        weight_before: usize,
        used_up: bool,
        now: Timestamp,
    ) {
        let weight = self.slots[place as usize].weight();
        self.weight = self.weight - weight_before + weight;
        self.requeue(place, whose.group, used_up, now);
        if self.weight > self.bound {
            // The key itself now stands at the back of its queue, so others go first.
            self.make_room(whose.hasher, 0, now);
        }
    }

    /// Puts a written key at the back of the queue that its state belongs to.
    pub(super) fn requeue(&mut self, place: u32, group: &Group, used_up: bool, now: Timestamp) {
        self.unlink(place);
        let slot = &mut self.slots[place as usize];
        let expires = slot.budget.expires();
        self.all_expired_at = self.all_expired_at.max(expires);
        slot.standing = if used_up || slot.budget.holds_slots() {
            let recovers_at = now + slot.budget.recovers_after(group, now);
            Standing::exhausted(recovers_at, expires)
        } else {
            Standing::PLAIN
        };
        self.link(place);
    }

    /// Frees `wanted` units, or as many as are over the bound; false when nobody can go.
    pub(super) fn make_room(
        &mut self,
        hasher: &RandomState,
        wanted: usize,
        now: Timestamp,
    ) -> bool {
        let mut moves = 0;
        while self.weight + wanted > self.bound {
            let fronts = [self.plain.front(), self.exhausted.front()];
            let mut either = fronts.into_iter().flatten();
            if let Some(place) = either.find(|&place| self.slot(place).has_expired(now)) {
                self.remove(hasher, place);
                continue;
            }
            let may_move = moves < MOST_MOVES;
            match fronts {
                [_, Some(place)] if may_move && self.slot(place).has_recovered(now) => {
                    moves += 1;
                    self.move_to_plain(place);
                }
                [Some(place), _] if may_move && self.slot(place).standing == Standing::TOUCHED => {
                    moves += 1;
                    self.move_to_plain(place);
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

    fn slot(&self, place: u32) -> &Slot {
        &self.slots[place as usize]
    }

    /// Puts a key at the back of the plain queue, as if it had just come.
    fn move_to_plain(&mut self, place: u32) {
        self.unlink(place);
        self.slots[place as usize].standing = Standing::PLAIN;
        self.link(place);
    }

    /// Looks at the next `count` slots in turn and drops those that expired.
    pub(super) fn drop_expired(&mut self, hasher: &RandomState, count: usize, now: Timestamp) {
        for _ in 0..count.min(self.slots.len()) {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let place = u32::try_from(self.hand).expect("a shard is bounded far below 2^32");
            if self.slot(place).has_expired(now) {
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
    pub(in super::super) fn sweep(&mut self, hasher: &RandomState, now: Timestamp) {
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
        if self.slots.len() < self.places.capacity() / 4 {
            self.places.shrink();
            self.slots.shrink();
            self.links.shrink();
        }
    }

    /// Removes a slot; the last one takes its place.
    pub(super) fn remove(&mut self, hasher: &RandomState, place: u32) {
        self.unlink(place);
        let last = u32::try_from(self.slots.len() - 1).expect("bounded far below 2^32");
        let slot = self.slots.swap_remove(place as usize);
        self.links.swap_remove(place as usize);
        self.weight -= slot.weight();
        let slot_hash = hash_of(hasher, self.names.hash(slot.name), slot.key.as_str());
        self.names.leave(slot.name);
        self.places.remove(slot_hash, place);
        if place == last {
            return;
        }
        let moved = &self.slots[place as usize];
        let moved_hash = hash_of(hasher, self.names.hash(moved.name), moved.key.as_str());
        self.places.moved(moved_hash, last, place);
        if moved.standing.is_plain() {
            self.plain.moved(&mut self.links, place);
        } else {
            self.exhausted.moved(&mut self.links, place);
        }
    }

    pub(super) fn link(&mut self, place: u32) {
        if self.slot(place).standing.is_plain() {
            self.plain.push_back(&mut self.links, place);
        } else {
            self.exhausted.push_back(&mut self.links, place);
        }
    }

    pub(super) fn unlink(&mut self, place: u32) {
        if self.slot(place).standing.is_plain() {
            self.plain.remove(&mut self.links, place);
        } else {
            self.exhausted.remove(&mut self.links, place);
        }
    }
}
