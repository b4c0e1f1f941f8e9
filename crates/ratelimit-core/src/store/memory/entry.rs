//! A key of the memory store, and the bytes that it takes.

use crate::store::memory::{interner::NameId, shard::EntryId};
use crate::{budget::Budget, key::Key, limit::Limit, policy::LimitGroup, time::Timestamp};

/// Longer keys are allocated apart.
const INLINE_KEY: usize = 24;
/// An entry, and its share in the table, in the heap of recovery times and in the unused end of each vector.
const BASE_BYTES: usize = size_of::<Entry>() + 32;
/// A state in the box that the states of several limits share.
const STATE_BYTES: usize = 40;
/// A state's own box and buffer are counted in units of 8 bytes.
const UNIT_BYTES: usize = 8;
/// A log's stamp has 8 bytes, a slot 16. Both buffers grow by doubling.
const MAX_STAMP_BYTES: usize = 16;
const MAX_SLOT_BYTES: usize = 32;
/// The box of a state that is not kept in place.
const BOX_BYTES: usize = 40;

/// One key and what it has spent under one policy.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) name: NameId,
    /// How many limits have a state in the budget, also those that the last hit's policy does not have.
    limits: u8,
    /// Whether it was written since the clock hand last passed it.
    pub(super) was_hit: bool,
    pub(super) hash: u64,
    /// When an exhausted entry has budget again; the epoch where it has some.
    pub(super) recovers_at: Timestamp,
    pub(super) budget: Budget,
}

impl Entry {
    pub(super) fn new(id: EntryId<'_>, name: NameId, budget: Budget) -> Entry {
        Entry {
            key: id.key.clone(),
            name,
            limits: count(budget.state_count()),
            was_hit: false,
            hash: id.hash,
            recovers_at: Timestamp::default(),
            budget,
        }
    }

    /// Marks an entry whose budget was written.
    #[inline]
    pub(super) fn written(&mut self) {
        self.was_hit = true;
        self.limits = count(self.budget.state_count());
    }

    /// The estimated bytes that it takes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        let key = self.key.as_str().len();
        let key = if key > INLINE_KEY { key } else { 0 };
        BASE_BYTES + key + states_bytes(self.limits) + self.budget.stored_entries() * UNIT_BYTES
    }

    /// The estimated bytes of a key whose logs and slots are full.
    pub(super) fn max_bytes(group: &LimitGroup) -> usize {
        let own = group.limits.iter().map(|effective| {
            let entry_bytes = match effective.limit {
                Limit::SlidingWindowLog(_) => MAX_STAMP_BYTES,
                Limit::Concurrency(_) => MAX_SLOT_BYTES,
                _ => 0,
            };
            let entries = usize::try_from(effective.limit.capacity()).unwrap_or(usize::MAX);
            BOX_BYTES.saturating_add(entries.saturating_mul(entry_bytes))
        });
        let own = own.fold(0, usize::saturating_add);
        own.saturating_add(BASE_BYTES + states_bytes(count(group.limits.len())))
    }

    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.budget.expires() <= now
    }
}

#[inline]
fn states_bytes(limits: u8) -> usize {
    match limits {
        1 => 0,
        limits => usize::from(limits) * STATE_BYTES,
    }
}

#[inline]
fn count(limits: usize) -> u8 {
    u8::try_from(limits).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_pointer_width = "64")]
    #[test]
    fn an_entry_leaves_room_for_its_index_within_110_bytes() {
        // An index takes 5 bytes at a load of 7/16 to 7/8, and a vector grows by a sixteenth.
        assert!(size_of::<Entry>() <= 88, "{}", size_of::<Entry>());
    }
}
