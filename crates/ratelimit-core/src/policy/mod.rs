//! A named set of limits, decided together.

mod enforcement;
mod error;
mod failure_mode;
mod group;
mod redundancy;
mod throttle;
mod tiers;

use std::{
    fmt,
    num::NonZeroU64,
    sync::{Arc, OnceLock},
};

pub(crate) use self::group::{EffectiveLimit, HitParams, LimitGroup};
pub use self::{
    error::InvalidPolicy,
    failure_mode::FailureMode,
    group::{HitMode, Overdraft},
    redundancy::RedundantLimit,
    throttle::{InvalidThrottle, Throttle},
};
use crate::policy::{enforcement::Enforcement, tiers::Tiers};
use crate::{algorithm::Algorithm, key::is_plain, limit::Limit, metrics::PolicyMetrics};

/// The most limits of one policy.
pub(crate) const MOST_LIMITS: usize = 8;
const MAX_KEY_NAME: usize = 64;

/// A named set of limits, decided together: when one denies, none is charged.
///
/// The name is part of the stored key, so a policy that keeps its name keeps what was spent when
/// its numbers change. A limit is known by its place: state of another algorithm at that place is
/// forgotten, state of the same is converted.
///
/// ```
/// use ratelimit_core::{FixedWindow, Policy, TokenBucket};
///
/// let written = Policy::parse("login", "5/min; 20/h")?;
/// let built = Policy::new("login", TokenBucket::per_minute(5))?.with_limit(TokenBucket::per_hour(20))?;
/// assert_eq!(written, built);
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
///
/// A limit may count by another key than the hit's own, which it names at its end. All are decided
/// together; see [`Limiter::check_keys`](crate::Limiter::check_keys).
///
/// ```
/// use ratelimit_core::Policy;
///
/// let api = Policy::parse("api", "5/min; 100/min by ip; 1000/min by route")?;
/// assert_eq!(api.key_names().collect::<Vec<_>>(), ["ip", "route"]);
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy(Arc<PolicyInner>);

#[derive(Debug)]
struct PolicyInner {
    settings: PolicySettings,
    groups: Box<[LimitGroup]>,
    holds_slots: bool,
    meters: OnceLock<PolicyMetrics>,
}

/// All that makes a policy what it is.
#[derive(Clone, Debug, PartialEq)]
struct PolicySettings {
    name: Arc<str>,
    limits: Box<[Limit]>,
    /// The name of the key that each limit counts by, where it is not the hit's own.
    keys: Box<[Option<Arc<str>>]>,
    throttle: Throttle,
    enforcement: Enforcement,
    failure_mode: Option<FailureMode>,
    /// What a hit costs where its caller names no cost.
    cost: NonZeroU64,
    tiers: Tiers,
}

impl Policy {
    /// The longest name of a policy, in bytes.
    pub const MAX_NAME: usize = 100;

    /// Whether `name` can be that of a policy: 1 to 100 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn is_valid_name(name: &str) -> bool {
        !name.is_empty() && name.len() <= Policy::MAX_NAME && name.bytes().all(is_plain)
    }

    /// A policy of one limit.
    ///
    /// # Errors
    ///
    /// When `name` is not 1 to 100 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn new(name: &str, limit: impl Into<Limit>) -> Result<Policy, InvalidPolicy> {
        Policy::from_limits(name, [limit.into()])
    }

    /// A policy of several limits.
    ///
    /// # Errors
    ///
    /// When `name` is not 1 to 100 of `A-Z a-z 0-9 . _ : @ -`, there are no limits or more than 8, or
    /// all of them are penalty boxes.
    pub fn from_limits(
        name: &str,
        limits: impl IntoIterator<Item = Limit>,
    ) -> Result<Policy, InvalidPolicy> {
        if !Policy::is_valid_name(name) {
            return Err(InvalidPolicy::Name {
                name: name.to_owned(),
            });
        }
        let limits: Box<[Limit]> = limits.into_iter().collect();
        Policy::from_settings(PolicySettings {
            name: name.into(),
            keys: vec![None; limits.len()].into(),
            limits,
            throttle: Throttle::Hard,
            enforcement: Enforcement::FULL,
            failure_mode: None,
            cost: NonZeroU64::MIN,
            tiers: Tiers::default(),
        })
    }

    /// A policy of our own, under a name that no other can have: one with a tilde.
    pub(crate) fn reserved(name: &'static str, limit: impl Into<Limit>) -> Policy {
        debug_assert!(name.ends_with('~'));
        let plain = Policy::new("reserved", limit).expect("the name above is valid");
        let mut settings = plain.0.settings.clone();
        settings.name = name.into();
        Policy::from_settings(settings).expect("it was valid under another name")
    }

    fn from_settings(settings: PolicySettings) -> Result<Policy, InvalidPolicy> {
        let limits = &settings.limits;
        if limits.is_empty() || limits.len() > MOST_LIMITS {
            return Err(InvalidPolicy::Count {
                limits: limits.len(),
            });
        }
        let is_box = |limit: &Limit| limit.algorithm() == Algorithm::PenaltyBox;
        if limits.iter().all(is_box) {
            return Err(InvalidPolicy::OnlyPenalties);
        }
        let too_small =
            |limit: &&Limit| limit.capacity() < settings.cost.get() && limit.counts_units();
        if let Some(limit) = limits.iter().find(too_small) {
            let (cost, limit) = (settings.cost, *limit);
            return Err(InvalidPolicy::Cost { cost, limit });
        }
        let percent = settings.throttle.percent();
        if percent > throttle::MAX_PERCENT {
            return Err(InvalidPolicy::Percent { percent });
        }
        let groups = group::groups(&settings.name, limits, &settings.keys, percent)
            .map_err(InvalidPolicy::Ceiling)?;
        let is_concurrency = |limit: &Limit| limit.algorithm() == Algorithm::Concurrency;
        Ok(Policy(Arc::new(PolicyInner {
            holds_slots: limits.iter().any(is_concurrency),
            settings,
            groups,
            meters: OnceLock::new(),
        })))
    }

    /// The same policy after a change that cannot make it invalid.
    fn map_settings(&self, change: impl FnOnce(&mut PolicySettings)) -> Policy {
        let mut settings = self.0.settings.clone();
        change(&mut settings);
        Policy(Arc::new(PolicyInner {
            settings,
            groups: self.0.groups.clone(),
            holds_slots: self.0.holds_slots,
            meters: OnceLock::new(),
        }))
    }

    /// The same policy after a change to it and to its tiers that cannot make them invalid.
    fn map_all_tiers(&self, change: &impl Fn(&mut PolicySettings)) -> Policy {
        self.map_settings(|settings| {
            change(settings);
            for tier in settings.tiers.policies() {
                *tier = tier.map_all_tiers(change);
            }
        })
    }

    /// A policy from the text of its limits, joined by `;`.
    ///
    /// # Errors
    ///
    /// As [`Policy::from_limits`], and when the text is not that of limits.
    pub fn parse(name: &str, limits: &str) -> Result<Policy, InvalidPolicy> {
        let parts = Limit::parse_list_keyed(limits).map_err(InvalidPolicy::Text)?;
        let mut settings = Policy::from_limits(name, parts.iter().map(|(limit, _)| *limit))?
            .0
            .settings
            .clone();
        for ((_, by), key) in parts.into_iter().zip(&mut settings.keys) {
            *key = by.map(key_name).transpose()?;
        }
        Policy::from_settings(settings)
    }

    /// The same policy, whose hits cost that much where their caller names no cost; 1 unless set.
    ///
    /// # Errors
    ///
    /// When a limit is smaller than that, so that no hit would ever pass.
    pub fn with_cost(&self, cost: NonZeroU64) -> Result<Policy, InvalidPolicy> {
        let mut settings = self.0.settings.clone();
        for tier in settings.tiers.policies() {
            *tier = tier.with_cost(cost)?;
        }
        settings.cost = cost;
        Policy::from_settings(settings)
    }

    /// What a hit costs where its caller names no cost.
    pub fn cost(&self) -> NonZeroU64 {
        self.0.settings.cost
    }

    /// The same policy with one more limit.
    ///
    /// # Errors
    ///
    /// When it has 8 limits already, or the new one can never pay what a hit costs.
    pub fn with_limit(&self, limit: impl Into<Limit>) -> Result<Policy, InvalidPolicy> {
        self.push_limit(limit.into(), None)
    }

    /// The same policy with one more limit, which counts by the key named `key`.
    ///
    /// # Errors
    ///
    /// When it has 8 limits already, or `key` is not 1 to 64 of `A-Z a-z 0-9 . _ : @ -`.
    pub fn with_limit_by(
        &self,
        key: &str,
        limit: impl Into<Limit>,
    ) -> Result<Policy, InvalidPolicy> {
        self.push_limit(limit.into(), Some(key_name(key)?))
    }

    fn push_limit(&self, limit: Limit, key: Option<Arc<str>>) -> Result<Policy, InvalidPolicy> {
        let mut settings = self.0.settings.clone();
        settings.limits = settings.limits.into_iter().chain([limit]).collect();
        settings.keys = settings.keys.into_iter().chain([key]).collect();
        Policy::from_settings(settings)
    }

    #[inline]
    pub(crate) fn metrics(&self) -> &PolicyMetrics {
        self.0
            .meters
            .get_or_init(|| PolicyMetrics::new(&self.0.settings.name, self.limits()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.settings.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.0.settings.name
    }

    /// Its limits, in order.
    pub fn limits(&self) -> &[Limit] {
        &self.0.settings.limits
    }

    /// The names of the keys that limits count by beside the hit's own, each once.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        self.0.groups.iter().filter_map(|group| group.by.as_deref())
    }

    /// The limits in the order in which they are known, for each key that they count by: `None` is the
    /// hit's own key.
    pub fn limits_by_key(&self) -> impl Iterator<Item = (Option<&str>, Vec<Limit>)> {
        self.groups().iter().map(|group| {
            let limits = group.limits.iter().map(|known| self.limits()[known.index]);
            (group.by.as_deref(), limits.collect())
        })
    }

    /// The limits that share a key, for each key.
    pub(crate) fn groups(&self) -> &[LimitGroup] {
        &self.0.groups
    }

    /// Whether a hit that passes holds a slot until it is given back.
    #[inline]
    pub fn has_concurrency_limit(&self) -> bool {
        self.0.holds_slots
    }
}

fn key_name(name: &str) -> Result<Arc<str>, InvalidPolicy> {
    if name.is_empty() || name.len() > MAX_KEY_NAME || !name.bytes().all(is_plain) {
        return Err(InvalidPolicy::KeyName {
            name: name.to_owned(),
        });
    }
    Ok(name.into())
}

impl PartialEq for Policy {
    fn eq(&self, other: &Policy) -> bool {
        self.0.settings == other.0.settings
    }
}

impl Eq for Policy {}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keyed = self.limits().iter().zip(&self.0.settings.keys);
        for (index, (limit, by)) in keyed.enumerate() {
            let joint = if index == 0 { "" } else { "; " };
            write!(f, "{joint}{limit}")?;
            if let Some(by) = by {
                write!(f, " by {by}")?;
            }
        }
        Ok(())
    }
}
