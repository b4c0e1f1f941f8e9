//! The memory store as the local fallback of a limiter: its budgets follow the replies of a shared store.

use std::num::NonZeroU32;

use smallvec::SmallVec;

use crate::store::memory::{MemoryStore, entry::EntryId, shard::HitKeys};
use crate::{
    budget::StoreReply,
    decision::{Decision, LimitDecision},
    policy::Policy,
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
        let only;
        let limits = match decision.several_limits() {
            [] => {
                only = decision.only_limit();
                std::slice::from_ref(&only)
            }
            several => several,
        };
        let is_used_up = decision.is_exhausted();
        let id = |group| self.shared.entry_id(group, hit.key_for(group));
        if let [group] = hit.policy.groups() {
            return self.mirror_keys(&[id(group)], reply, is_used_up, limits);
        }
        let keys: SmallVec<[EntryId<'_>; 2]> = hit.policy.groups().iter().map(id).collect();
        self.mirror_keys(&keys, reply, is_used_up, limits)
    }

    /// Sets the budgets of `keys`, which are those of one hit, in the order of the policy's groups.
    ///
    /// One key is the usual case, and a list on the stack of one element saves it the making of a longer one.
    #[inline]
    fn mirror_keys(
        &self,
        keys: &[EntryId<'_>],
        reply: StoreReply,
        is_used_up: bool,
        limits: &[LimitDecision],
    ) -> u8 {
        let all = &*self.shared;
        let own = HitKeys {
            keys,
            now: reply.now,
        };
        let (mut replaced, mut is_swept) = (0, false);
        for (number, id) in keys.iter().enumerate() {
            let mut shard = lock(all.shard(id.hash));
            let is_replaced = shard.mirror(*id, own, reply, is_used_up, limits);
            replaced |= u8::from(is_replaced) << number;
            if shard.count_hit().is_some() {
                shard.sweep(reply.now);
                is_swept = true;
            }
        }
        if is_swept {
            // The clock of this store, which may differ from that of the shared one.
            all.report(self.now());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        key::Key,
        store::contract::Store as _,
        time::{Clock, Timestamp},
    };

    /// A store of an application may decide fewer limits than the policy has.
    #[tokio::test]
    async fn a_reply_without_the_limits_of_a_key_leaves_its_bytes_right() {
        let policy = Policy::parse("p", "3/min; 2/h by ip; 9/d by ip").unwrap();
        let one_limit = Policy::parse("p", "3/min").unwrap();
        let key = Key::new("key").unwrap();
        let bytes_after = async |is_mirrored: bool| {
            let clock = Clock::manual(Timestamp::from_secs(1_000_000));
            let store = MemoryStore::new().clock(clock.clone());
            let check = async |policy: &Policy| store.hit(Hit::new(policy, &key)).await.unwrap();
            check(&policy).await;
            clock.advance(Duration::from_secs(3 * 86_400));
            if is_mirrored {
                let decision = check(&one_limit).await;
                store.mirror(&Hit::new(&policy, &key), &decision);
            }
            check(&policy).await;
            store.stats().bytes
        };

        assert_eq!(bytes_after(true).await, bytes_after(false).await);
    }
}
