//! The slots of a shard, in pieces that are never moved.

use std::ops::{Index, IndexMut};

/// A power of two, so that a place is found without a division.
const PIECE: usize = 256;

/// A vector in pieces: it grows by one piece where a vector would double and copy itself.
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// All are full but the last; none is empty.
    pieces: Vec<Vec<T>>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Slab<T> {
        Slab { pieces: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        match self.pieces.split_last() {
            Some((last, full)) => full.len() * PIECE + last.len(),
            None => 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(super) fn push(&mut self, value: T) {
        match self.pieces.last_mut() {
            Some(last) if last.len() < PIECE => last.push(value),
            None => self.pieces.push(vec![value]),
            Some(_) => {
                let mut piece = Vec::with_capacity(PIECE);
                piece.push(value);
                self.pieces.push(piece);
            }
        }
    }

    /// Takes a value out; the last one takes its place.
    pub(super) fn swap_remove(&mut self, place: usize) -> T {
        let last = self.pieces.last_mut().and_then(Vec::pop);
        let last = last.expect("there is a value at the place");
        if self.pieces.last().is_some_and(Vec::is_empty) {
            self.pieces.pop();
        }
        if place == self.len() {
            return last;
        }
        std::mem::replace(&mut self[place], last)
    }

    /// Gives back what the list of pieces has to spare.
    pub(super) fn shrink(&mut self) {
        self.pieces.shrink_to(self.pieces.len() * 2);
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, place: usize) -> &T {
        &self.pieces[place / PIECE][place % PIECE]
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, place: usize) -> &mut T {
        &mut self.pieces[place / PIECE][place % PIECE]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_vector_does(steps in prop::collection::vec((any::<bool>(), any::<u16>()), 0..2_000)) {
            let (mut slab, mut vector) = (Slab::new(), Vec::new());

            for (removes, number) in steps {
                if removes && !vector.is_empty() {
                    let place = usize::from(number) % vector.len();
                    prop_assert_eq!(slab.swap_remove(place), vector.swap_remove(place));
                } else {
                    slab.push(number);
                    vector.push(number);
                }
                prop_assert_eq!(slab.len(), vector.len());
                prop_assert_eq!(slab.is_empty(), vector.is_empty());
            }
            for (place, number) in vector.iter().enumerate() {
                prop_assert_eq!(slab[place], *number);
            }
        }
    }
}
