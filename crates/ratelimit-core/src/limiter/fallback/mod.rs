//! The local fallback: limits each process on its own while the store does not answer.
//!
//! - A table holds what the store replied last about each recently used budget, and the units of hits in flight
//!   (`known.rs`).
//! - The first local decision on a budget copies the reply into a [`MemoryStore`]. Local decisions are ordinary hits
//!   on that store, on the time of the shared store.
//! - Units that passed locally are charged to the store before any later hit on their budget is sent (`charge.rs`).
//!
//! `docs/explain/failure.md` states what passes at most.

#[cfg(feature = "tokio")]
mod charge;
mod known;

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex, atomic::AtomicUsize},
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use crate::limiter::fallback::known::{KnownBudget, KnownBudgets, LimitReply, Reply};
use crate::{
    budget::{Adjustment, Budget, LimitUnits},
    decision::{Charged, Decision, LimitDecision, Outcome},
    key_set::KeySet,
    limit::Limit,
    log_throttle::LogThrottle,
    metrics,
    policy::{LimitGroup, MAX_LIMITS, Policy},
    store::{Hit, MemoryStore, Receipt, StoreError},
    sync::lock,
    time::{Clock, StoreClock, Timestamp},
};

/// Keys of the local fallback unless [`Limiter::local_capacity`](crate::Limiter::local_capacity) sets another number.
const DEFAULT_KEYS: usize = 65_536;
/// Bytes of the local budgets: what 65,536 keys take, with room for logs.
const MAX_BYTES: usize = 256 << 20;
/// The pause between two log lines about units that are never charged.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// `retry_after` of a hit that the store may allow when it is back, or when hits in flight are answered.
pub(super) const STORE_RETRY: Duration = Duration::from_secs(1);

/// What this process knows of the budgets in a shared store, and its local decisions.
///
/// Failure modes `Open` and `Closed` use neither, and pay nothing for them.
#[derive(Debug)]
pub(super) struct Fallback {
    /// What the store replied, and what it was not charged yet. Locked before a shard of `local`.
    known: Mutex<KnownBudgets>,
    /// The budgets with uncharged units.
    uncharged: Arc<AtomicUsize>,
    /// The budgets of local decisions.
    pub(super) local: MemoryStore,
    /// The time of the store, estimated between its replies.
    clock: Arc<StoreClock>,
    /// The charges of this process to the store.
    #[cfg(feature = "tokio")]
    charging: charge::Charging,
    /// Log lines about units that are never charged.
    dropped: LogThrottle,
}

impl Fallback {
    /// An empty fallback for a store that decides on the manual `clock`, or on one of its own.
    pub(super) fn new(clock: Option<Clock>) -> Fallback {
        Fallback::on_clock(Arc::new(StoreClock::new(clock)), DEFAULT_KEYS)
    }

    /// An empty fallback with capacity for `keys` keys.
    pub(super) fn with_capacity(&self, keys: usize) -> Fallback {
        Fallback::on_clock(Arc::clone(&self.clock), keys)
    }

    fn on_clock(clock: Arc<StoreClock>, keys: usize) -> Fallback {
        // A key that the table has no place for is limited too, until the store evicts it.
        let local = MemoryStore::new()
            .capacity(keys.saturating_mul(2))
            .max_bytes(MAX_BYTES)
            .clock(Clock::of_store(Arc::clone(&clock)));
        let uncharged = Arc::new(AtomicUsize::new(0));
        Fallback {
            known: Mutex::new(KnownBudgets::new(keys, Arc::clone(&uncharged))),
            uncharged,
            local,
            clock,
            #[cfg(feature = "tokio")]
            charging: charge::Charging::default(),
            dropped: LogThrottle::new(1, LOG_PAUSE),
        }
    }

    /// Counts a hit that was sent to the store. Its units are in flight until [`answered`](Self::answered).
    pub(super) fn sent(&self, hit: &Hit<'_>) {
        if hit.is_read_only() {
            return;
        }
        let mut known = lock(&self.known);
        for group in hit.policy.groups() {
            if let Some(budget) = known.get_or_insert(hit, group, || self.local.now()) {
                budget.in_flight = budget.in_flight.saturating_add(hit.cost);
            }
        }
    }

    /// Ends a hit in flight, whatever became of it.
    pub(super) fn answered(&self, hit: &Hit<'_>) {
        if hit.is_read_only() {
            return;
        }
        let mut known = lock(&self.known);
        for group in hit.policy.groups() {
            if let Some(budget) = known.get(hit, group) {
                budget.in_flight = budget.in_flight.saturating_sub(hit.cost);
            }
        }
    }

    /// Takes up what the store replied about the budgets of a hit at `received`.
    ///
    /// Replies of concurrent calls arrive in any order: one that is older than the last is ignored.
    pub(super) fn replied(&self, hit: &Hit<'_>, decision: &Decision, received: Instant) {
        self.clock.observe(decision.now, received);
        let limits: SmallVec<[LimitDecision; MAX_LIMITS]> = decision.limits().collect();
        let mut known = lock(&self.known);
        for group in hit.policy.groups() {
            let Some(reply) = reply_of(group, &limits, decision.now) else {
                continue;
            };
            // Nothing is remembered of a key that has spent nothing.
            let budget = if reply.is_unspent() {
                known.get(hit, group)
            } else {
                known.get_or_insert(hit, group, || decision.now)
            };
            if let Some(budget) = budget
                && budget.accepts(&reply)
            {
                self.take_reply(budget, hit, group, reply);
            }
        }
        // Under the lock, so that no local decision comes between reading a budget and writing it.
        if decision.is_allowed() && !hit.is_read_only() && hit.policy.has_concurrency_limit() {
            self.hold_slots(hit, decision.now);
        }
    }

    /// Replaces what is known of a budget. Uncharged units are added again: the reply does not include them.
    fn take_reply(
        &self,
        budget: &mut KnownBudget,
        hit: &Hit<'_>,
        group: &LimitGroup,
        reply: Reply,
    ) {
        if budget.uncharged().is_none() {
            budget.set_reply(reply);
            return;
        }
        let share = share_of(hit, budget.instances());
        let (_, units) = self.uncharged_units(budget, hit, group, share.as_ref());
        if units == [0; MAX_LIMITS] {
            // Time has restored them.
            budget.clear_uncharged(&self.uncharged);
            budget.set_reply(reply);
        } else {
            budget.set_reply(reply);
            self.seed(budget, hit, group, share.as_ref(), units);
        }
    }

    /// Records the slots of a hit locally. Those of other processes are released without a reply here, so only the slots of
    /// this process count.
    fn hold_slots(&self, hit: &Hit<'_>, now: Timestamp) {
        for group in hit.policy.groups() {
            let hold = |local: &mut Budget| local.hold_slot(group, hit.slot, now);
            self.local.change_budget(group, hit.key_for(group), hold);
        }
    }

    /// Decides a hit that the store did not, and charges it locally. `instances` divide what is left.
    ///
    /// - Hits in flight on the same budget count as spent.
    /// - A hit that the store certainly did not charge is charged to it later.
    /// - A hit that the store may have charged is never charged again.
    pub(super) fn decide(
        &self,
        hit: &Hit<'_>,
        instances: Option<NonZeroU32>,
        error: &StoreError,
    ) -> Charged {
        let share = share_of(hit, instances);
        let own = share
            .as_ref()
            .map_or(*hit, |(policy, _)| hit.with_policy(policy));
        let now = self.local.now();
        let mut known = lock(&self.known);
        let (mut in_flight, mut block) = (0, None);
        for group in hit.policy.groups() {
            let Some(budget) = known.get_or_insert(hit, group, || now) else {
                continue;
            };
            if !budget.is_seeded_for(instances) {
                // They were counted under the limits of the share before.
                let before = share_of(hit, budget.instances());
                let units = match budget.uncharged() {
                    Some(_) => self.uncharged_units(budget, hit, group, before.as_ref()).1,
                    None => [0; MAX_LIMITS],
                };
                self.seed(budget, hit, group, share.as_ref(), units);
            }
            in_flight = in_flight.max(budget.in_flight);
            block = block.max(budget.block(group, now));
            if matches!(error, StoreError::Overloaded) {
                // The store answers other hits, and would not see a slot that is taken here.
                let mut limits = group.limits.iter();
                let slots = limits.find(|own| matches!(own.limit, Limit::Concurrency(_)));
                block = block.max(slots.map(|own| (now + STORE_RETRY, own.index)));
            }
        }
        let charged = match block {
            Some((until, index)) => {
                let read = self.local.check(&own.dry_run());
                read.map(|decision| decision.blocked(index, until.since(now)))
            }
            None => self.check(&own, in_flight),
        };
        if charged.is_allowed() && !hit.is_read_only() && hit.policy.counts_units() {
            let is_uncharged = error.charged_nothing() && cfg!(feature = "tokio");
            let mut is_tracked = true;
            for group in hit.policy.groups() {
                match known.get(hit, group) {
                    Some(budget) if is_uncharged => {
                        budget.add_uncharged(hit, now, &self.uncharged);
                    }
                    Some(budget) => {
                        // At the time of the local charge, by which a refund finds it.
                        let (own, at) = (own_group(group, share.as_ref()), charged.decision.now);
                        budget.charge_known(own, hit.cost, at);
                    }
                    None => is_tracked = false,
                }
            }
            if is_uncharged && !is_tracked {
                self.drop_units(hit, hit.cost, "the table of the local fallback is full");
            }
        }
        drop(known);
        // A cost above the share, but not above the limit, can pass when the store is back.
        if share.is_some() && hit.can_ever_fit() {
            charged.map(|decision| decision.possible_after(STORE_RETRY))
        } else {
            charged
        }
    }

    /// Decides a hit by the local budgets, with the units in flight as spent.
    fn check(&self, hit: &Hit<'_>, in_flight: u64) -> Charged {
        if in_flight == 0 || hit.is_read_only() || !self.local.check(&hit.dry_run()).is_allowed() {
            return self.local.check(hit);
        }
        let cost = hit.cost.saturating_add(in_flight);
        let with_flight = self.local.check(&hit.cost(cost).dry_run());
        if with_flight.is_allowed() {
            return self.local.check(hit);
        }
        with_flight.map(|decision| {
            let denied = decision.possible_after(STORE_RETRY);
            denied.with_waits_up_to(STORE_RETRY, |_| true)
        })
    }

    /// Copies the last reply about a budget into the local one, or what is known of it without a reply, and charges
    /// `uncharged` units there. Those that it has no room for are charged to the store only.
    ///
    /// A budget of which nothing is known continues.
    fn seed(
        &self,
        budget: &mut KnownBudget,
        hit: &Hit<'_>,
        group: &LimitGroup,
        share: Option<&Share>,
        uncharged: LimitUnits,
    ) {
        let instances = share.map(|(_, instances)| *instances);
        let (own, key, now) = (
            own_group(group, share),
            hit.key_for(group),
            self.local.now(),
        );
        let spent = budget
            .reply()
            .map(|reply| (reply.spent(own, instances), reply.at));
        let spent = spent.or_else(|| budget.known().map(|known| (known.spent(own, now), now)));
        let Some((spent, at)) = spent else {
            budget.set_seeded(self.local.budget(own, key), instances);
            return;
        };
        let mut known = Budget::default();
        self.local.change_budget(own, key, |local| {
            local.set_spent(own, spent, at);
            known = local.clone();
            local.charge_units(own, uncharged, now);
            true
        });
        budget.set_seeded(known, instances);
        budget.set_excess([0; MAX_LIMITS]);
        let mut excess = uncharged;
        let (_, held) = self.uncharged_units(budget, hit, group, share);
        for (units, held) in excess.iter_mut().zip(held) {
            *units = units.saturating_sub(held);
        }
        budget.set_excess(excess);
    }

    /// The local budget, and the units of it that the store does not know.
    fn uncharged_units(
        &self,
        budget: &mut KnownBudget,
        hit: &Hit<'_>,
        group: &LimitGroup,
        share: Option<&Share>,
    ) -> (Budget, LimitUnits) {
        let (own, now) = (own_group(group, share), self.local.now());
        let local = self.local.budget(own, hit.key_for(group));
        let mut units = local.spent(own, now);
        let known = budget.known().map(|known| known.spent(own, now));
        for (units, known) in units.iter_mut().zip(known.into_iter().flatten()) {
            *units = units.saturating_sub(known);
        }
        for (units, excess) in units.iter_mut().zip(budget.excess(now)) {
            *units = units.saturating_add(excess);
        }
        (local, units)
    }

    /// Counts and logs units that passed locally and that the store is never charged.
    fn drop_units(&self, hit: &Hit<'_>, units: u64, cause: &str) {
        metrics::count_catch_up("dropped", units);
        if let Some(left_out) = self.dropped.permit() {
            tracing::warn!(
                policy = hit.policy.name(),
                units,
                cause,
                left_out,
                "requests that passed locally will not be charged to the store"
            );
        }
    }

    /// Charges a later change of a local charge to the store too.
    pub(super) fn charged_more(&self, policy: &Policy, keys: &KeySet) {
        let hit = Hit::for_keys(policy, keys);
        let now = self.local.now();
        let mut known = lock(&self.known);
        for group in policy.groups() {
            if let Some(budget) = known.get(&hit, group) {
                budget.add_uncharged(&hit, now, &self.uncharged);
            }
        }
    }

    /// Takes a local charge back that the store may have made too.
    pub(super) fn refunded(&self, receipt: &Receipt) {
        let hit = Hit::for_keys(receipt.policy(), receipt.keys());
        let units = receipt.cost();
        let refund = receipt.request(Adjustment::Refund { units }, self.local.now());
        let mut known = lock(&self.known);
        for group in receipt.policy().groups() {
            if let Some(budget) = known.get(&hit, group) {
                budget.refund_known(group, refund);
            }
        }
    }

    /// Forgets what is known and uncharged of these keys.
    pub(super) fn forget(&self, policy: &Policy, keys: &KeySet) {
        let hit = Hit::for_keys(policy, keys);
        let mut known = lock(&self.known);
        for group in policy.groups() {
            if let Some(budget) = known.get(&hit, group) {
                budget.forget(&self.uncharged);
            }
        }
    }
}

/// The policy with the share of one instance, and the number of instances.
type Share = (Policy, NonZeroU32);

/// The share of the limits of a hit that one instance has.
fn share_of(hit: &Hit<'_>, instances: Option<NonZeroU32>) -> Option<Share> {
    instances.map(|instances| (hit.policy.share_of(instances), instances))
}

/// The limits by which a group is decided locally: those of the share, or its own.
fn own_group<'a>(group: &'a LimitGroup, share: Option<&'a Share>) -> &'a LimitGroup {
    let mut groups = share.iter().flat_map(|(policy, _)| policy.groups());
    groups.find(|own| own.name == group.name).unwrap_or(group)
}

/// What a store replied about one group of limits; `None` if it did not read all of them.
fn reply_of(group: &LimitGroup, limits: &[LimitDecision], now: Timestamp) -> Option<Reply> {
    let own = group.limits.iter().map(|effective| {
        let decision = limits.get(effective.index)?;
        if !decision.is_read {
            return None;
        }
        // A decision reports the plain limit. Where nothing is left of it, the headroom of a throttle may be spent too.
        let spent = match decision.remaining {
            0 => effective.limit.capacity(),
            remaining => decision.limit.saturating_sub(remaining),
        };
        // The block of a penalty box is not seen in the units that are left.
        let blocked_until = match (decision.outcome, effective.limit) {
            (Outcome::Denied { retry_after }, Limit::PenaltyBox(_)) => now + retry_after,
            _ => Timestamp::default(),
        };
        let exhausted_until = if decision.remaining == 0 {
            now + decision.reset_after
        } else {
            Timestamp::default()
        };
        Some(LimitReply {
            limit: decision.limit,
            spent,
            blocked_until,
            exhausted_until,
        })
    });
    let limits = own.collect::<Option<_>>()?;
    Some(Reply { at: now, limits })
}

#[cfg(feature = "tokio")]
#[cfg(test)]
mod tests;
