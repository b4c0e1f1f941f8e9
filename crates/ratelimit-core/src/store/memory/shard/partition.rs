//! The entries of a shard in two parts, and the table and the heap that point into them.

use std::cmp::Reverse;

use crate::store::memory::shard::{Entry, Shard};
use crate::{policy::LimitGroup, time::Timestamp};

/// So many stale pairs are kept in the heap of a shard that has no exhausted entry.
const STALE_PAIRS: usize = 64;

impl Shard {
    /// Adds an entry with budget left, and answers its index.
    pub(super) fn push(&mut self, entry: Entry) -> usize {
        let last = self.entries.len();
        if last == self.entries.capacity() {
            // Doubling would leave up to half of the shard's memory unused.
            self.entries.reserve_exact(last / 16 + 4);
        }
        let hash = entry.hash;
        self.entries.push(entry);
        let entries = &self.entries;
        self.table
            .insert_unique(hash, index_u32(last), |&index| entries[index as usize].hash);
        let index = self.exhausted_from;
        self.swap(last, index);
        self.exhausted_from += 1;
        index
    }

    pub(super) fn remove(&mut self, index: usize) {
        let mut index = index;
        if index < self.exhausted_from {
            self.exhausted_from -= 1;
            self.swap(index, self.exhausted_from);
            index = self.exhausted_from;
        }
        let last = self.entries.len() - 1;
        self.swap(index, last);
        let Some(entry) = self.entries.pop() else {
            return;
        };
        self.bytes -= entry.bytes();
        self.names.release(entry.name);
        let last = index_u32(last);
        if let Ok(found) = self.table.find_entry(entry.hash, |&index| index == last) {
            found.remove();
        }
    }

    /// Puts an entry into the part that it belongs to now.
    #[inline(never)]
    pub(super) fn classify(
        &mut self,
        index: usize,
        group: &LimitGroup,
        may_be_exhausted: bool,
        now: Timestamp,
    ) {
        let budget = &self.entries[index].budget;
        let recovers_at = if may_be_exhausted {
            (now + budget.time_to_recover(group, now)).min(budget.expires())
        } else {
            now
        };
        if recovers_at > now {
            self.set_exhausted(index, recovers_at);
        } else if index >= self.exhausted_from {
            self.set_recovered(index);
        }
    }

    fn set_exhausted(&mut self, index: usize, recovers_at: Timestamp) {
        let entry = &mut self.entries[index];
        if entry.recovers_at == recovers_at {
            return;
        }
        entry.recovers_at = recovers_at;
        let pair = Reverse((recovers_at, entry.hash));
        if index < self.exhausted_from {
            self.exhausted_from -= 1;
            self.swap(index, self.exhausted_from);
        }
        let exhausted = self.entries.len() - self.exhausted_from;
        if self.recoveries.len() >= exhausted * 3 / 2 + STALE_PAIRS {
            let pairs = self.entries[self.exhausted_from..].iter();
            let pairs = pairs.map(|entry| Reverse((entry.recovers_at, entry.hash)));
            // In place: a hit on a known key allocates nothing.
            self.recoveries.clear();
            self.recoveries.extend(pairs);
            return;
        }
        if self.recoveries.len() == self.recoveries.capacity() {
            self.recoveries.reserve_exact(exhausted / 16 + STALE_PAIRS);
        }
        self.recoveries.push(pair);
    }

    pub(super) fn set_recovered(&mut self, index: usize) {
        self.entries[index].recovers_at = Timestamp::default();
        self.swap(index, self.exhausted_from);
        self.exhausted_from += 1;
    }

    /// The exhausted entry that a pair of the heap points to, unless the pair is stale.
    pub(super) fn exhausted_at(&self, recovers_at: Timestamp, hash: u64) -> Option<usize> {
        let found = self.table.find(hash, |&index| {
            let entry = &self.entries[index as usize];
            entry.hash == hash && entry.recovers_at == recovers_at
        });
        found.map(|&index| index as usize)
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        let hashes = [self.entries[one].hash, self.entries[other].hash];
        let indices = [index_u32(one), index_u32(other)];
        let places = self
            .table
            .get_disjoint_mut(hashes, |which, &index| index == indices[which]);
        if let [Some(first), Some(second)] = places {
            std::mem::swap(first, second);
        }
        self.entries.swap(one, other);
    }

    /// Gives memory back when most of it is unused.
    pub(super) fn shrink(&mut self) {
        let count = self.entries.len();
        if count < self.table.capacity() / 4 {
            let entries = &self.entries;
            self.table
                .shrink_to(count * 2, |&index| entries[index as usize].hash);
        }
        if count < self.entries.capacity() / 2 {
            self.entries.shrink_to(count + count / 16);
        }
        if self.recoveries.len() * 4 + 2 * STALE_PAIRS < self.recoveries.capacity() {
            self.recoveries.shrink_to(self.recoveries.len() * 2);
        }
    }
}

fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("a shard is bounded far below 2^32")
}
