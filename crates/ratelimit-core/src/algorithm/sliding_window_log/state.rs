//! The stored stamps of a log.

use std::collections::VecDeque;

use crate::algorithm::{Grain, is_oversized};

/// The stored log: the tick of each unit spent, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogState {
    /// Ticks of `grain`, oldest first. Expired stamps stay until the next write.
    pub(super) stamps: VecDeque<u64>,
    /// The common stamp of `rest` older units.
    pub(super) rest_at: u64,
    /// Units before `stamps` that are known by their number only: hits of other processes, in the local fallback.
    pub(super) rest: u16,
    /// The grain of all stamps.
    pub(super) grain: Grain,
}

impl LogState {
    /// The stamps that fit into the allocated buffer.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.stamps.capacity()
    }

    /// The number of stamps, live and expired.
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.rest) + self.stamps.len()
    }

    /// The stamp at `index`, from the oldest on.
    #[inline]
    pub(super) fn stamp(&self, index: usize) -> Option<u64> {
        match index.checked_sub(self.rest.into()) {
            Some(own) => self.stamps.get(own).copied(),
            None => Some(self.rest_at),
        }
    }

    /// The newest stamp.
    #[inline]
    pub(super) fn newest(&self) -> Option<u64> {
        let rest = (self.rest > 0).then_some(self.rest_at);
        self.stamps.back().copied().or(rest)
    }

    /// The number of stamps that `has_expired` selects; they are the oldest.
    #[inline]
    pub(super) fn expired(&self, has_expired: impl Fn(u64) -> bool) -> usize {
        if self.rest > 0 && !has_expired(self.rest_at) {
            return 0;
        }
        usize::from(self.rest) + self.stamps.partition_point(|&stamp| has_expired(stamp))
    }

    /// Drops the oldest stamps until `len` are left, and shrinks a buffer that is mostly unused.
    pub(super) fn keep_newest(&mut self, len: usize) {
        let excess = self.len().saturating_sub(len);
        let from_rest = u16::try_from(excess).unwrap_or(u16::MAX).min(self.rest);
        self.rest -= from_rest;
        let excess = excess - usize::from(from_rest);
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
