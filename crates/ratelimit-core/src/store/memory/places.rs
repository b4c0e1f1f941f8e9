//! Where the slots of a shard are, found by the hashes of their keys.

/// No place.
const EMPTY: u64 = 0;
const SMALLEST: usize = 4;

/// A table of words: half a hash, and the place of the slot whose key has it.
///
/// A word stands where its half of the hash says, or behind it where others came first. So a lookup reads
/// one line of memory as a rule, and moving a word needs no look at its slot.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// A power of two of them, or none; at most seven eighths are taken.
    words: Box<[u64]>,
    len: usize,
}

impl Places {
    /// The place of this hash that `is_it`.
    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let at = self.position(hash, is_it)?;
        Some(place_of(self.words[at]))
    }

    #[inline]
    fn position(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<usize> {
        let words = &*self.words;
        let mask = words.len().wrapping_sub(1);
        let mut at = home_of(hash) & mask;
        loop {
            let word = *words.get(at)?;
            if word == EMPTY {
                return None;
            }
            if has_hash(word, hash) && is_it(place_of(word)) {
                return Some(at);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a place that is not there yet.
    pub(super) fn insert(&mut self, hash: u64, place: u32) {
        if self.len == self.capacity() {
            self.resize((self.words.len() * 2).max(SMALLEST));
        }
        put(&mut self.words, word(hash, place));
        self.len += 1;
    }

    /// Removes a place that is there.
    pub(super) fn remove(&mut self, hash: u64, place: u32) {
        let Some(mut hole) = self.position(hash, |found| found == place) else {
            return;
        };
        let mask = self.words.len() - 1;
        let mut next = (hole + 1) & mask;
        while self.words[next] != EMPTY {
            let behind_home = next.wrapping_sub(home_of(self.words[next])) & mask;
            if behind_home >= next.wrapping_sub(hole) & mask {
                self.words[hole] = self.words[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.words[hole] = EMPTY;
        self.len -= 1;
    }

    /// Says that a slot now stands at `to`.
    pub(super) fn moved(&mut self, hash: u64, from: u32, to: u32) {
        if let Some(at) = self.position(hash, |found| found == from) {
            self.words[at] = word(hash, to);
        }
    }

    /// As many places can be kept without growing.
    pub(super) const fn capacity(&self) -> usize {
        self.words.len() / 8 * 7 + self.words.len() % 8 * 7 / 8
    }

    /// Gives back what is more than twice the room that is needed.
    pub(super) fn shrink(&mut self) {
        let mut count = SMALLEST;
        while count / 8 * 7 < self.len * 2 {
            count *= 2;
        }
        if count < self.words.len() {
            self.resize(count);
        }
    }

    fn resize(&mut self, count: usize) {
        let mut words = vec![EMPTY; count].into_boxed_slice();
        let taken = self.words.iter().filter(|word| **word != EMPTY);
        taken.for_each(|word| put(&mut words, *word));
        self.words = words;
    }
}

/// Puts a word at the first free position from its home on.
fn put(words: &mut [u64], word: u64) {
    let mask = words.len() - 1;
    let mut at = home_of(word) & mask;
    while words[at] != EMPTY {
        at = (at + 1) & mask;
    }
    words[at] = word;
}

/// The upper half of the hash, and the place after the empty one.
const fn word(hash: u64, place: u32) -> u64 {
    hash & !(u32::MAX as u64) | (place as u64 + 1)
}

#[inline]
const fn has_hash(word: u64, hash: u64) -> bool {
    (word ^ hash) >> 32 == 0
}

#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the lower half is meant")]
const fn place_of(word: u64) -> u32 {
    (word as u32).wrapping_sub(1)
}

/// Where a hash or its word would stand alone; the lower half chose the shard.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "32 bits are left")]
const fn home_of(hash: u64) -> usize {
    (hash >> 32) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Few homes, at both ends of a table, so that words stand in each other's way.
    fn hashes() -> impl Strategy<Value = u64> {
        (0..12_u64, 0..3_u64).prop_map(|(home, rest)| (home.wrapping_sub(6) << 32) | rest)
    }

    proptest! {
        #[test]
        fn it_finds_what_was_put_in_and_not_taken_out(
            steps in prop::collection::vec((hashes(), 0..5_u8), 0..400),
        ) {
            let (mut places, mut known) = (Places::default(), HashMap::new());

            for (place, (hash, step)) in (0_u32..).zip(steps) {
                let some = known.iter().next().map(|(place, hash)| (*place, *hash));
                match (step, some) {
                    (0, Some((old, old_hash))) => {
                        known.remove(&old);
                        places.remove(old_hash, old);
                    }
                    (1, Some((old, old_hash))) => {
                        known.remove(&old);
                        known.insert(place, old_hash);
                        places.moved(old_hash, old, place);
                    }
                    (2, _) => places.shrink(),
                    _ => {
                        known.insert(place, hash);
                        places.insert(hash, place);
                    }
                }
                prop_assert_eq!(places.len, known.len());
                prop_assert!(places.len <= places.capacity());
                for (place, hash) in &known {
                    prop_assert_eq!(places.find(*hash, |found| found == *place), Some(*place));
                }
                prop_assert_eq!(places.find(hash, |found| !known.contains_key(&found)), None);
            }
        }
    }
}
