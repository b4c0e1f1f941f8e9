//! The two parts of a shard's entries, and the table and the heap that point into them.
//!
//! Invariants that every method here keeps:
//!
//! - `entries[..exhausted_from]` have budget, with `recovers_at` at the epoch.
//! - `entries[exhausted_from..]` are exhausted, with `recovers_at` later than the epoch and a pair in the heap.
//! - The table contains the index of every entry exactly once.
//!
//! Every change of a part is a swap with the entry at the border, so no other entry moves:
//!
//! ```text
//! [ A B C | D E ]    B becomes exhausted: B and C swap, then the border moves left
//! [ A C | B D E ]
//! ```
//!
//! A method that moves entries invalidates indices that its caller holds, except where it returns a new one.

use std::cmp::Reverse;

use crate::store::memory::shard::{Entry, Shard};
use crate::{policy::LimitGroup, time::Timestamp};

/// Stale pairs that the heap may contain in addition to half the number of exhausted entries.
const STALE_PAIRS: usize = 64;

impl Shard {
    /// Adds an entry to the part with budget, and returns its index.
    ///
    /// The first exhausted entry moves to the end to make room at the border. The caller has made room within the bounds
    /// and added the bytes; an entry that is exhausted is classified afterwards.
    pub(super) fn push(&mut self, entry: Entry) -> usize {
        let last = self.entries.len();
        if last == self.entries.capacity() {
            // Doubling would leave up to half of the memory unused. Growth by a sixteenth keeps a key within 110 bytes,
            // and each entry is moved 16 times on average while a shard grows.
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

    /// Removes an entry from either part: it swaps the entry to the border, then to the end.
    ///
    /// It subtracts the bytes and releases the interned name. Its pair in the heap becomes stale. It costs two swaps at
    /// most, whatever the size of the shard.
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
        // Its pair stays in the heap: `exhausted_at` finds no entry for it.
        self.bytes -= entry.bytes();
        self.names.release(entry.name);
        let last = index_u32(last);
        if let Ok(found) = self.table.find_entry(entry.hash, |&index| index == last) {
            found.remove();
        }
    }

    /// Moves an entry to the part that it belongs to after a write.
    ///
    /// The recovery time is when every limit of `group` has something left and no slot is held, but no later than the
    /// expiry of the budget. With `may_be_exhausted` false it is not computed.
    ///
    /// | entry was | recovers later than `now` | recovers by `now` |
    /// |---|---|---|
    /// | with budget | moves to the exhausted part | stays |
    /// | exhausted | stays, with the new recovery time | moves to the part with budget |
    ///
    /// Out of line: a hit that leaves budget on an entry with budget does not need it.
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

    /// Moves an entry to the exhausted part, or updates its recovery time there.
    ///
    /// A new recovery time pushes a pair and leaves the old pair as stale. When stale pairs are a third of the heap, the
    /// heap is rebuilt from the entries, which is O(n) but happens after n / 2 changes.
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
            // Rebuilt in place, without a new buffer: a hit on a known key allocates nothing.
            self.recoveries.clear();
            self.recoveries.extend(pairs);
            return;
        }
        if self.recoveries.len() == self.recoveries.capacity() {
            self.recoveries.reserve_exact(exhausted / 16 + STALE_PAIRS);
        }
        self.recoveries.push(pair);
    }

    /// Moves an exhausted entry to the part with budget. Its pair in the heap becomes stale, unless the caller popped it.
    pub(super) fn set_recovered(&mut self, index: usize) {
        self.entries[index].recovers_at = Timestamp::default();
        self.swap(index, self.exhausted_from);
        self.exhausted_from += 1;
    }

    /// Returns the index of the exhausted entry that a pair of the heap refers to, or `None` for a stale pair.
    ///
    /// A pair is stale when its entry was removed, has recovered, or has another recovery time. The recovery time
    /// identifies the pair: an entry with budget has the epoch, which no pair has.
    pub(super) fn exhausted_at(&self, recovers_at: Timestamp, hash: u64) -> Option<usize> {
        let found = self.table.find(hash, |&index| {
            let entry = &self.entries[index as usize];
            entry.hash == hash && entry.recovers_at == recovers_at
        });
        found.map(|&index| index as usize)
    }

    /// Swaps two entries and their indices in the table.
    ///
    /// The heap refers to entries by hash and not by index, so it needs no change.
    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        let hashes = [self.entries[one].hash, self.entries[other].hash];
        let indices = [index_u32(one), index_u32(other)];
        // Found by index and not by key, because two entries may have one hash.
        let places = self
            .table
            .get_disjoint_mut(hashes, |which, &index| index == indices[which]);
        if let [Some(first), Some(second)] = places {
            std::mem::swap(first, second);
        }
        self.entries.swap(one, other);
    }

    /// Shrinks the table, the entries and the heap, each when most of it is unused.
    ///
    /// The thresholds are below those of growth, so that a shard around one size does not grow and shrink in turns: a
    /// quarter for the table, which doubles; half for the entries, which grow by a sixteenth; a quarter for the heap.
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

/// An index as it is stored in the table; 4 bytes in place of 8 save 5 to 9 bytes for each key, by the load.
fn index_u32(index: usize) -> u32 {
    u32::try_from(index).expect("a shard is bounded far below 2^32")
}
