//! What is asked of a store.

use super::slot;
use crate::{
    key::Key,
    keys::{Keys, NamedKey, find},
    policy::{Asked, Group, Overdraft, Policy, Purpose},
};

/// What is asked of a store.
///
/// ```
/// use ratelimit_core::{Hit, Key, Policy};
///
/// let policy = Policy::parse("upload", "1000000/min")?;
/// let key = Key::explicit("alice")?;
/// let hit = Hit::new(&policy, &key).cost(4096);
/// assert_eq!(hit.cost, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Hit<'a> {
    /// Under which limits.
    pub policy: &'a Policy,
    /// Whose budget.
    pub key: &'a Key,
    /// How much; 0 only looks.
    pub cost: u64,
    /// Under which number a concurrency limit knows the hit: one of its own for each that may hold a
    /// slot.
    pub slot: u64,
    /// Whether it may go beyond a limit, as far as the policy has it.
    pub overdraft: Overdraft,
    /// Whether it is meant, or only tried.
    pub purpose: Purpose,
    others: &'a [NamedKey],
}

impl<'a> Hit<'a> {
    /// A hit of cost 1.
    #[inline]
    pub fn new(policy: &'a Policy, key: &'a Key) -> Hit<'a> {
        Hit {
            policy,
            key,
            cost: 1,
            slot: 0,
            overdraft: policy.throttle_mode().overdraft(),
            purpose: Purpose::Spend,
            others: &[],
        }
    }

    /// A hit of cost 1 on the budgets of several keys.
    pub fn by(policy: &'a Policy, keys: &'a Keys) -> Hit<'a> {
        Hit {
            others: keys.others(),
            ..Hit::new(policy, keys.own())
        }
    }

    /// The same hit at another cost.
    #[must_use]
    #[inline]
    pub const fn cost(mut self, cost: u64) -> Hit<'a> {
        self.cost = cost;
        self
    }

    /// The same hit, known to concurrency limits by `slot`.
    #[must_use]
    pub const fn slot(mut self, slot: u64) -> Hit<'a> {
        self.slot = slot;
        self
    }

    /// The same hit, which may or may not go beyond a limit.
    #[must_use]
    pub const fn overdraft(mut self, overdraft: Overdraft) -> Hit<'a> {
        self.overdraft = overdraft;
        self
    }

    /// The same hit, which only tells whether it would pass, and when.
    #[must_use]
    pub const fn foresee(mut self) -> Hit<'a> {
        self.purpose = Purpose::Foresee;
        self
    }

    /// Whether it spends nothing, whatever is answered.
    pub(crate) const fn is_look(&self) -> bool {
        self.cost == 0 || matches!(self.purpose, Purpose::Foresee)
    }

    /// The same hit with a slot of its own, where it needs one and has none.
    #[must_use]
    #[inline]
    pub fn fresh_slot(mut self) -> Hit<'a> {
        if self.slot == 0 && self.policy.holds_slots() {
            self.slot = slot::unused();
        }
        self
    }

    /// The same hit with a number of its own, which tells its charge from all others.
    pub(crate) fn numbered(mut self) -> Hit<'a> {
        if self.slot == 0 {
            self.slot = slot::unused();
        }
        self
    }

    /// The same hit under other limits.
    pub(crate) const fn under<'b>(self, policy: &'b Policy) -> Hit<'b>
    where
        'a: 'b,
    {
        Hit { policy, ..self }
    }

    /// All its keys.
    pub fn keys(&self) -> Keys {
        Keys::of(self.key, self.others)
    }

    /// The key that a group of limits counts by.
    #[inline]
    pub(crate) fn key_of(&self, group: &Group) -> &'a Key {
        let by = group.by.as_deref();
        by.and_then(|by| find(self.others, by)).unwrap_or(self.key)
    }

    /// The name under which each of its budgets is kept, and the key.
    pub(crate) fn budgets(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let groups = self.policy.groups();
        let budget = move |group: &'a Group| (&*group.name, self.key_of(group).as_str());
        groups.iter().map(budget)
    }

    /// Whether it spends of the same budgets under the same limits.
    pub(crate) fn spends_like(&self, other: &Hit<'_>) -> bool {
        self.policy.has_limits_of(other.policy) && self.budgets().eq(other.budgets())
    }

    /// Whether its limits can ever hold its cost.
    pub(crate) fn is_possible(&self) -> bool {
        let asked = self.asked();
        let mut bounds = self.policy.groups().iter().flat_map(|group| &group.bounds);
        bounds.all(|bound| bound.limit.is_possible(bound.ask(asked)))
    }

    pub(crate) const fn asked(&self) -> Asked {
        Asked {
            cost: self.cost,
            slot: self.slot,
            overdraft: self.overdraft,
            purpose: self.purpose,
        }
    }
}
