//! The stored stamps of a log.

use std::collections::VecDeque;

use crate::algorithm::{Grain, is_oversized};

/// The stored log: the tick of each unit spent, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogState {
    /// Ticks of `grain`, oldest first. Expired stamps stay until the next write.
    pub(super) stamps: VecDeque<u64>,
    /// The grain of all stamps.
    pub(super) grain: Grain,
}

impl LogState {
    /// The stamps that fit into the allocated buffer.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.stamps.capacity()
    }

    /// The number of stamps that `has_expired` selects; they are the oldest.
    #[inline]
    pub(super) fn expired(&self, has_expired: impl Fn(u64) -> bool) -> usize {
        self.stamps.partition_point(|&stamp| has_expired(stamp))
    }

    /// Drops the oldest stamps until `len` are left, and shrinks a buffer that is mostly unused.
    pub(super) fn keep_newest(&mut self, len: usize) {
        let excess = self.stamps.len().saturating_sub(len);
        if excess > 0 {
            self.stamps.drain(..excess);
            self.shrink_if_oversized();
        }
    }

    /// Shrinks the buffer once it is larger than four times its content.
    #[inline]
    pub(super) fn shrink_if_oversized(&mut self) {
        if is_oversized(self.stamps.capacity(), self.stamps.len()) {
            self.shrink();
        }
    }

    /// Kept out of line: a log shrinks rarely, and its check is on the path of every write.
    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        self.stamps.shrink_to(2 * self.stamps.len());
    }
}
