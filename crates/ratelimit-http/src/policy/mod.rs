//! Policies for HTTP requests: rules, cost sources and settlement.

mod cost;
mod path;
mod rule;
mod rule_keys;
mod status;

use std::{fmt, num::NonZeroU64, sync::Arc};

use ratelimit_core::{FailureMode, InvalidPolicy, Key, Limit, Policy, Throttle};

use self::{cost::largest, path::PathReadings};
pub use self::{
    cost::{CostSource, SettleSource},
    rule::{BlockStatus, Rule, RuleOutcome, RuleRequest},
    status::StatusSet,
};
use crate::{client_ip::HeaderLines, key::RuleKey};

/// A [`Policy`] with its terms for HTTP requests.
///
/// - [Rules](Rule) exempt or block requests before the limits are checked; blocking has precedence.
/// - [`CostSource`] takes the cost of a request from its headers.
/// - [`with_charge_on`](Self::with_charge_on) and [`SettleSource`] refund or correct the charge by the
///   response.
/// - All terms apply to every tier of the policy.
///
/// A [`Policy`] converts into an `HttpPolicy` without terms. The setters of [`Policy`] are available
/// here too, so a chain of setters does not change its type.
///
/// ```
/// use ratelimit_http::policy::HttpPolicy;
///
/// let login = HttpPolicy::parse("login", "10/h; 5/min by ip")?
///     .with_charge_on("401".parse()?)
///     .with_tier("staff", "100/h")?;
/// assert_eq!(login.name(), "login");
/// assert!(login.needs_reservation());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "quota")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpPolicy {
    policy: Policy,
    terms: Arc<RequestTerms>,
}

/// The terms of a policy for requests. Clones share them; a setter copies them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RequestTerms {
    exempt: Vec<Rule>,
    blocked: Vec<Rule>,
    block_status: BlockStatus,
    cost_source: CostSource,
    charge_on: Option<StatusSet>,
    settle_source: Option<SettleSource>,
    /// Tenants that are secrets, one of each kind.
    secret_tenants: Vec<RuleKey>,
}

impl From<Policy> for HttpPolicy {
    /// A policy without terms: no rules, its own cost, and a charge that is final.
    fn from(policy: Policy) -> HttpPolicy {
        HttpPolicy {
            policy,
            terms: Arc::default(),
        }
    }
}

impl fmt::Display for HttpPolicy {
    /// Writes the limits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.policy.fmt(f)
    }
}

impl HttpPolicy {
    /// A policy from the text of its limits, joined by `;`.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] if the name or a limit is invalid, as in [`Policy::parse`].
    pub fn parse(name: &str, limits: &str) -> Result<HttpPolicy, InvalidPolicy> {
        Policy::parse(name, limits).map(HttpPolicy::from)
    }

    /// The policy of the engine, without the terms for requests.
    #[inline]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The name of the policy.
    pub fn name(&self) -> &str {
        self.policy.name()
    }

    /// Exempts the requests that match `rule`: they pass and are not counted.
    ///
    /// ```
    /// use ratelimit_core::Key;
    /// use ratelimit_http::policy::{RuleRequest, HttpPolicy, RuleOutcome};
    ///
    /// let api = HttpPolicy::parse("api", "10/min")?
    ///     .with_exempt_rule("path:/health".parse()?)
    ///     .with_block_rule("203.0.113.0/24".parse()?);
    ///
    /// let (alice, no_headers): (_, &[(&str, &str)]) = (Key::new("alice")?, &[]);
    /// let request = RuleRequest::new(&alice, "/health", no_headers);
    /// assert_eq!(api.evaluate(&request), RuleOutcome::Exempt);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "allowlist")]
    #[doc(alias = "skip")]
    #[must_use]
    #[doc(alias = "whitelist")]
    pub fn with_exempt_rule(self, rule: Rule) -> HttpPolicy {
        self.map_terms(|terms| terms.exempt.push(rule.in_lower_case()))
    }

    /// Blocks the requests that match `rule`: they are rejected and spend nothing, even if another rule
    /// exempts them.
    ///
    /// ```
    /// use ratelimit_core::Key;
    /// use ratelimit_http::policy::{BlockStatus, HttpPolicy, RuleOutcome, RuleRequest};
    ///
    /// let api = HttpPolicy::parse("api", "10/min")?.with_block_rule("header:x-scanner".parse()?);
    /// let (key, headers) = (Key::new("alice")?, [("X-Scanner", "1")]);
    /// let request = RuleRequest::new(&key, "/", &headers[..]);
    /// assert_eq!(api.evaluate(&request), RuleOutcome::Blocked(BlockStatus::Forbidden));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "denylist")]
    #[must_use]
    #[doc(alias = "blacklist")]
    pub fn with_block_rule(self, rule: Rule) -> HttpPolicy {
        self.map_terms(|terms| terms.blocked.push(rule.in_lower_case()))
    }

    /// Sets the status of blocked requests. The default is [`BlockStatus::Forbidden`].
    #[must_use]
    pub fn with_block_status(self, status: BlockStatus) -> HttpPolicy {
        self.map_terms(|terms| terms.block_status = status)
    }

    /// The outcome of the rules for a request. Blocking has precedence over exemption.
    pub fn evaluate<H: HeaderLines + ?Sized>(&self, request: &RuleRequest<'_, H>) -> RuleOutcome {
        let terms = &self.terms;
        let path = PathReadings::new(request.path);
        let mut blocked = terms.blocked.iter();
        if blocked.any(|rule| rule.could_match(request, &path)) {
            return RuleOutcome::Blocked(terms.block_status);
        }
        if terms
            .exempt
            .iter()
            .any(|rule| rule.matches_exactly(request))
        {
            return RuleOutcome::Exempt;
        }
        RuleOutcome::Limited
    }

    /// Whether the policy has rules, so that requests have to be [evaluated](HttpPolicy::evaluate).
    pub fn has_rules(&self) -> bool {
        !self.terms.blocked.is_empty() || !self.terms.exempt.is_empty()
    }

    /// Takes the cost of a request from `source`. The default is [`CostSource::Fixed`].
    #[must_use]
    pub fn with_cost_source(self, source: CostSource) -> HttpPolicy {
        self.map_terms(|terms| terms.cost_source = source.in_lower_case())
    }

    /// The source of a request's cost.
    pub fn cost_source(&self) -> &CostSource {
        &self.terms.cost_source
    }

    /// The cost of a request with these headers. It is at least 1.
    ///
    /// ```
    /// use ratelimit_http::policy::{CostSource, HttpPolicy};
    ///
    /// let source = CostSource::Header("x-tokens".to_owned());
    /// let llm = HttpPolicy::parse("llm", "1000/min")?.with_cost_source(source);
    ///
    /// assert_eq!(llm.cost_of_request([("X-Tokens", "400")].as_slice()).get(), 400);
    /// assert_eq!(llm.cost_of_request([("X-Tokens", "some")].as_slice()).get(), 1);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    pub fn cost_of_request<H: HeaderLines + ?Sized>(&self, headers: &H) -> NonZeroU64 {
        let source = self.cost_source();
        let named = source.field().and_then(|name| largest(headers.lines(name)));
        let named = match source {
            CostSource::ContentLength => named.map(|length| length.max(1)),
            CostSource::Fixed | CostSource::Header(_) => named,
        };
        let cost = named.and_then(NonZeroU64::new);
        cost.unwrap_or(self.policy.cost())
    }

    /// Refunds a request unless its response has one of these statuses.
    ///
    /// A login that is charged on 401 limits wrong passwords and leaves users with the right password
    /// alone.
    ///
    /// ```
    /// use ratelimit_http::policy::HttpPolicy;
    ///
    /// let login = HttpPolicy::parse("login", "5/min")?.with_charge_on("401, 403".parse()?);
    /// assert!(login.charge_on().is_some_and(|statuses| statuses.contains(401)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_charge_on(self, statuses: StatusSet) -> HttpPolicy {
        self.map_terms(|terms| terms.charge_on = Some(statuses))
    }

    /// The statuses for which a request stays charged, or `None` for all.
    pub fn charge_on(&self) -> Option<&StatusSet> {
        self.terms.charge_on.as_ref()
    }

    /// Settles a request at the actual cost that its response contains.
    ///
    /// The request is charged its cost before it is served. After the response the difference to the actual
    /// cost is refunded or charged, even if that exceeds the limit.
    ///
    /// ```
    /// use ratelimit_http::policy::HttpPolicy;
    ///
    /// // Charge 1000 tokens in advance, and settle at the number that the model used.
    /// let llm = HttpPolicy::parse("llm", "100000/h")?
    ///     .with_cost(1000.try_into()?)?
    ///     .with_settle_source("header:x-tokens-used".parse()?);
    /// assert!(llm.needs_reservation());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_settle_source(self, source: SettleSource) -> HttpPolicy {
        self.map_terms(|terms| terms.settle_source = Some(source.in_lower_case()))
    }

    /// The source of a request's actual cost, or `None` if the charge is final.
    pub fn settle_source(&self) -> Option<&SettleSource> {
        self.terms.settle_source.as_ref()
    }

    /// Whether the charge of a request can change after its response, or holds a concurrency slot.
    ///
    /// Such a request is decided with [`Limiter::reserve`](ratelimit_core::Limiter::reserve).
    pub fn needs_reservation(&self) -> bool {
        let tiers = self.policy.tiers().map(|(_, tier)| tier);
        self.terms.charge_on.is_some()
            || self.terms.settle_source.is_some()
            || std::iter::once(&self.policy)
                .chain(tiers)
                .any(Policy::has_concurrency_limit)
    }

    /// Adds a limit: [`Policy::with_limit`].
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`], as in [`Policy::with_limit`].
    pub fn with_limit(self, limit: impl Into<Limit>) -> Result<HttpPolicy, InvalidPolicy> {
        self.try_map_policy(|policy| policy.with_limit(limit))
    }

    /// Adds a limit that counts by the key called `key`: [`Policy::with_limit_by`].
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`], as in [`Policy::with_limit_by`].
    pub fn with_limit_by(
        self,
        key: &str,
        limit: impl Into<Limit>,
    ) -> Result<HttpPolicy, InvalidPolicy> {
        self.try_map_policy(|policy| policy.with_limit_by(key, limit))
    }

    /// Sets the cost of a request: [`Policy::with_cost`].
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`], as in [`Policy::with_cost`].
    pub fn with_cost(self, cost: NonZeroU64) -> Result<HttpPolicy, InvalidPolicy> {
        self.try_map_policy(|policy| policy.with_cost(cost))
    }

    /// Sets how requests over the limit are treated: [`Policy::with_throttle`].
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`], as in [`Policy::with_throttle`].
    pub fn with_throttle(self, throttle: Throttle) -> Result<HttpPolicy, InvalidPolicy> {
        self.try_map_policy(|policy| policy.with_throttle(throttle))
    }

    /// Adds a tier with limits of its own: [`Policy::with_tier`].
    ///
    /// ```
    /// use ratelimit_http::policy::HttpPolicy;
    ///
    /// let api = HttpPolicy::parse("api", "10/min")?.with_tier("pro", "1000/min")?;
    /// assert_eq!(api.policy().tier("pro").to_string(), "token_bucket 1000/min");
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`], as in [`Policy::with_tier`].
    pub fn with_tier(self, name: &str, limits: &str) -> Result<HttpPolicy, InvalidPolicy> {
        self.try_map_policy(|policy| policy.with_tier(name, limits))
    }

    /// Sets the function that names the tier of a key: [`Policy::with_tier_resolver`].
    #[must_use]
    pub fn with_tier_resolver(
        self,
        resolver: impl Fn(&Key) -> Option<String> + Send + Sync + 'static,
    ) -> HttpPolicy {
        self.map_policy(|policy| policy.with_tier_resolver(resolver))
    }

    /// Sets the behaviour while the store is unavailable: [`Policy::with_failure_mode`].
    #[doc(alias = "fail open")]
    #[must_use]
    pub fn with_failure_mode(self, mode: FailureMode) -> HttpPolicy {
        self.map_policy(|policy| policy.with_failure_mode(mode))
    }

    /// Enforces the policy for a percentage of keys: [`Policy::with_enforcement`].
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`], as in [`Policy::with_enforcement`].
    pub fn with_enforcement(self, percent: u8) -> Result<HttpPolicy, InvalidPolicy> {
        self.try_map_policy(|policy| policy.with_enforcement(percent))
    }

    /// Decides and counts, and denies nothing: [`Policy::shadow`].
    #[doc(alias = "dry run")]
    #[must_use]
    pub fn shadow(self) -> HttpPolicy {
        self.map_policy(Policy::shadow)
    }

    /// Applies a setter of [`Policy`] that cannot fail.
    fn map_policy(self, change: impl FnOnce(&Policy) -> Policy) -> HttpPolicy {
        HttpPolicy {
            policy: change(&self.policy),
            terms: self.terms,
        }
    }

    /// Applies a setter of [`Policy`] that can fail.
    fn try_map_policy(
        self,
        change: impl FnOnce(&Policy) -> Result<Policy, InvalidPolicy>,
    ) -> Result<HttpPolicy, InvalidPolicy> {
        Ok(HttpPolicy {
            policy: change(&self.policy)?,
            terms: self.terms,
        })
    }

    /// Changes the terms, which are copied if a clone shares them.
    fn map_terms(self, change: impl FnOnce(&mut RequestTerms)) -> HttpPolicy {
        let mut terms = Arc::unwrap_or_clone(self.terms);
        change(&mut terms);
        HttpPolicy {
            policy: self.policy,
            terms: Arc::new(terms),
        }
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_core::TokenBucket;

    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn api() -> HttpPolicy {
        HttpPolicy::parse("api", "100/min").unwrap()
    }

    /// A policy with every term.
    fn all_terms(policy: &HttpPolicy) -> HttpPolicy {
        policy
            .clone()
            .with_exempt_rule(rule("path:/health"))
            .with_block_rule(rule("key:mallory"))
            .with_block_status(BlockStatus::TooManyRequests)
            .with_cost_source(CostSource::ContentLength)
            .with_charge_on("401".parse().unwrap())
            .with_settle_source(SettleSource::ResponseBytes)
    }

    fn outcome(policy: &HttpPolicy, key: &str, path: &str) -> RuleOutcome {
        let (key, headers): (Key, &[(&str, &str)]) = (Key::new(key).unwrap(), &[]);
        policy.evaluate(&RuleRequest::new(&key, path, headers))
    }

    #[test]
    fn a_blocked_request_is_refused_though_it_is_exempt() {
        let policy = all_terms(&api());

        assert_eq!(outcome(&policy, "alice", "/"), RuleOutcome::Limited);
        assert_eq!(outcome(&policy, "alice", "/health"), RuleOutcome::Exempt);
        for path in ["/", "/health"] {
            let blocked = RuleOutcome::Blocked(BlockStatus::TooManyRequests);
            assert_eq!(outcome(&policy, "mallory", path), blocked);
        }
        let by_default = api().with_block_rule(rule("key:mallory"));
        let blocked = RuleOutcome::Blocked(BlockStatus::Forbidden);
        assert_eq!(outcome(&by_default, "mallory", "/"), blocked);
        assert_eq!((api().has_rules(), by_default.has_rules()), (false, true));
    }

    #[test]
    fn policies_with_different_terms_are_not_equal() {
        let changed = [
            api().with_exempt_rule(rule("key:a")),
            api().with_block_rule(rule("key:a")),
            api().with_block_status(BlockStatus::TooManyRequests),
            api().with_cost_source(CostSource::ContentLength),
            api().with_charge_on("401".parse().unwrap()),
            api().with_settle_source(SettleSource::ResponseBytes),
            api(),
        ];
        for (index, one) in changed.iter().enumerate() {
            for (other_place, other) in changed.iter().enumerate() {
                assert_eq!(one == other, index == other_place);
            }
        }
    }

    #[test]
    fn the_order_of_setters_does_not_matter() {
        let rest = |policy: &HttpPolicy| {
            let cost = NonZeroU64::new(2).unwrap();
            let policy = policy
                .clone()
                .with_limit(TokenBucket::per_hour(1000))
                .unwrap();
            let policy = policy
                .with_limit_by("ip", TokenBucket::per_hour(1000))
                .unwrap();
            let policy = policy
                .with_throttle(Throttle::Soft { percent: 10 })
                .unwrap();
            let policy = policy.with_enforcement(40).unwrap();
            let policy = policy.with_failure_mode(FailureMode::Closed);
            policy.with_cost(cost).unwrap()
        };
        let tier = |policy: &HttpPolicy| {
            policy
                .clone()
                .with_tier("pro", "5000/min; concurrency 5 lease 30s")
                .unwrap()
        };

        let last = all_terms(&rest(&tier(&api())));
        let first = tier(&rest(&all_terms(&api())));
        let between = rest(&tier(&all_terms(&api())));

        assert_eq!(first, last);
        assert_eq!(between, last);
    }

    #[test]
    fn shadow_mode_applies_to_all_tiers() {
        let policy = api().with_tier("pro", "200/min").unwrap().shadow();

        assert_eq!(policy.policy().tier("pro").enforcement_percent(), 0);
    }

    #[test]
    fn a_reservation_is_needed_if_the_charge_can_change_later() {
        let slots = api().with_tier("pro", "concurrency 5 lease 30s").unwrap();

        assert!(
            !api()
                .with_cost_source(CostSource::ContentLength)
                .with_block_rule(rule("key:a"))
                .needs_reservation()
        );
        assert!(
            api()
                .with_charge_on("401".parse().unwrap())
                .needs_reservation()
        );
        assert!(
            api()
                .with_settle_source(SettleSource::ResponseBytes)
                .needs_reservation()
        );
        assert!(slots.needs_reservation());
    }

    #[test]
    fn the_cost_comes_from_the_request_or_the_policy() {
        let own = NonZeroU64::new(7).unwrap();
        let tokens = api().with_cost_source(CostSource::Header("X-Tokens".to_owned()));
        let tokens = tokens.with_cost(own).unwrap();
        let body = api()
            .with_cost_source(CostSource::ContentLength)
            .with_cost(own)
            .unwrap();
        let cost = |policy: &HttpPolicy, name: &str, value: &str| {
            policy.cost_of_request([(name, value)].as_slice()).get()
        };

        assert_eq!(cost(&tokens, "x-tokens", "40"), 40);
        assert_eq!(cost(&tokens, "x-tokens", "1"), 1);
        assert_eq!(cost(&tokens, "x-tokens", "0"), 7);
        assert_eq!(cost(&tokens, "x-tokens", "many"), 7);
        assert_eq!(cost(&tokens, "x-other", "40"), 7);
        assert_eq!(cost(&body, "Content-Length", "512"), 512);
        assert_eq!(cost(&body, "Content-Length", "0"), 1);
        assert_eq!(cost(&body, "Transfer-Encoding", "chunked"), 7);
        assert_eq!(cost(&api(), "x-tokens", "40"), 1);
    }

    #[test]
    fn header_names_are_compared_without_regard_to_case() {
        let header = Rule::Header {
            name: "X-Internal".to_owned(),
            value: None,
        };
        let key = Key::new("alice").unwrap();
        let headers = [("X-INTERNAL", "1")];
        let request = RuleRequest::new(&key, "/", headers.as_slice());

        assert_eq!(
            api().with_exempt_rule(header).evaluate(&request),
            RuleOutcome::Exempt
        );
        let settled = api().with_settle_source(SettleSource::Header("X-Used".to_owned()));
        assert_eq!(settled.settle_source().unwrap().field(), Some("x-used"));
    }
}
