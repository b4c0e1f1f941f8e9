//! A named set of limits that are decided together, and its settings.

mod enforcement;
mod error;
mod failure_mode;
mod group;
mod prefetch;
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
    throttle::{InvalidThrottle, Throttle},
};
pub(crate) use crate::decision::MAX_LIMITS;
use crate::policy::{enforcement::Enforcement, tiers::Tiers};
use crate::{algorithm::Algorithm, key::is_plain, limit::Limit, metrics::PolicyMetrics};

/// The largest headroom of a throttle, in percent of the limit.
const MAX_PERCENT: u32 = 10_000;

/// The largest share that can be prefetched, in percent of each limit.
const MAX_PREFETCH_PERCENT: u32 = 50;

/// The longest name in `by NAME`, in bytes.
const MAX_KEY_NAME: usize = 64;

/// A name and one to eight limits that are decided together, all or nothing: when one denies, none is
/// charged.
///
/// - The name is part of the stored key. A policy that keeps its name keeps what was spent when its numbers
///   change.
/// - A limit is known by its position. State of the same algorithm at that position is converted, state of
///   another algorithm is ignored.
/// - A policy is immutable and cheap to clone. Each `with_` method returns a changed copy.
///
/// ```
/// use ratelimit_core::{Policy, TokenBucket};
///
/// let written = Policy::parse("login", "5/min; 20/h")?;
/// let built = Policy::new("login", TokenBucket::per_minute(5))?.with_limit(TokenBucket::per_hour(20))?;
/// assert_eq!(written, built);
/// # Ok::<(), ratelimit_core::InvalidPolicy>(())
/// ```
///
/// A limit may count by another key than the hit's own, which it names at its end. All are decided together;
/// see [`Limiter::check_keys`](crate::Limiter::check_keys).
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

/// The settings with what is derived from them once.
#[derive(Debug)]
struct PolicyInner {
    settings: PolicySettings,
    /// The limits by the key that they count by, with the headroom of the throttle added.
    groups: Box<[LimitGroup]>,
    /// Whether a limit is a concurrency limit.
    holds_slots: bool,
    /// The metric handles, made with the first hit: a recorder may be installed after the policy.
    metrics: OnceLock<PolicyMetrics>,
}

/// The settings of a policy; two policies are equal when these are.
#[derive(Clone, Debug, PartialEq)]
struct PolicySettings {
    name: Arc<str>,
    /// The limits as written, without headroom.
    limits: Box<[Limit]>,
    /// The name in `by NAME` for each limit; `None` counts by the hit's own key.
    keys: Box<[Option<Arc<str>>]>,
    throttle: Throttle,
    enforcement: Enforcement,
    /// Overrides the failure mode of the limiter.
    failure_mode: Option<FailureMode>,
    /// The cost of a hit whose caller names none.
    cost: NonZeroU64,
    /// The share of each limit that may be prefetched, in percent.
    prefetch: Option<u32>,
    tiers: Tiers,
}

impl Policy {
    /// The longest name, in bytes.
    pub const MAX_NAME: usize = 100;

    /// Whether `name` can name a policy: 1 to 100 bytes of `A-Z a-z 0-9 . _ : @ -`.
    pub fn is_valid_name(name: &str) -> bool {
        !name.is_empty() && name.len() <= Policy::MAX_NAME && name.bytes().all(is_plain)
    }

    /// A policy of one limit.
    ///
    /// # Errors
    ///
    /// - [`InvalidPolicy::Name`] when `name` is not [valid](Policy::is_valid_name)
    /// - [`InvalidPolicy::OnlyPenalties`] when the limit is a penalty box
    pub fn new(name: &str, limit: impl Into<Limit>) -> Result<Policy, InvalidPolicy> {
        Policy::from_limits(name, [limit.into()])
    }

    /// A policy of several limits, in this order.
    ///
    /// # Errors
    ///
    /// - [`InvalidPolicy::Name`] when `name` is not [valid](Policy::is_valid_name)
    /// - [`InvalidPolicy::Count`] when there are no limits, or more than 8
    /// - [`InvalidPolicy::OnlyPenalties`] when all of them are penalty boxes
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
            prefetch: None,
            tiers: Tiers::default(),
        })
    }

    /// A policy for internal use. Its name ends with a tilde, which no name of an application can contain.
    pub(crate) fn reserved(name: &'static str, limit: impl Into<Limit>) -> Policy {
        debug_assert!(name.ends_with('~'));
        let plain = Policy::new("reserved", limit).expect("the name above is valid");
        let mut settings = plain.0.settings.clone();
        settings.name = name.into();
        Policy::from_settings(settings).expect("it was valid under another name")
    }

    /// A [reserved](Policy::reserved) policy for the hits of `other`. The store queues them apart from those of other
    /// policies. The names of the budgets stay.
    pub(crate) fn reserved_for(&self, other: &Policy) -> Policy {
        let name = format!("{}~", other.name()).into();
        self.map_settings(|settings| settings.name = name)
    }

    /// Checks the settings and derives the groups. Every policy comes from here or from `map_settings`.
    fn from_settings(settings: PolicySettings) -> Result<Policy, InvalidPolicy> {
        let limits = &settings.limits;
        if limits.is_empty() || limits.len() > MAX_LIMITS {
            return Err(InvalidPolicy::Count {
                limits: limits.len(),
            });
        }
        let is_box = |limit: &Limit| limit.algorithm() == Algorithm::PenaltyBox;
        if limits.iter().all(is_box) {
            return Err(InvalidPolicy::OnlyPenalties);
        }
        // Such a limit would answer every hit of the default cost with `Impossible`.
        let too_small =
            |limit: &&Limit| limit.capacity() < settings.cost.get() && limit.counts_units();
        if let Some(limit) = limits.iter().find(too_small) {
            let (cost, limit) = (settings.cost, *limit);
            return Err(InvalidPolicy::Cost { cost, limit });
        }
        let percent = settings.throttle.percent();
        if percent > MAX_PERCENT {
            return Err(InvalidPolicy::Percent { percent });
        }
        if let Some(share) = settings.prefetch {
            prefetch::validate(share, limits)?;
        }
        // The groups are derived last: they depend on limits, keys and throttle.
        let groups = group::groups(&settings.name, limits, &settings.keys, percent)
            .map_err(InvalidPolicy::Ceiling)?;
        let is_concurrency = |limit: &Limit| limit.algorithm() == Algorithm::Concurrency;
        Ok(Policy(Arc::new(PolicyInner {
            holds_slots: limits.iter().any(is_concurrency),
            settings,
            groups,
            metrics: OnceLock::new(),
        })))
    }

    /// A copy after a change that cannot make it invalid. It has metric handles of its own. Limits, keys and
    /// throttle must not change here, because the groups are taken over.
    fn map_settings(&self, change: impl FnOnce(&mut PolicySettings)) -> Policy {
        let mut settings = self.0.settings.clone();
        change(&mut settings);
        Policy(Arc::new(PolicyInner {
            settings,
            groups: self.0.groups.clone(),
            holds_slots: self.0.holds_slots,
            metrics: OnceLock::new(),
        }))
    }

    /// The same for this policy and all of its tiers.
    fn map_all_tiers(&self, change: &impl Fn(&mut PolicySettings)) -> Policy {
        self.map_settings(|settings| {
            change(settings);
            for tier in settings.tiers.policies() {
                *tier = tier.map_all_tiers(change);
            }
        })
    }

    /// A policy from the text of its limits, joined with `;`; [`Limit`] has the grammar.
    ///
    /// A limit may end with `by NAME`: it counts by the key of that name.
    ///
    /// # Errors
    ///
    /// - [`InvalidPolicy::Text`] when a part is not the text of a limit
    /// - [`InvalidPolicy::KeyName`] when the name of a key is not 1 to 64 bytes of `A-Z a-z 0-9 . _ : @ -`
    /// - those of [`Policy::from_limits`]
    pub fn parse(name: &str, limits: &str) -> Result<Policy, InvalidPolicy> {
        // The name and the limits are checked first, then the names of keys.
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

    /// Sets the cost of a hit whose caller names none, for all tiers; 1 unless set.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy::Cost`] when the capacity of a limit is below `cost`, so that no hit could ever pass.
    pub fn with_cost(&self, cost: NonZeroU64) -> Result<Policy, InvalidPolicy> {
        let mut settings = self.0.settings.clone();
        for tier in settings.tiers.policies() {
            *tier = tier.with_cost(cost)?;
        }
        settings.cost = cost;
        Policy::from_settings(settings)
    }

    /// The cost of a hit whose caller names none.
    pub fn cost(&self) -> NonZeroU64 {
        self.0.settings.cost
    }

    /// Adds a limit that counts by the hit's own key. Tiers keep the limits that they have.
    ///
    /// # Errors
    ///
    /// - [`InvalidPolicy::Count`] when there are 8 limits already
    /// - [`InvalidPolicy::Cost`] when the capacity of the limit is below the [cost](Policy::cost) of a hit
    /// - [`InvalidPolicy::Ceiling`] when the limit with the headroom of the throttle cannot be counted
    ///   exactly
    pub fn with_limit(&self, limit: impl Into<Limit>) -> Result<Policy, InvalidPolicy> {
        self.push_limit(limit.into(), None)
    }

    /// Adds a limit that counts by the key named `key`.
    ///
    /// ```
    /// use ratelimit_core::{Policy, TokenBucket};
    ///
    /// let api = Policy::parse("api", "5/min")?.with_limit_by("ip", TokenBucket::per_minute(100))?;
    /// assert_eq!(api.to_string(), "token_bucket 5/min; token_bucket 100/min by ip");
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`InvalidPolicy::KeyName`] when `key` is not 1 to 64 bytes of `A-Z a-z 0-9 . _ : @ -`
    /// - those of [`Policy::with_limit`]
    pub fn with_limit_by(
        &self,
        key: &str,
        limit: impl Into<Limit>,
    ) -> Result<Policy, InvalidPolicy> {
        self.push_limit(limit.into(), Some(key_name(key)?))
    }

    /// Appends a limit and its key. A limit at the end leaves the positions of all others, so nothing is
    /// forgotten.
    fn push_limit(&self, limit: Limit, key: Option<Arc<str>>) -> Result<Policy, InvalidPolicy> {
        let mut settings = self.0.settings.clone();
        settings.limits = settings.limits.into_iter().chain([limit]).collect();
        settings.keys = settings.keys.into_iter().chain([key]).collect();
        Policy::from_settings(settings)
    }

    /// The metric handles of this policy and its limits, made on first use.
    #[inline]
    pub(crate) fn metrics(&self) -> &PolicyMetrics {
        self.0
            .metrics
            .get_or_init(|| PolicyMetrics::new(&self.0.settings.name, self.limits()))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.settings.name
    }

    /// The name without a copy.
    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.0.settings.name
    }

    /// The limits in order, as written.
    pub fn limits(&self) -> &[Limit] {
        &self.0.settings.limits
    }

    /// The names in `by NAME`, each once.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        self.0.groups.iter().filter_map(|group| group.by.as_deref())
    }

    /// The limits of each key in the order of their positions; `None` is the hit's own key.
    ///
    /// ```
    /// use ratelimit_core::Policy;
    ///
    /// let api = Policy::parse("api", "5/min; 100/min by ip; 20/h")?;
    /// let counts = api.limits_by_key().map(|(by, limits)| (by, limits.len()));
    /// assert_eq!(counts.collect::<Vec<_>>(), [(None, 2), (Some("ip"), 1)]);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    pub fn limits_by_key(&self) -> impl Iterator<Item = (Option<&str>, Vec<Limit>)> {
        self.groups().iter().map(|group| {
            let limits = group.limits.iter().map(|known| self.limits()[known.index]);
            (group.by.as_deref(), limits.collect())
        })
    }

    /// The name in `by NAME` of the limit at `index`; `None` if it counts by the hit's own key.
    pub fn key_name(&self, index: usize) -> Option<&str> {
        self.0.settings.keys.get(index)?.as_deref()
    }

    /// The groups of limits that share a key.
    pub(crate) fn groups(&self) -> &[LimitGroup] {
        &self.0.groups
    }

    /// Whether a hit that passes holds a slot until it is released.
    #[inline]
    pub fn has_concurrency_limit(&self) -> bool {
        self.0.holds_slots
    }
}

/// Checks a name of `by NAME`.
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
    /// Writes the text that [`Policy::parse`] reads; the name and other settings are not part of it.
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
