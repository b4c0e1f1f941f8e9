//! The request to a store: policy, keys, cost and mode.

use std::time::Instant;

use crate::store::slot;
use crate::{
    key::Key,
    key_set::{KeySet, NamedKey, find},
    policy::{HitMode, HitParams, LimitGroup, Overdraft, Policy},
};

/// One attempt to spend: a policy, a key or several, and a cost.
///
/// A hit is a borrowed, `Copy` value; building one allocates nothing. [`Limiter::check`](crate::Limiter::check) and
/// its siblings build it. Build one yourself for [`Limiter::reserve`](crate::Limiter::reserve),
/// [`Limiter::check_hit`](crate::Limiter::check_hit), or to call a [`Store`](crate::store::Store).
///
/// A hit does not resolve tiers: pass [`policy.for_key(key)`](Policy::for_key) where the policy has tiers.
///
/// ```
/// use ratelimit_core::{Key, Policy, store::Hit};
///
/// let policy = Policy::parse("upload", "1000000/min")?;
/// let key = Key::new("alice")?;
/// let hit = Hit::new(&policy, &key).cost(4096);
/// assert_eq!(hit.cost, 4096);
///
/// let trial = hit.dry_run(); // decides with the same cost, and spends nothing
/// assert_eq!(trial.cost, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[doc(alias = "request")]
pub struct Hit<'a> {
    /// The limits to apply, those of the key's tier.
    pub policy: &'a Policy,
    /// The key of all limits without `by`.
    pub key: &'a Key,
    /// The units to spend; 0 makes the hit a peek. Concurrency limits take one slot for any cost above 0.
    pub cost: u64,
    /// The number that identifies the hit's slot under a concurrency limit, or 0 for none.
    ///
    /// Two hits with the same number take one slot, so a hit that is sent twice takes one.
    /// [`with_slot_id`](Hit::with_slot_id) assigns a unique number.
    pub slot: u64,
    /// Whether the hit may exceed a limit by the headroom of a soft or elastic throttle.
    pub overdraft: Overdraft,
    /// Whether the hit spends its cost, or is a dry run.
    pub mode: HitMode,
    /// The time until which the caller waits for the store, if that may be shorter than the store's own time budget.
    pub deadline: Option<Instant>,
    /// The keys of limits with `by`, by name.
    others: &'a [NamedKey],
}

impl<'a> Hit<'a> {
    /// A hit of cost 1. It ignores the cost of the policy ([`Policy::cost`]).
    #[inline]
    pub fn new(policy: &'a Policy, key: &'a Key) -> Hit<'a> {
        Hit {
            policy,
            key,
            cost: 1,
            slot: 0,
            // Reads the load signal of an elastic throttle, once for each hit.
            overdraft: policy.throttle().overdraft(),
            mode: HitMode::Charge,
            deadline: None,
            others: &[],
        }
    }

    /// A hit of cost 1 on the budgets of several keys, decided all or nothing.
    ///
    /// A limit whose name is missing in `keys` counts by the primary key.
    pub fn for_keys(policy: &'a Policy, keys: &'a KeySet) -> Hit<'a> {
        Hit {
            others: keys.named(),
            ..Hit::new(policy, keys.primary())
        }
    }

    /// Returns the hit with another cost.
    #[must_use]
    #[inline]
    pub const fn cost(mut self, cost: u64) -> Hit<'a> {
        self.cost = cost;
        self
    }

    /// Returns the hit with a slot number of your own, such as one that identifies a job across retries.
    #[must_use]
    pub const fn slot(mut self, slot: u64) -> Hit<'a> {
        self.slot = slot;
        self
    }

    /// Returns the hit with another overdraft in place of that of the policy's throttle.
    #[must_use]
    pub const fn overdraft(mut self, overdraft: Overdraft) -> Hit<'a> {
        self.overdraft = overdraft;
        self
    }

    /// Returns the hit with a time until which a shared store may decide it, such as the deadline of the caller's own
    /// request. Afterwards the failure mode decides, and the store charges nothing.
    ///
    /// It shortens the store's time budget and never extends it. A memory store decides at once.
    ///
    /// ```
    /// use ratelimit_core::{Key, Policy, store::Hit};
    /// use std::time::{Duration, Instant};
    ///
    /// let policy = Policy::parse("api", "100/min")?;
    /// let key = Key::new("alice")?;
    /// // The caller waits for 20 ms, of which 5 ms are for the way back.
    /// let hit = Hit::new(&policy, &key).deadline(Instant::now() + Duration::from_millis(15));
    /// assert!(hit.deadline.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn deadline(mut self, deadline: Instant) -> Hit<'a> {
        self.deadline = Some(deadline);
        self
    }

    /// Returns the hit as a dry run: it reports whether it would pass and when, and spends nothing.
    #[must_use]
    #[doc(alias = "dry run")]
    pub const fn dry_run(mut self) -> Hit<'a> {
        self.mode = HitMode::DryRun;
        self
    }

    /// Whether the hit spends nothing, whatever the decision. Metrics do not count such a hit.
    pub(crate) const fn is_read_only(&self) -> bool {
        self.cost == 0 || matches!(self.mode, HitMode::DryRun)
    }

    /// Returns the hit with a unique slot number, if its policy has a concurrency limit and it has no number yet.
    #[must_use]
    #[inline]
    pub fn with_slot_id(mut self) -> Hit<'a> {
        if self.slot == 0 && self.policy.has_concurrency_limit() {
            self.slot = slot::new_slot_id();
        }
        self
    }

    /// Returns the hit with a unique number, under any policy. It makes the bytes of its receipt unique, so that two
    /// equal charges in one microsecond can both be settled.
    pub(crate) fn numbered(mut self) -> Hit<'a> {
        if self.slot == 0 {
            self.slot = slot::new_slot_id();
        }
        self
    }

    /// Returns the hit under another policy, such as the local share of its own.
    pub(crate) const fn with_policy<'b>(self, policy: &'b Policy) -> Hit<'b>
    where
        'a: 'b,
    {
        Hit { policy, ..self }
    }

    /// Returns all keys of the hit as an owned set.
    pub fn keys(&self) -> KeySet {
        KeySet::of(self.key, self.others)
    }

    /// The key that a group of limits counts by; the primary key if the hit does not name that one.
    #[inline]
    pub(crate) fn key_for(&self, group: &LimitGroup) -> &'a Key {
        // A linear search: a hit has at most eight named keys.
        let by = group.by.as_deref();
        by.and_then(|by| find(self.others, by)).unwrap_or(self.key)
    }

    /// The key that the limit at `index` of the policy counts by.
    pub(crate) fn key_of_limit(&self, index: usize) -> &'a Key {
        if self.others.is_empty() {
            return self.key;
        }
        let by = self.policy.key_name(index);
        by.and_then(|by| find(self.others, by)).unwrap_or(self.key)
    }

    /// The identity of each budget of the hit: the name of the limit group, and the key.
    pub(crate) fn budget_names(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let groups = self.policy.groups();
        let budget = move |group: &'a LimitGroup| (&*group.name, self.key_for(group).as_str());
        groups.iter().map(budget)
    }

    /// Whether both hits spend from the same budgets under equal limits. The deny cache compares hits by it.
    pub(crate) fn same_budgets_as(&self, other: &Hit<'_>) -> bool {
        self.policy.has_limits_of(other.policy) && self.budget_names().eq(other.budget_names())
    }

    /// Whether every limit could hold the cost with a full budget. If not, the outcome is `Impossible`.
    pub(crate) fn can_ever_fit(&self) -> bool {
        let params = self.params();
        let mut limits = self.policy.groups().iter().flat_map(|group| &group.limits);
        limits.all(|effective| effective.limit.can_ever_fit(effective.demand(params)))
    }

    /// The part of the hit that algorithms need, without policy and keys.
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
    deadline: Option<Instant>,
}

impl OwnedHit {
    /// Copies policy, keys and parameters.
    pub(crate) fn new(hit: Hit<'_>) -> OwnedHit {
        OwnedHit {
            policy: hit.policy.clone(),
            keys: hit.keys(),
            params: hit.params(),
            deadline: hit.deadline,
        }
    }

    /// The hit that was copied.
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
            deadline: self.deadline,
            ..Hit::for_keys(&self.policy, &self.keys)
        }
    }
}
