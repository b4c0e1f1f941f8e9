//! Eviction and expiry: expired entries first, then entries with budget left, then the first to recover.
//!
//! Every operation here is bounded by a constant number of entries, except that evicting for a large entry repeats
//! until it fits. A hit therefore never walks the whole shard.
//!
//! | when | entries examined | effect |
//! |---|---|---|
//! | insert | 2 | drops expired entries, then evicts if the shard is full |
//! | eviction | up to 16 recovered, up to 16 by the clock hand | removes one entry |
//! | sweep, every 64th hit | up to 16 recovered, 16 for expiry | drops expired entries, frees unused memory |
//!
//! Exhausted keys are protected because an evicted key starts with a full budget: a client could otherwise escape its
//! limit by making the store evict its key.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::store::memory::shard::{HitKeys, Shard};
use crate::{policy::MAX_LIMITS, time::Timestamp};

/// Maximum number of entries that one eviction or one sweep examines.
///
/// When 16 entries in a row have their reference bit set, the last of them is evicted: the choice gets worse, the hit
/// does not get slower.
const MAX_STEPS: usize = 16;

impl Shard {
    /// Evicts entries until `keys` more entries with `bytes` more bytes fit into the bounds.
    ///
    /// It stops early when only the hit's own keys are left: a new key is never rejected, so the shard exceeds its
    /// bounds instead. It counts evictions by kind; an expired victim counts nowhere.
    pub(super) fn make_room(&mut self, keys: usize, bytes: usize, own: HitKeys<'_>) {
        while self.entries.len() + keys > self.bounds.keys
            || self.bytes.saturating_add(bytes) > self.bounds.bytes
        {
            let Some(index) = self.victim(own) else {
                return;
            };
            let entry = &self.entries[index];
            if entry.recovers_at > own.now {
                self.evictions.all += 1;
                self.evictions.exhausted += 1;
            } else if !entry.has_expired(own.now) {
                self.evictions.all += 1;
                self.evictions.crowded_out += u64::from(self.is_crowded(own.now));
            }
            self.remove(index);
        }
    }

    /// Whether more than three quarters of the entries are exhausted, and none of them has recovered.
    ///
    /// Then the remaining entries evict each other, and keys that spend slowly lose their budget before they reach
    /// their limit.
    fn is_crowded(&self, now: Timestamp) -> bool {
        let has_recovered = |top: &Reverse<(Timestamp, u64)>| top.0.0 <= now;
        self.exhausted_from < self.entries.len() / 4
            && !self.recoveries.peek().is_some_and(has_recovered)
    }

    /// Chooses the entry to evict, or `None` if the shard has only the hit's own keys.
    ///
    /// 1. Entries whose recovery time is past count as entries with budget again.
    /// 2. The CLOCK algorithm runs over the entries with budget: an entry that was hit since the hand last passed
    ///    loses its reference bit and is passed over once.
    /// 3. Without such an entry, the exhausted entry that recovers first is the victim: the least is lost by it.
    ///
    /// Keys that are hit once are evicted before keys that return, because a new entry has no reference bit.
    fn victim(&mut self, own: HitKeys<'_>) -> Option<usize> {
        self.take_recovered(own.now);
        let mut candidate = None;
        // The hit's own keys are passed over, so they must not use up the steps.
        for _ in 0..self.exhausted_from.min(MAX_STEPS + own.keys.len()) {
            if self.clock_hand >= self.exhausted_from {
                self.clock_hand = 0;
            }
            let index = self.clock_hand;
            self.clock_hand += 1;
            if own.has(self.entries[index].hash) {
                continue;
            }
            // Taken if the steps run out before an entry without its reference bit is found.
            candidate = Some(index);
            if !std::mem::take(&mut self.entries[index].was_hit) {
                break;
            }
        }
        candidate.or_else(|| self.first_to_recover(own))
    }

    /// Pops the exhausted entry that recovers first. Stale pairs are dropped, and the hit's own pairs are put back.
    ///
    /// The caller removes the entry, so its pair must not stay. Each stale pair is popped once, so the cost over many
    /// evictions is that of a pop for each push.
    fn first_to_recover(&mut self, own: HitKeys<'_>) -> Option<usize> {
        let mut passed_over: SmallVec<[_; MAX_LIMITS]> = SmallVec::new();
        let mut found = None;
        while let Some(Reverse((recovers_at, hash))) = self.recoveries.pop() {
            let Some(index) = self.exhausted_at(recovers_at, hash) else {
                continue;
            };
            if own.has(hash) {
                passed_over.push(Reverse((recovers_at, hash)));
                continue;
            }
            found = Some(index);
            break;
        }
        // The pairs of the call's own keys: at most eight for a hit, and as many for each member of a joint hit.
        self.recoveries.extend(passed_over);
        found
    }

    /// Moves up to 16 entries whose recovery time is past to the part with budget.
    ///
    /// A recovered key that is not hit again would otherwise stay protected from eviction.
    fn take_recovered(&mut self, now: Timestamp) {
        for _ in 0..MAX_STEPS {
            match self.recoveries.peek() {
                Some(&Reverse((recovers_at, hash))) if recovers_at <= now => {
                    self.recoveries.pop();
                    if let Some(index) = self.exhausted_at(recovers_at, hash) {
                        self.set_recovered(index);
                    }
                }
                _ => return,
            }
        }
    }

    /// Examines the next `count` entries from the sweep hand on, and drops the expired ones.
    ///
    /// The hand wraps around, so every entry is examined in turn. An expired entry that is hit before is simply written
    /// again: an expired budget counts as empty.
    pub(super) fn drop_expired(&mut self, count: usize, now: Timestamp) {
        for _ in 0..count.min(self.entries.len()) {
            if self.sweep_hand >= self.entries.len() {
                self.sweep_hand = 0;
            }
            match self.entries.get(self.sweep_hand) {
                // Removal swaps another entry to this index, so the hand stays and examines that one next.
                Some(entry) if entry.has_expired(now) => self.remove(self.sweep_hand),
                Some(_) => self.sweep_hand += 1,
                None => return,
            }
        }
    }

    /// Drops up to 16 expired entries, and frees memory when most of it is unused.
    ///
    /// When every entry has expired, it replaces the shard by an empty one and frees all its memory at once.
    pub(in crate::store::memory) fn sweep(&mut self, now: Timestamp) {
        if self.all_expired_at <= now {
            // `hits` keeps the turn of the sweeps, and `evictions` are totals.
            *self = Shard {
                hits: self.hits,
                evictions: self.evictions,
                ..Shard::new(self.bounds)
            };
            return;
        }
        self.take_recovered(now);
        self.drop_expired(MAX_STEPS, now);
        self.shrink();
    }
}

impl HitKeys<'_> {
    /// Whether a key of the hit has this hash.
    ///
    /// Another key with the same hash of 64 bits is not evicted either, which costs nothing but a worse choice.
    fn has(&self, hash: u64) -> bool {
        self.keys.iter().any(|id| id.hash == hash)
    }
}
