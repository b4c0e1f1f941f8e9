//! Space-saving: the most frequent keys of a stream, in bounded memory.

use ahash::RandomState;
use hashbrown::HashTable;

use crate::key::Key;

/// The space-saving sketch: the most frequent keys of a stream, with at most `capacity` counters.
///
/// - The true count of a key lies between `count - error` and `count`.
/// - A key with more than one in `capacity` of all counted hits always has a counter.
/// - Counting takes constant time: it moves one counter to the edge of its block.
///
/// Invariants: `slots` is in descending order of the counts; the slots of one count are adjacent
/// and form one block, and all of them refer to it. Counting `d`:
///
/// ```text
/// slots    a  b  c  d  e          slots    a  d  c  b  e
/// counts   7  4  4  4  1    ->    counts   7  5  4  4  1
/// block    0  1  1  1  2          block    0  3  1  1  2
/// ```
#[derive(Debug)]
pub(super) struct SpaceSaving {
    /// The most counters, at least 1.
    capacity: usize,
    /// The counters, the largest count first.
    slots: Vec<Counter>,
    /// The blocks of equal counts, in no order; a slot refers to its block by index.
    blocks: Vec<CountBucket>,
    /// Indices of `blocks` that are free for reuse.
    unused: Vec<usize>,
    /// The index in `slots` of each key, by hash.
    places: HashTable<usize>,
    /// Seeded at random: clients choose keys, and must not be able to choose collisions.
    hasher: RandomState,
}

/// A counted key. Its count is that of its block.
#[derive(Debug)]
struct Counter {
    key: Key,
    /// The hash of the key, kept so that a move in the table does not hash it again.
    hash: u64,
    /// The count of the key that this one replaced: the most by which its count may be too high.
    error: u64,
    /// The index of its block in `blocks`.
    block: usize,
}

/// A block: adjacent slots with the same count.
#[derive(Clone, Copy, Debug)]
struct CountBucket {
    /// The count of all its slots.
    count: u64,
    /// The index of its leftmost slot.
    first: usize,
}

/// An estimated count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountEstimate {
    /// The upper bound of the true count.
    pub(super) count: u64,
    /// The most by which `count` may be too high.
    pub(super) error: u64,
}

impl SpaceSaving {
    /// An empty sketch; memory is allocated as keys arrive.
    pub(super) fn new(capacity: usize) -> SpaceSaving {
        SpaceSaving {
            capacity: capacity.max(1),
            slots: Vec::new(),
            blocks: Vec::new(),
            unused: Vec::new(),
            places: HashTable::new(),
            hasher: RandomState::new(),
        }
    }

    /// Counts `key` once. A new key in a full sketch replaces the key with the least count, and
    /// inherits that count as its error.
    pub(super) fn count(&mut self, key: &Key) {
        let hash = self.hasher.hash_one(key);
        let index = match self.place_of(hash, key) {
            Some(index) => index,
            None if self.slots.len() < self.capacity => self.append(hash, key),
            None => self.replace_last(hash, key),
        };
        self.increment(index);
    }

    /// The estimate of `key`. A key without a counter was counted at most as often as the least
    /// counter.
    pub(super) fn get(&self, key: &Key) -> CountEstimate {
        let hash = self.hasher.hash_one(key);
        match self.place_of(hash, key) {
            Some(index) => self.count_at(index),
            None => CountEstimate {
                count: self.least(),
                error: self.least(),
            },
        }
    }

    /// The counted keys, the largest count first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, CountEstimate)> {
        let slots = self.slots.iter().enumerate();
        slots.map(|(index, slot)| (&slot.key, self.count_at(index)))
    }

    /// Whether `key` has a counter.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.place_of(self.hasher.hash_one(key), key).is_some()
    }

    /// Whether no key was counted.
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Removes all counters and keeps the memory for the next window.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.blocks.clear();
        self.unused.clear();
        self.places.clear();
    }

    /// The allocated capacity of each part.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 4] {
        [
            self.slots.capacity(),
            self.blocks.capacity(),
            self.unused.capacity(),
            self.places.capacity(),
        ]
    }

    /// The most that a key without a counter can have been counted: 0 until the sketch is full.
    fn least(&self) -> u64 {
        if self.slots.len() < self.capacity {
            return 0;
        }
        self.count_at(self.slots.len() - 1).count
    }

    /// The estimate of the slot at `index`.
    fn count_at(&self, index: usize) -> CountEstimate {
        let slot = &self.slots[index];
        CountEstimate {
            count: self.blocks[slot.block].count,
            error: slot.error,
        }
    }

    /// The index of the slot of `key`.
    fn place_of(&self, hash: u64, key: &Key) -> Option<usize> {
        let slots = &self.slots;
        let same = |index: &usize| slots[*index].key == *key;
        self.places.find(hash, same).copied()
    }

    /// Adds a slot with a count of 0 at the end, in a block of its own. `increment` follows and
    /// merges it.
    ///
    /// A count of 0 is below all others, so the order stays intact.
    fn append(&mut self, hash: u64, key: &Key) -> usize {
        let index = self.slots.len();
        let block = self.new_block(CountBucket {
            count: 0,
            first: index,
        });
        self.slots.push(Counter {
            key: key.clone(),
            hash,
            error: 0,
            block,
        });
        self.index(index);
        index
    }

    /// Replaces the key of the last slot, which has the least count. The slot keeps its block and
    /// so its count.
    ///
    /// The inherited count is the error of the new key: it may have been counted up to that often
    /// before, in a slot that was replaced since.
    fn replace_last(&mut self, hash: u64, key: &Key) -> usize {
        let last = self.slots.len() - 1;
        let old = self.slots[last].hash;
        if let Ok(found) = self.places.find_entry(old, |&index| index == last) {
            found.remove();
        }
        let error = self.count_at(last).count;
        let slot = &mut self.slots[last];
        slot.key.clone_from(key);
        slot.hash = hash;
        slot.error = error;
        self.index(last);
        last
    }

    /// Adds the slot at `index` to the hash table.
    fn index(&mut self, index: usize) {
        let slots = &self.slots;
        let hash_of = |index: &usize| slots[*index].hash;
        self.places.insert_unique(slots[index].hash, index, hash_of);
    }

    /// Adds 1 to the count of the slot at `index`.
    ///
    /// The slot moves to the left edge of its block, where its neighbour has a larger count. Then
    /// it either joins the neighbour's block, gets a new block, or, alone in its block, takes the
    /// block along.
    fn increment(&mut self, index: usize) {
        let block = self.slots[index].block;
        let CountBucket { count, first } = self.blocks[block];
        // Slots of one block are interchangeable, so the slot can move to the edge without breaking
        // the order.
        self.swap(index, first);

        // The order stays intact: every slot further left has at least the new count.
        let left = first.checked_sub(1).map(|left| self.slots[left].block);
        // At the edge the neighbour has a larger count. The slot joins its block if that is the new
        // count.
        let joins = left.filter(|left| self.blocks[*left].count == count + 1);
        let right = self.slots.get(first + 1);
        let is_alone = right.is_none_or(|right| right.block != block);
        match joins {
            // A block of one slot takes the new count itself; no slot refers to it but this one.
            None if is_alone => self.blocks[block].count += 1,
            Some(left) if is_alone => {
                self.slots[first].block = left;
                self.unused.push(block);
            }
            joins => {
                let count = count + 1;
                let above = joins.unwrap_or_else(|| self.new_block(CountBucket { count, first }));
                self.slots[first].block = above;
                self.blocks[block].first += 1;
            }
        }
    }

    /// Stores a block in a free place and returns its index.
    fn new_block(&mut self, block: CountBucket) -> usize {
        if let Some(free) = self.unused.pop() {
            self.blocks[free] = block;
            return free;
        }
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    /// Exchanges two slots of one block, and their indices in the hash table.
    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        let (hash, its) = (self.slots[one].hash, self.slots[other].hash);
        // Both table entries are found before either is changed: afterwards each index would match
        // twice.
        let places = self
            .places
            .get_disjoint_mut([hash, its], |at, index| *index == [one, other][at]);
        if let [Some(first), Some(second)] = places {
            (*first, *second) = (other, one);
        }
        self.slots.swap(one, other);
    }
}
