//! An entry of the memory store, and the estimate of its bytes.
//!
//! The estimate counts allocated memory, because a bound on bytes is a bound on the process. It is computed from
//! lengths that are at hand; no allocator is asked.

use crate::store::memory::interner::NameId;
use crate::{budget::Budget, key::Key, limit::Limit, policy::LimitGroup, time::Timestamp};

/// Identifies one entry: the limit group, the key and their common hash.
///
/// It borrows from the hit, so looking up a known key copies nothing.
#[derive(Clone, Copy)]
pub(super) struct EntryId<'a> {
    /// The hash of the key's text, combined with the hash of the group's name.
    pub(super) hash: u64,
    /// The limits that count by this key; its name is part of the entry's identity.
    pub(super) group: &'a LimitGroup,
    /// Cloned only when an entry is inserted.
    pub(super) key: &'a Key,
    /// The key's text, read once: reading it from a `CompactString` branches on its kind.
    pub(super) text: &'a str,
}

impl EntryId<'_> {
    /// Whether both identify one entry, whatever limits their groups have.
    pub(super) fn is_same_as(&self, other: &EntryId<'_>) -> bool {
        self.hash == other.hash && self.text == other.text && self.group.name == other.group.name
    }
}

/// Keys up to this length in bytes are stored inside the entry; longer keys have an allocation of their own.
const INLINE_KEY: usize = 24;
/// Bytes of an entry itself, of its index in the table, of its pair in the heap, and of unused capacity.
///
/// An index takes 4 bytes and a control byte, at a load of 7/16 to 7/8. A pair in the heap takes 16 bytes.
const BASE_BYTES: usize = size_of::<Entry>() + 32;
/// Bytes of one state in the boxed slice that the states of several limits share; a single state is inline.
const STATE_BYTES: usize = 40;
/// [`Budget::stored_entries`] counts boxes and buffers of a state in units of this many bytes.
const UNIT_BYTES: usize = 8;
/// Maximum bytes of one stamp of a log: 8, doubled because the buffer grows by doubling.
const MAX_STAMP_BYTES: usize = 16;
/// Maximum bytes of one concurrency slot: 16, doubled because the buffer grows by doubling.
const MAX_SLOT_BYTES: usize = 32;
/// Bytes of the box of a state that is not stored inline.
const BOX_BYTES: usize = 48;

/// One key with its budget under one group of limits.
///
/// An entry has 88 bytes at most on 64-bit platforms. A key with budget takes 91 bytes in all and an exhausted key
/// 108, with their shares of the table and the heap.
#[derive(Debug)]
pub(super) struct Entry {
    /// Whose budget this is.
    pub(super) key: Key,
    /// The name of the policy and group, interned in the shard.
    pub(super) name: NameId,
    /// The reference bit of the CLOCK algorithm: set by a write, cleared when the clock hand passes.
    pub(super) was_hit: bool,
    /// The hash of key and name, kept so that growing the table and moving entries hash nothing again.
    pub(super) hash: u64,
    /// When an exhausted entry has budget again. The epoch marks an entry with budget.
    ///
    /// The entry is in the exhausted part of its shard exactly while this is later than the epoch.
    pub(super) recovers_at: Timestamp,
    /// The states of the limits, and when all of them expire.
    pub(super) budget: Budget,
}

impl Entry {
    /// A new entry. Its reference bit is clear, so a key that is hit once is evicted before a key that returns.
    pub(super) fn new(id: EntryId<'_>, name: NameId, budget: Budget) -> Entry {
        Entry {
            key: id.key.clone(),
            name,
            was_hit: false,
            hash: id.hash,
            recovers_at: Timestamp::default(),
            budget,
        }
    }

    /// Estimated bytes of this entry with its allocations.
    ///
    /// Shards add and subtract this value, so it must not change between two writes to the entry.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        let key = self.key.as_str().len();
        // A short key is part of `size_of::<Entry>()`.
        let key = if key > INLINE_KEY { key } else { 0 };
        BASE_BYTES + key + self.budget_bytes()
    }

    /// The part of [`bytes`](Entry::bytes) that a write changes.
    #[inline]
    pub(super) fn budget_bytes(&self) -> usize {
        states_bytes(self.budget.state_count()) + self.budget.stored_entries() * UNIT_BYTES
    }

    /// Estimated bytes of an entry under `group` whose logs and slots are full. The length of long keys is not included.
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
        own.saturating_add(BASE_BYTES + states_bytes(group.limits.len()))
    }

    /// Whether nothing in the budget counts any more, so that the entry can be dropped.
    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.budget.expires() <= now
    }
}

/// Bytes of the boxed slice of states; a budget with a single limit has none.
#[inline]
fn states_bytes(limits: usize) -> usize {
    match limits {
        1 => 0,
        limits => limits * STATE_BYTES,
    }
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
