//! What is asked of a store.

use crate::store::slot;
use crate::{
    key::Key,
    key_set::{KeySet, NamedKey, find},
    policy::{HitMode, HitParams, LimitGroup, Overdraft, Policy},
};

/// What is asked of a store.
///
/// ```
/// use ratelimit_core::{Hit, Key, Policy};
///
/// let policy = Policy::parse("upload", "1000000/min")?;
/// let key = Key::new("alice")?;
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
    pub mode: HitMode,
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
            overdraft: policy.throttle().overdraft(),
            mode: HitMode::Charge,
            others: &[],
        }
    }

    /// A hit of cost 1 on the budgets of several keys.
    pub fn for_keys(policy: &'a Policy, keys: &'a KeySet) -> Hit<'a> {
        Hit {
            others: keys.named(),
            ..Hit::new(policy, keys.primary())
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
    pub const fn dry_run(mut self) -> Hit<'a> {
        self.mode = HitMode::DryRun;
        self
    }

    /// Whether it spends nothing, whatever is answered.
    pub(crate) const fn is_read_only(&self) -> bool {
        self.cost == 0 || matches!(self.mode, HitMode::DryRun)
    }

    /// The same hit with a slot of its own, where it needs one and has none.
    #[must_use]
    #[inline]
    pub fn with_slot_id(mut self) -> Hit<'a> {
        if self.slot == 0 && self.policy.has_concurrency_limit() {
            self.slot = slot::new_slot_id();
        }
        self
    }

    /// The same hit with a number of its own, which tells its charge from all others.
    pub(crate) fn numbered(mut self) -> Hit<'a> {
        if self.slot == 0 {
            self.slot = slot::new_slot_id();
        }
        self
    }

    /// The same hit under other limits.
    pub(crate) const fn with_policy<'b>(self, policy: &'b Policy) -> Hit<'b>
    where
        'a: 'b,
    {
        Hit { policy, ..self }
    }

    /// All its keys.
    pub fn keys(&self) -> KeySet {
        KeySet::of(self.key, self.others)
    }

    /// The key that a group of limits counts by.
    #[inline]
    pub(crate) fn key_for(&self, group: &LimitGroup) -> &'a Key {
        let by = group.by.as_deref();
        by.and_then(|by| find(self.others, by)).unwrap_or(self.key)
    }

    /// The name under which each of its budgets is kept, and the key.
    pub(crate) fn budget_names(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let groups = self.policy.groups();
        let budget = move |group: &'a LimitGroup| (&*group.name, self.key_for(group).as_str());
        groups.iter().map(budget)
    }

    /// Whether it spends of the same budgets under the same limits.
    pub(crate) fn same_budgets_as(&self, other: &Hit<'_>) -> bool {
        self.policy.has_limits_of(other.policy) && self.budget_names().eq(other.budget_names())
    }

    /// Whether its limits can ever hold its cost.
    pub(crate) fn can_ever_fit(&self) -> bool {
        let params = self.params();
        let mut limits = self.policy.groups().iter().flat_map(|group| &group.limits);
        limits.all(|effective| effective.limit.can_ever_fit(effective.demand(params)))
    }

    pub(crate) const fn params(&self) -> HitParams {
        HitParams {
            cost: self.cost,
            slot: self.slot,
            overdraft: self.overdraft,
            mode: self.mode,
        }
    }
}

/// An owned copy of a [`Hit`], kept while the store's answer is pending.
#[derive(Clone, Debug)]
pub(crate) struct OwnedHit {
    policy: Policy,
    keys: KeySet,
    params: HitParams,
}

impl OwnedHit {
    pub(crate) fn new(hit: Hit<'_>) -> OwnedHit {
        OwnedHit {
            policy: hit.policy.clone(),
            keys: hit.keys(),
            params: hit.params(),
        }
    }

    pub(crate) fn as_hit(&self) -> Hit<'_> {
        let HitParams {
            cost,
            slot,
            overdraft,
            mode,
        } = self.params;
        Hit {
            cost,
            slot,
            overdraft,
            mode,
            ..Hit::for_keys(&self.policy, &self.keys)
        }
    }
}
