//! The stored slots of one key under a concurrency limit.

use std::time::Duration;

use crate::algorithm::{concurrency::Renewal, is_oversized};
use crate::time::{Timestamp, micros};

/// The stored slots of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConcurrencyState {
    /// The longest lease among the held slots, in microseconds. An end further ahead than twice
    /// this shows that the clock stepped back.
    pub(super) lease: u64,
    /// The held slots in the order of their ends, which makes expiry a binary search.
    pub(super) held: Vec<Lease>,
}

/// One held slot: its id, and the time in microseconds at which it is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: u64,
    pub(super) end: u64,
}

impl ConcurrencyState {
    /// The state of a key without slots.
    pub(super) const EMPTY: ConcurrencyState = ConcurrencyState {
        lease: 0,
        held: Vec::new(),
    };

    /// The stored slots, expired ones included.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// The slots that fit into the allocated buffer.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.held.capacity()
    }

    /// The end of the last lease; the epoch if there is none.
    pub(crate) fn last_expiry(&self) -> Timestamp {
        Timestamp::from_micros(self.held.last().map_or(0, |held| held.end))
    }

    /// Releases a slot. Returns whether it was stored.
    pub(crate) fn release(&mut self, id: u64) -> bool {
        let Some(index) = self.held.iter().position(|held| held.id == id) else {
            return false;
        };
        self.held.remove(index);
        self.shrink_if_oversized();
        true
    }

    /// Shrinks the buffer once it is larger than four times its content.
    #[inline]
    pub(super) fn shrink_if_oversized(&mut self) {
        if is_oversized(self.held.capacity(), self.held.len()) {
            self.shrink();
        }
    }

    /// Kept out of line, because it runs rarely.
    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        self.held.shrink_to(2 * self.held.len());
    }

    /// Extends the lease of a held slot to a whole `lease` from now; an expired slot is not
    /// revived.
    pub(crate) fn renew(&mut self, id: u64, lease: Duration, now: Timestamp) -> Renewal {
        let (now, lease) = (now.as_micros(), micros(lease));
        let held = self.held.iter().find(|held| held.id == id);
        let Some(held) = held.filter(|held| held.end > now) else {
            return Renewal::Lost;
        };
        let end = now + lease;
        if end <= held.end {
            return Renewal::Unchanged;
        }
        self.lease = self.lease.max(lease);
        self.release(id);
        self.insert(Lease { id, end });
        Renewal::Extended(Timestamp::from_micros(end))
    }

    /// Inserts a slot in the order of the ends.
    pub(super) fn insert(&mut self, slot: Lease) {
        let index = self.held.partition_point(|held| held.end <= slot.end);
        self.held.insert(index, slot);
    }

    /// Whether the clock stepped back by more than a lease. An end is at most one lease after its
    /// write, so an end more than two leases ahead was written at a later time than now.
    pub(super) fn clock_went_back(&self, now: u64) -> bool {
        self.held
            .last()
            .is_some_and(|last| last.end > now + 2 * self.lease)
    }
}
