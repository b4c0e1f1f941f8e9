//! Budgets that follow the replies of a shared store.

use std::num::NonZeroU32;

use crate::store::memory::{
    entry::EntryId,
    shard::{HitKeys, Shard, WriteResult},
};
use crate::{
    budget::{Mirrored, StoreReply},
    decision::LimitDecision,
    policy::LimitGroup,
};

impl Shard {
    /// Sets the budget of a key to that of a store's reply; `is_used_up` tells whether a limit has nothing left. Returns
    /// whether its levels were replaced.
    pub(in crate::store::memory) fn mirror(
        &mut self,
        id: EntryId<'_>,
        own: HitKeys<'_>,
        reply: StoreReply,
        is_used_up: bool,
        limits: &[LimitDecision],
    ) -> bool {
        let mut mirrored = Mirrored::Unchanged;
        self.write(id, self.find(id), own, |budget| {
            mirrored = budget.mirror(id.group, reply, limits);
            WriteResult {
                stored: mirrored != Mirrored::Unchanged,
                is_used_up,
            }
        });
        mirrored == Mirrored::Replaced
    }

    /// Divides what a mirrored key has left among `instances`; `shared` are the limits of one instance.
    pub(in crate::store::memory) fn take_share(
        &mut self,
        id: EntryId<'_>,
        own: HitKeys<'_>,
        shared: &LimitGroup,
        instances: NonZeroU32,
    ) {
        let Some(index) = self.find(id) else {
            return;
        };
        self.write(id, Some(index), own, |budget| WriteResult {
            stored: budget.take_share(id.group, shared, instances, own.now),
            is_used_up: true,
        });
    }
}
