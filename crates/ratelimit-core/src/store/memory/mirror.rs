//! The memory store as the local fallback of a limiter: its budgets follow the replies of a shared store.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use crate::store::memory::{MemoryStore, entry::EntryId, shard::HitKeys};
use crate::{
    budget::StoreReply,
    decision::{Decision, LimitDecision},
    policy::{MAX_LIMITS, Policy},
    store::hit::Hit,
    sync::lock,
};

impl MemoryStore {
    /// Sets the budgets of a hit to those of the shared store, as its decision tells them.
    ///
    /// Replies may come in any order: an older one changes no level. Returns one bit for each budget whose levels were
    /// replaced, in the order of the policy's groups.
    pub(crate) fn mirror(&self, hit: &Hit<'_>, decision: &Decision) -> u8 {
        let is_charged = decision.is_allowed() && !hit.is_read_only();
        let reply = StoreReply {
            now: decision.now,
            charged: if is_charged { hit.cost } else { 0 },
            slot: hit.slot,
        };
        if let [group] = hit.policy.groups()
            && let [_] = &*group.limits
        {
            let only = decision.only_limit();
            return self.mirror_groups(hit, reply, only.remaining == 0, |_| only);
        }
        let limits: SmallVec<[LimitDecision; MAX_LIMITS]> = decision.limits().collect();
        let unknown = LimitDecision::new(decision.outcome, 0);
        self.mirror_groups(hit, reply, decision.is_exhausted(), |index| {
            limits.get(index).copied().unwrap_or(unknown)
        })
    }

    fn mirror_groups(
        &self,
        hit: &Hit<'_>,
        reply: StoreReply,
        is_used_up: bool,
        limit: impl Fn(usize) -> LimitDecision,
    ) -> u8 {
        let all = &*self.shared;
        let groups = hit.policy.groups().iter();
        let keys: SmallVec<[EntryId<'_>; 2]> = groups
            .map(|group| all.entry_id(group, hit.key_for(group)))
            .collect();
        let own = HitKeys {
            keys: &keys,
            now: reply.now,
        };
        let mut replaced = 0;
        for (number, id) in keys.iter().enumerate() {
            let mut shard = lock(all.shard(id.hash));
            let is_replaced = shard.mirror(*id, own, reply, is_used_up, &limit);
            replaced |= u8::from(is_replaced) << number;
            if shard.count_hit().is_some() {
                shard.sweep(reply.now);
            }
        }
        replaced
    }

    /// Divides what the mirrored budgets of a hit have left among `instances`, once after each reply.
    ///
    /// `shared` is the policy with the limits of one instance.
    pub(crate) fn take_share(&self, hit: &Hit<'_>, shared: &Policy, instances: NonZeroU32) {
        let all = &*self.shared;
        let now = self.now();
        for (group, share) in hit.policy.groups().iter().zip(shared.groups()) {
            let id = all.entry_id(group, hit.key_for(group));
            let own = HitKeys { keys: &[id], now };
            lock(all.shard(id.hash)).take_share(id, own, share, instances);
        }
    }
}
