//! Space-saving: the most frequent keys of a stream, in bounded memory.

use ahash::RandomState;
use hashbrown::HashTable;

use crate::key::Key;

/// The keys that were counted most, at most `capacity` of them.
///
/// A key's true count lies between `count - error` and `count`, and a key that makes up more than one
/// in `capacity` of all that was counted is always among them. Slots stand in order of their counts, and
/// those of one count are a block, so that counting moves one slot to the edge of its block and no other.
#[derive(Debug)]
pub(super) struct SpaceSaving {
    capacity: usize,
    slots: Vec<Counter>,
    blocks: Vec<CountBucket>,
    unused: Vec<usize>,
    places: HashTable<usize>,
    hasher: RandomState,
}

#[derive(Debug)]
struct Counter {
    key: Key,
    hash: u64,
    error: u64,
    block: usize,
}

/// Neighbours of one count; `first` is the leftmost.
#[derive(Clone, Copy, Debug)]
struct CountBucket {
    count: u64,
    first: usize,
}

/// A count that is at most `error` too high.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountEstimate {
    pub(super) count: u64,
    pub(super) error: u64,
}

impl SpaceSaving {
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

    /// Counts `key` once; a newcomer takes the index and the count of the least counted.
    pub(super) fn count(&mut self, key: &Key) {
        let hash = self.hasher.hash_one(key);
        let index = match self.place_of(hash, key) {
            Some(index) => index,
            None if self.slots.len() < self.capacity => self.append(hash, key),
            None => self.replace_last(hash, key),
        };
        self.increment(index);
    }

    /// What is known of `key`: of one that is not kept, no more than that it is not above the least.
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

    /// All that are kept, the most counted first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, CountEstimate)> {
        let slots = self.slots.iter().enumerate();
        slots.map(|(index, slot)| (&slot.key, self.count_at(index)))
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.place_of(self.hasher.hash_one(key), key).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Forgets all, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.blocks.clear();
        self.unused.clear();
        self.places.clear();
    }

    /// How much room each part takes.
    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 4] {
        [
            self.slots.capacity(),
            self.blocks.capacity(),
            self.unused.capacity(),
            self.places.capacity(),
        ]
    }

    /// The most that a key which is not kept can have been counted.
    fn least(&self) -> u64 {
        if self.slots.len() < self.capacity {
            return 0;
        }
        self.count_at(self.slots.len() - 1).count
    }

    fn count_at(&self, index: usize) -> CountEstimate {
        let slot = &self.slots[index];
        CountEstimate {
            count: self.blocks[slot.block].count,
            error: slot.error,
        }
    }

    fn place_of(&self, hash: u64, key: &Key) -> Option<usize> {
        let slots = &self.slots;
        let same = |index: &usize| slots[*index].key == *key;
        self.places.find(hash, same).copied()
    }

    /// Adds a slot with a count of zero, in a block of its own.
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

    fn index(&mut self, index: usize) {
        let slots = &self.slots;
        let hash_of = |index: &usize| slots[*index].hash;
        self.places.insert_unique(slots[index].hash, index, hash_of);
    }

    /// Adds one to the count of the slot at `index`.
    fn increment(&mut self, index: usize) {
        let block = self.slots[index].block;
        let CountBucket { count, first } = self.blocks[block];
        self.swap(index, first);

        let left = first.checked_sub(1).map(|left| self.slots[left].block);
        let joins = left.filter(|left| self.blocks[*left].count == count + 1);
        let right = self.slots.get(first + 1);
        let is_alone = right.is_none_or(|right| right.block != block);
        match joins {
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

    fn new_block(&mut self, block: CountBucket) -> usize {
        if let Some(free) = self.unused.pop() {
            self.blocks[free] = block;
            return free;
        }
        self.blocks.push(block);
        self.blocks.len() - 1
    }

    /// Exchanges two slots of one block.
    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        let (hash, its) = (self.slots[one].hash, self.slots[other].hash);
        // Both are found before either is changed: afterwards their places are ambiguous.
        let places = self
            .places
            .get_disjoint_mut([hash, its], |at, index| *index == [one, other][at]);
        if let [Some(first), Some(second)] = places {
            (*first, *second) = (other, one);
        }
        self.slots.swap(one, other);
    }
}
