//! The budget of a local decision: it begins with what a shared store replied, in units.
//!
//! The limiter decides on it while the store does not answer (`docs/explain/failure.md`).

use std::time::Duration;

use crate::budget::{Adjustment, AdjustmentRequest, Budget, expiry};
use crate::{
    algorithm::{Demand, Effect},
    limit::Limit,
    policy::{LimitGroup, MAX_LIMITS},
    time::{Timestamp, micros},
};

/// The units of each limit, by its index in the policy.
pub(crate) type LimitUnits = [u64; MAX_LIMITS];

impl Budget {
    /// Replaces the states of limits that count units: they have spent these units at `at`. Slots and counted denials stay.
    ///
    /// A log has all stamps at `at`, and a counter all units in the present window. Both are stricter than the store.
    pub(crate) fn set_spent(&mut self, group: &LimitGroup, units: LimitUnits, at: Timestamp) {
        if let Some(draft) = self.reshaped(group.limits.len(), at) {
            *self = draft;
        }
        let mut ttl = Duration::ZERO;
        for (own, state) in group.limits.iter().zip(self.states.as_mut_slice()) {
            if own.limit.counts_units() {
                *state = None;
                let lasting = own.limit.charge_more(state, units[own.index], at);
                ttl = ttl.max(lasting.unwrap_or_default());
            }
        }
        self.expires = self.expires.max(expiry(self.expires, at, micros(ttl)));
    }

    /// Charges units to each limit at `at`, as far as there is capacity.
    pub(crate) fn charge_units(&mut self, group: &LimitGroup, units: LimitUnits, at: Timestamp) {
        let request = AdjustmentRequest {
            change: Adjustment::CatchUp { units },
            cost: 1,
            charged_at: at,
            marks: &[],
            slot: 0,
            now: at,
        };
        self.settle(group, request);
    }

    /// Takes a slot that the store gave to a hit. Returns whether a limit has slots.
    pub(crate) fn hold_slot(&mut self, group: &LimitGroup, slot: u64, now: Timestamp) -> bool {
        let has_slots = |limit: &Limit| matches!(limit, Limit::Concurrency(_));
        if !group.limits.iter().any(|own| has_slots(&own.limit)) {
            return false;
        }
        if let Some(draft) = self.reshaped(group.limits.len(), now) {
            *self = draft;
        }
        let demand = Demand {
            cost: 1,
            reserve: 0,
            slot,
        };
        for (own, state) in group.limits.iter().zip(self.states.as_mut_slice()) {
            if has_slots(&own.limit) {
                let held = own.limit.step(state, now, demand, |_| Effect::Charge);
                self.expires = self
                    .expires
                    .max(expiry(self.expires, now, micros(held.ttl)));
            }
        }
        true
    }

    /// The units that each limit has spent.
    pub(crate) fn spent(&self, group: &LimitGroup, now: Timestamp) -> LimitUnits {
        let mut units = [0; MAX_LIMITS];
        if now < self.expires {
            for (own, state) in group.limits.iter().zip(self.states.as_slice()) {
                units[own.index] = own.limit.spent(state.as_ref(), now);
            }
        }
        units
    }
}
