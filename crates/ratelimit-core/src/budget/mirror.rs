//! The budget of the local fallback: its states are those that a shared store replied last.
//!
//! The limiter charges hits to it while the store does not answer (`docs/explain/failure.md`).

use std::{num::NonZeroU32, time::Duration};

use crate::budget::{Budget, expiry, states::States};
use crate::{
    algorithm::MirroredReply,
    decision::LimitDecision,
    policy::LimitGroup,
    time::{Timestamp, micros},
};

/// A reply whose time is earlier than that of the last one by more than this is not late: the server's clock was set
/// back, or another node took over. Late replies are taken up for a second after the timeout.
const MAX_DISORDER: Duration = Duration::from_secs(3);

/// A reply of a store, as all limits of a group see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoreReply {
    /// The store's time of the reply.
    pub(crate) now: Timestamp,
    /// The units that the hit was charged; 0 if it was denied, or spent nothing.
    pub(crate) charged: u64,
    /// The id of the concurrency slot that the hit took; 0 without one.
    pub(crate) slot: u64,
}

/// The effect of a reply on a budget.
///
/// Concurrent calls of one key are answered in any order, and the replies of a batch have the same time. A budget keeps
/// the time of the latest reply; of replies with one time it keeps the highest level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mirrored {
    /// Nothing was written.
    Unchanged,
    /// The reply was older than the budget: at most its own stamps were added.
    Stale,
    /// The levels are those of the reply.
    Replaced,
}

impl Budget {
    /// Sets the states to those of a store's reply, which decided each of `limits`, in the order of the policy.
    ///
    /// A key that has spent nothing and is not known here stays unknown.
    pub(crate) fn mirror(
        &mut self,
        group: &LimitGroup,
        reply: StoreReply,
        limits: &[LimitDecision],
    ) -> Mirrored {
        let StoreReply { now, charged, slot } = reply;
        let read = |index: usize| limits.get(index).filter(|limit| limit.level.is_read());
        // Before anything is changed: the caller counts the bytes of a budget that was written.
        if !group.limits.iter().any(|own| read(own.index).is_some()) {
            return Mirrored::Unchanged;
        }
        if now >= self.expires {
            let is_unspent = |limit: &LimitDecision| {
                limit.reset_after.is_zero() && limit.remaining == limit.limit
            };
            let mut own = group.limits.iter().filter_map(|own| limits.get(own.index));
            if charged == 0 && own.all(is_unspent) {
                return Mirrored::Unchanged;
            }
            self.expires = Timestamp::default();
            if !matches!(self.states, States::Mirrored(_)) {
                self.states = States::default();
            }
        }
        let own = group.limits.len();
        let mirrored = self.states.mirrored(own);
        let is_stale = now < mirrored.reply_at && mirrored.reply_at.since(now) < MAX_DISORDER;
        let is_same_time = now == mirrored.reply_at;
        let mut ttl = Duration::ZERO;
        let (mut is_replaced, mut is_whole) = (false, true);
        for (effective, state) in group.limits.iter().zip(&mut mirrored.states) {
            let Some(decision) = read(effective.index) else {
                is_whole = false;
                continue;
            };
            let level = if decision.level.is_known() {
                decision.level
            } else {
                let spent = decision.limit.saturating_sub(decision.remaining);
                effective.limit.level_of_units(spent, now)
            };
            let reply = MirroredReply {
                level,
                now,
                reset_after: decision.reset_after,
                charged,
                slot,
                is_stale,
            };
            let (need, is_level_set) = effective.limit.mirror(state, reply, is_same_time);
            ttl = ttl.max(need);
            is_replaced |= is_level_set;
        }
        if !is_stale {
            mirrored.reply_at = now;
            mirrored.instances = 0;
        }
        // States of limits that this policy does not have keep the budget alive.
        let before = if mirrored.states.len() > own || is_stale || !is_whole {
            self.expires
        } else {
            Timestamp::default()
        };
        self.expires = before.max(expiry(before, now, micros(ttl)));
        if is_replaced {
            Mirrored::Replaced
        } else {
            Mirrored::Stale
        }
    }

    /// Divides what a mirrored budget has left among `instances`, once after each reply. `shared` are the limits of one
    /// instance.
    ///
    /// Returns whether the budget changed. A budget that no reply has set starts full, under the shared limits.
    pub(crate) fn take_share(
        &mut self,
        group: &LimitGroup,
        shared: &LimitGroup,
        instances: NonZeroU32,
        now: Timestamp,
    ) -> bool {
        let States::Mirrored(mirrored) = &mut self.states else {
            return false;
        };
        if mirrored.instances == instances.get() || now >= self.expires {
            return false;
        }
        let pairs = group.limits.iter().zip(&shared.limits);
        for ((whole, share), state) in pairs.zip(&mut mirrored.states) {
            let count = u64::from(instances.get());
            share.limit.take_share(&whole.limit, state, count, now);
        }
        mirrored.instances = instances.get();
        true
    }

    /// The units that each limit of the group counts in its present window.
    pub(crate) fn units_spent(
        &self,
        group: &LimitGroup,
        now: Timestamp,
    ) -> impl Iterator<Item = u64> {
        let states = self.states.as_slice();
        group.limits.iter().enumerate().map(move |(index, own)| {
            let state = states.get(index).and_then(Option::as_ref);
            own.limit.units_spent(state, now)
        })
    }

    /// The live stamps of the log at `index` of the policy; none for other limits.
    pub(crate) fn stamps_of(
        &self,
        group: &LimitGroup,
        index: usize,
        now: Timestamp,
    ) -> Vec<Timestamp> {
        let mut states = group.limits.iter().zip(self.states.as_slice());
        let own = states.find(|(own, _)| own.index == index);
        own.map_or_else(Vec::new, |(own, state)| {
            own.limit.stamps(state.as_ref(), now)
        })
    }

    /// Removes up to `units` from each limit, whichever hit they were charged by.
    pub(crate) fn remove_units(&mut self, group: &LimitGroup, units: u64, now: Timestamp) {
        for (own, state) in group.limits.iter().zip(self.states.as_mut_slice()) {
            own.limit.remove_units(state, units, now);
        }
    }
}
