//! Which entries go: expired ones, then those with budget left, then the first to recover.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::store::memory::shard::{HitKeys, Shard};
use crate::{policy::MOST_LIMITS, time::Timestamp};

/// How many entries one eviction or one sweep looks at.
const MAX_STEPS: usize = 16;

impl Shard {
    /// Evicts until so many keys and bytes more are within the bounds, or only the hit's own keys are
    /// left.
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

    /// Whether exhausted entries are more than three quarters, and none of them has recovered.
    fn is_crowded(&self, now: Timestamp) -> bool {
        let has_recovered = |top: &Reverse<(Timestamp, u64)>| top.0.0 <= now;
        self.exhausted_from < self.entries.len() / 4
            && !self.recoveries.peek().is_some_and(has_recovered)
    }

    /// The CLOCK algorithm over the entries with budget left: one that was hit since the hand last
    /// passed is passed over once. Without such an entry, the exhausted one that recovers first.
    fn victim(&mut self, own: HitKeys<'_>) -> Option<usize> {
        self.take_recovered(own.now);
        let mut candidate = None;
        for _ in 0..self.exhausted_from.min(MAX_STEPS + own.keys.len()) {
            if self.clock_hand >= self.exhausted_from {
                self.clock_hand = 0;
            }
            let index = self.clock_hand;
            self.clock_hand += 1;
            if own.has(self.entries[index].hash) {
                continue;
            }
            candidate = Some(index);
            if !std::mem::take(&mut self.entries[index].was_hit) {
                break;
            }
        }
        candidate.or_else(|| self.first_to_recover(own))
    }

    fn first_to_recover(&mut self, own: HitKeys<'_>) -> Option<usize> {
        let mut passed_over: SmallVec<[_; MOST_LIMITS]> = SmallVec::new();
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
        self.recoveries.extend(passed_over);
        found
    }

    /// Moves entries whose recovery time is past to those with budget left.
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

    /// Looks at the next `count` entries in turn and drops those that expired.
    pub(super) fn drop_expired(&mut self, count: usize, now: Timestamp) {
        for _ in 0..count.min(self.entries.len()) {
            if self.sweep_hand >= self.entries.len() {
                self.sweep_hand = 0;
            }
            match self.entries.get(self.sweep_hand) {
                Some(entry) if entry.has_expired(now) => self.remove(self.sweep_hand),
                Some(_) => self.sweep_hand += 1,
                None => return,
            }
        }
    }

    /// Drops expired entries, and gives memory back when most of it is unused.
    pub(in crate::store::memory) fn sweep(&mut self, now: Timestamp) {
        if self.all_expired_at <= now {
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
    /// Whether a key of the hit has this hash; another key that has it too is not evicted either.
    fn has(&self, hash: u64) -> bool {
        self.keys.iter().any(|id| id.hash == hash)
    }
}
