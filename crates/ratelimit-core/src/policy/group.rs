//! The limits of a policy that share a key, and how far each may be exceeded.

use std::{
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::Arc,
};

use crate::policy::Policy;
use crate::{
    algorithm::{Bucket, Demand, InvalidLimit},
    decision::LimitDecision,
    limit::Limit,
};

/// The limits of a policy that share a key: their states are kept together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitGroup {
    /// The name of the key that they count by, where it is not the hit's own.
    pub(crate) by: Option<Arc<str>>,
    /// The name under which their states are kept.
    pub(crate) name: Arc<str>,
    /// Reckoned once, so that no hit has to.
    pub(crate) name_hash: u64,
    pub(crate) limits: Box<[EffectiveLimit]>,
}

/// One limit, and how far it may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectiveLimit {
    /// The limit with its ceiling in place of its number.
    pub(crate) limit: Limit,
    /// How far the ceiling lies above that number.
    extra: u64,
    /// The limit's place in its policy.
    pub(crate) index: usize,
}

/// What is asked of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HitParams {
    pub(crate) cost: u64,
    pub(crate) slot: u64,
    pub(crate) overdraft: Overdraft,
    pub(crate) mode: HitMode,
}

/// Whether a hit may go beyond a limit, as far as the policy's throttle mode has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overdraft {
    /// Up to the ceiling.
    Allowed,
    /// Up to the limit.
    Refused,
}

/// Whether a hit is meant, or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HitMode {
    /// It spends its cost when it passes.
    Charge,
    /// It spends nothing, and tells whether it would pass and when.
    DryRun,
}

impl EffectiveLimit {
    pub(super) fn new(
        limit: Limit,
        percent: u32,
        index: usize,
    ) -> Result<EffectiveLimit, InvalidLimit> {
        let extra = match limit {
            Limit::PenaltyBox(_) => 0,
            _ => u128::from(limit.capacity()) * u128::from(percent) / 100,
        };
        let extra = u64::try_from(extra).unwrap_or(u64::MAX);
        Ok(EffectiveLimit {
            limit: limit.raised(extra)?,
            extra,
            index,
        })
    }

    /// Its arithmetic, where it is a token bucket that is never exceeded.
    #[inline]
    pub(crate) const fn as_hard_token_bucket(&self) -> Option<&Bucket> {
        match &self.limit {
            Limit::TokenBucket(plain) if self.extra == 0 => Some(&plain.bucket),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn demand(&self, params: HitParams) -> Demand {
        Demand {
            cost: params.cost,
            reserve: match params.overdraft {
                Overdraft::Allowed => 0,
                Overdraft::Refused => self.extra,
            },
            slot: params.slot,
        }
    }

    /// What users see: the numbers of the limit, not those of its ceiling.
    #[inline]
    pub(crate) fn report(&self, mut decision: LimitDecision, charged: u64) -> LimitDecision {
        decision.is_over = charged > 0 && decision.remaining < self.extra;
        decision.remaining = decision.remaining.saturating_sub(self.extra);
        decision.limit -= self.extra;
        decision
    }
}

impl Policy {
    /// Whether every limit, with its ceiling and its key, is the same at its place.
    pub(crate) fn has_limits_of(&self, other: &Policy) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.groups == other.0.groups
    }
}

/// Puts the limits of a policy into groups, one for each key that is named.
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
        // A tilde stands in no policy's name, so that no other policy keeps its states there.
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

fn hash_of(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
