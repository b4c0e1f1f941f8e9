//! What is known of a charge, so that it can be changed later.

use std::time::Duration;

use smallvec::SmallVec;

use super::hit::Hit;
use crate::{
    decision::Decision,
    key::Key,
    keys::Keys,
    limit::Limit,
    policy::{Change, Group, Policy, Purpose, Settling},
    time::Timestamp,
};

/// What is known of a charge: whose, how much and when.
///
/// A receipt belongs to one decision. What is given back by it is never more than what that decision
/// charged and time has not given back since.
#[derive(Clone, Debug)]
pub struct Receipt {
    policy: Policy,
    keys: Keys,
    cost: u64,
    slot: u64,
    charged_at: Timestamp,
    /// What each limit remembers of the charge.
    marks: SmallVec<[u64; 4]>,
}

impl Receipt {
    /// The receipt of a hit that passed; nothing where nothing was charged.
    pub fn of(hit: Hit<'_>, decision: &Decision) -> Option<Receipt> {
        if !decision.is_allowed() {
            return None;
        }
        Receipt::of_marks(hit, decision.now, decision.marks())
    }

    pub(crate) fn of_marks(
        hit: Hit<'_>,
        charged_at: Timestamp,
        marks: impl Iterator<Item = u64>,
    ) -> Option<Receipt> {
        let is_charged = hit.cost > 0 && hit.purpose == Purpose::Spend;
        is_charged.then(|| Receipt {
            policy: hit.policy.clone(),
            keys: hit.keys(),
            cost: hit.cost,
            slot: hit.slot,
            charged_at,
            marks: marks.collect(),
        })
    }

    /// Under which limits it was charged.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whose budgets were charged.
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// How much was charged.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// The number of the slot that it holds, under policies with a concurrency limit.
    pub const fn slot(&self) -> u64 {
        self.slot
    }

    /// The lease of its slot, under policies with a concurrency limit: the shortest.
    pub fn lease(&self) -> Option<Duration> {
        let leases = self.policy.limits().iter().filter_map(|limit| match limit {
            Limit::Concurrency(slots) => Some(slots.lease()),
            _ => None,
        });
        leases.min()
    }

    /// When it was charged, by the store's clock.
    pub const fn charged_at(&self) -> Timestamp {
        self.charged_at
    }

    /// The key that a group of limits counted by.
    pub(crate) fn key_of(&self, group: &Group) -> &Key {
        match group.by.as_deref() {
            Some(name) => self.keys.named(name),
            None => self.keys.own(),
        }
    }

    pub(crate) fn settling(&self, change: Change, now: Timestamp) -> Settling<'_> {
        Settling {
            change,
            cost: self.cost,
            charged_at: self.charged_at,
            marks: &self.marks,
            slot: self.slot,
            now,
        }
    }
}
