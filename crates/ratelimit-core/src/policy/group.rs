//! The limits of a policy by key, each with the headroom of the throttle.

use std::{
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::Arc,
};

use crate::policy::Policy;
use crate::{
    algorithm::{Bucket, Demand, InvalidLimit, StepResult},
    decision::{ChargedLimit, LimitDecision},
    limit::Limit,
};

/// The limits of a policy that count by one key. Their states form one budget: one entry in memory,
/// one value in Redis.
///
/// `5/min; 100/min by ip; 20/h` of the policy `api` has two groups:
///
/// | `by` | `name` | limits |
/// |---|---|---|
/// | `None` | `api` | `5/min`, `20/h` |
/// | `ip` | `api~ip` | `100/min` |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitGroup {
    /// The name in `by NAME`; `None` is the hit's own key.
    pub(crate) by: Option<Arc<str>>,
    /// The name under which the budget is stored: `policy`, or `policy~by` for a named key.
    pub(crate) name: Arc<str>,
    /// The hash of `name`, computed once so that the memory store does not hash the name on each
    /// hit.
    pub(crate) name_hash: u64,
    /// The limits in the order of the policy.
    pub(crate) limits: Box<[EffectiveLimit]>,
}

/// A limit with the headroom of the throttle: stores count up to the ceiling, users see the plain
/// limit.
///
/// `100/min` with `soft 10%` has a headroom of 10 and a ceiling of 110:
///
/// | spent | remaining to the ceiling | reported `remaining` | `is_over` |
/// |---|---|---|---|
/// | 99 | 11 | 1 | no |
/// | 100 | 10 | 0 | no |
/// | 101 | 9 | 0 | yes |
/// | 110 | 0 | 0 | yes |
///
/// A hit without overdraft requires the headroom of 10 to stay free, so it is denied from 100 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectiveLimit {
    /// The limit with its capacity raised to the ceiling.
    pub(crate) limit: Limit,
    /// The headroom in units: the ceiling minus the plain capacity; 0 for a hard throttle.
    extra: u64,
    /// The position of the limit in its policy.
    pub(crate) index: usize,
}

/// The parameters of a hit, the same for all limits of its policy.
///
/// [`EffectiveLimit::demand`] turns them into the demand of one limit. They hold neither key nor
/// time: the store has found the budget and read its clock before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HitParams {
    /// The units to spend; 0 for a peek.
    pub(crate) cost: u64,
    /// The id of the concurrency slot; 0 without one.
    pub(crate) slot: u64,
    /// Whether the headroom may be used.
    pub(crate) overdraft: Overdraft,
    /// Whether to charge or only to decide.
    pub(crate) mode: HitMode,
}

/// Whether a hit may use the headroom that a [`Throttle`](crate::Throttle) adds to its limits.
///
/// [`Hit::new`](crate::store::Hit::new) sets it: a soft throttle always allows the headroom, an elastic one
/// while its load signal has capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overdraft {
    /// Up to the ceiling: the limit plus its headroom.
    Allowed,
    /// Up to the plain limit.
    Refused,
}

/// Whether a hit spends its cost.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let (limiter, alice) = (Limiter::in_memory(), Key::new("alice")?);
/// let export = Policy::parse("export", "10/h")?;
/// assert!(limiter.dry_run(&export, &alice, 10).await.is_allowed());
/// assert!(limiter.check_cost(&export, &alice, 10).await.is_allowed());
/// assert!(!limiter.dry_run(&export, &alice, 1).await.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HitMode {
    /// The hit spends its cost if it passes.
    Charge,
    /// The hit is decided as if it were charged, and nothing is written.
    #[doc(alias = "dry run")]
    DryRun,
}

impl EffectiveLimit {
    /// Whether the throttle raises this limit.
    pub(super) const fn has_headroom(&self) -> bool {
        self.extra > 0
    }

    /// Adds `percent` of the capacity, rounded down to whole units. A penalty box gets no headroom.
    pub(super) fn new(
        limit: Limit,
        percent: u32,
        index: usize,
    ) -> Result<EffectiveLimit, InvalidLimit> {
        let extra = match limit {
            Limit::PenaltyBox(_) => 0,
            _ => u128::from(limit.capacity()) * u128::from(percent) / 100,
        };
        // The product needs 128 bits. A headroom beyond 64 bits fails in `raised`.
        let extra = u64::try_from(extra).unwrap_or(u64::MAX);
        Ok(EffectiveLimit {
            limit: limit.raised(extra)?,
            extra,
            index,
        })
    }

    /// The bucket, if this is a token bucket without headroom: the condition of the fast path.
    #[inline]
    pub(crate) const fn as_hard_token_bucket(&self) -> Option<&Bucket> {
        match &self.limit {
            Limit::TokenBucket(plain) if self.extra == 0 => Some(&plain.bucket),
            _ => None,
        }
    }

    /// The demand of a hit. Without overdraft the headroom is reserved, so that the hit is compared
    /// with the plain limit although the state is counted against the ceiling.
    ///
    /// A limit that counts no units has the same demand for every cost above 0.
    #[inline]
    pub(crate) fn demand(&self, params: HitParams) -> Demand {
        Demand {
            cost: if self.limit.counts_units() {
                params.cost
            } else {
                params.cost.min(1)
            },
            reserve: match params.overdraft {
                Overdraft::Allowed => 0,
                Overdraft::Refused => self.extra,
            },
            slot: params.slot,
        }
    }

    /// The decision and the mark of a step of this limit.
    #[inline]
    pub(crate) fn charged(&self, step: &StepResult) -> ChargedLimit {
        ChargedLimit {
            index: self.index,
            decision: self.report(step.decision, step.charged),
            mark: step.mark,
        }
    }

    /// Turns the numbers of the ceiling into those of the plain limit, and marks a hit that used
    /// the headroom. A penalty box is reported only when it denies.
    #[inline]
    pub(crate) fn report(&self, mut decision: LimitDecision, charged: u64) -> LimitDecision {
        decision.is_silent = matches!(self.limit, Limit::PenaltyBox(_));
        // `remaining` counts up to the ceiling here: below the headroom means beyond the plain
        // limit.
        decision.is_over = charged > 0 && decision.remaining < self.extra;
        decision.remaining = decision.remaining.saturating_sub(self.extra);
        decision.limit -= self.extra;
        decision
    }
}

impl Policy {
    /// The most entries that a hit reads: the limits of logs and the slots of concurrency limits, with the headroom of the
    /// throttle.
    ///
    /// A Redis server reads and writes all of them for each hit, about 0.1 µs for each, and serves no other client
    /// meanwhile.
    ///
    /// ```
    /// use ratelimit_core::Policy;
    ///
    /// let policy = Policy::parse("api", "sliding_window_log 100/min; concurrency 20; 1000000/d")?;
    /// assert_eq!(policy.max_entries(), 120);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    pub fn max_entries(&self) -> u64 {
        let limits = self.groups().iter().flat_map(|group| &group.limits);
        limits.map(|effective| effective.limit.max_entries()).sum()
    }

    /// Whether a limit counts units, as all but concurrency limits and penalty boxes do.
    pub(crate) fn counts_units(&self) -> bool {
        self.limits().iter().any(Limit::counts_units)
    }

    /// Whether both are clones of one policy.
    #[cfg(feature = "tokio")]
    #[inline]
    pub(crate) fn is_same_as(&self, other: &Policy) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether both have equal limits, headroom and keys at each position, so that their hits can
    /// share a batch.
    pub(crate) fn has_limits_of(&self, other: &Policy) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.groups == other.0.groups
    }
}

/// Groups the limits by key, in the order in which the keys first appear.
pub(super) fn groups(
    policy: &Arc<str>,
    limits: &[Limit],
    keys: &[Option<Arc<str>>],
    percent: u32,
) -> Result<Box<[LimitGroup]>, InvalidLimit> {
    let mut groups: Vec<(Option<Arc<str>>, Vec<EffectiveLimit>)> = Vec::new();
    for (index, (limit, by)) in limits.iter().zip(keys).enumerate() {
        let effective = EffectiveLimit::new(*limit, percent, index)?;
        match groups.iter_mut().find(|(known, _)| known == by) {
            Some((_, limits)) => limits.push(effective),
            None => groups.push((by.clone(), vec![effective])),
        }
    }
    let named = |(by, limits): (Option<Arc<str>>, Vec<EffectiveLimit>)| {
        // A policy name cannot contain a tilde, so no other policy stores its budgets under this
        // name.
        let name = match &by {
            Some(by) => format!("{policy}~{by}").into(),
            None => Arc::clone(policy),
        };
        LimitGroup {
            by,
            name_hash: hash_of(&name),
            name,
            limits: limits.into(),
        }
    };
    Ok(groups.into_iter().map(named).collect())
}

/// A hash that is the same in the whole process.
fn hash_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
