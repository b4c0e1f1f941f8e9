//! What a policy says of requests beside its limits.

use std::num::NonZeroU64;

use crate::policy::{ChargeOn, CostOf, InvalidPolicy, Policy, SettleBy, StatusSet, costs::largest};
use crate::{
    client_addr::HeaderLines,
    rules::{Blocked, Facts, Judged, Rule},
};

/// What a policy says of requests beside its limits.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Terms {
    exempt: Vec<Rule>,
    blocked: Vec<Rule>,
    blocked_as: Blocked,
    cost_of: CostOf,
    charge_on: ChargeOn,
    settle_by: Option<SettleBy>,
}

impl Policy {
    /// The same policy, under which the requests that `rule` means pass uncounted.
    ///
    /// ```
    /// use ratelimit_core::{Facts, Judged, Key, Policy};
    ///
    /// let api = Policy::parse("api", "10/min")?
    ///     .exempt("path:/health".parse()?)
    ///     .block("203.0.113.0/24".parse()?);
    ///
    /// let (alice, no_headers): (_, &[(&str, &str)]) = (Key::explicit("alice")?, &[]);
    /// let request = Facts::new(&alice, "/health", no_headers);
    /// assert_eq!(api.judged(&request), Judged::Exempt);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn exempt(&self, rule: Rule) -> Policy {
        let rule = rule.in_lower_case();
        self.on_terms(|terms| terms.exempt.push(rule.clone()))
    }

    /// The same policy, under which the requests that `rule` means are refused, whatever else is
    /// exempt, and spend nothing.
    #[must_use]
    pub fn block(&self, rule: Rule) -> Policy {
        let rule = rule.in_lower_case();
        self.on_terms(|terms| terms.blocked.push(rule.clone()))
    }

    /// The same policy, which refuses blocked requests so; [`Blocked::Forbidden`] unless set.
    #[must_use]
    pub fn blocked_as(&self, blocked: Blocked) -> Policy {
        self.on_terms(|terms| terms.blocked_as = blocked)
    }

    /// What its rules say of a request.
    pub fn judged<H: HeaderLines + ?Sized>(&self, request: &Facts<'_, H>) -> Judged {
        let terms = self.terms();
        if terms.blocked.iter().any(|rule| rule.may_apply(request)) {
            return Judged::Blocked(terms.blocked_as);
        }
        if terms.exempt.iter().any(|rule| rule.applies(request)) {
            return Judged::Exempt;
        }
        Judged::Limited
    }

    /// Whether it has rules, so that a request has to be [judged](Policy::judged).
    pub fn has_rules(&self) -> bool {
        let terms = self.terms();
        !terms.blocked.is_empty() || !terms.exempt.is_empty()
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

    /// The same policy, which takes the cost of a request from there; [`CostOf::Fixed`] unless set.
    #[must_use]
    pub fn cost_of(&self, source: CostOf) -> Policy {
        let source = source.in_lower_case();
        self.on_terms(|terms| terms.cost_of = source.clone())
    }

    /// Where the cost of a request comes from.
    pub fn cost_source(&self) -> &CostOf {
        &self.terms().cost_of
    }

    /// What a request with these header fields costs.
    ///
    /// ```
    /// use ratelimit_core::{CostOf, Policy};
    ///
    /// let llm = Policy::parse("llm", "1000/min")?.cost_of(CostOf::Header("x-tokens".to_owned()));
    ///
    /// assert_eq!(llm.cost_told([("X-Tokens", "400")].as_slice()).get(), 400);
    /// assert_eq!(llm.cost_told([("X-Tokens", "some")].as_slice()).get(), 1);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    pub fn cost_told<H: HeaderLines + ?Sized>(&self, headers: &H) -> NonZeroU64 {
        let source = self.cost_source();
        let told = source.field().and_then(|name| largest(headers.lines(name)));
        let told = match source {
            CostOf::Body => told.map(|length| length.max(1)),
            CostOf::Fixed | CostOf::Header(_) => told,
        };
        told.and_then(NonZeroU64::new).unwrap_or(self.cost())
    }

    /// The same policy, which keeps a request charged only when its response has one of these statuses.
    ///
    /// A login that is charged on 401 alone limits wrong passwords and nobody who knows the right one.
    #[must_use]
    pub fn charge_on(&self, statuses: StatusSet) -> Policy {
        let charge_on = ChargeOn::Statuses(statuses);
        self.on_terms(|terms| terms.charge_on = charge_on.clone())
    }

    /// For which responses a request stays charged.
    pub fn charged_on(&self) -> &ChargeOn {
        &self.terms().charge_on
    }

    /// The same policy, which settles a request at the cost that its response tells.
    #[must_use]
    pub fn settle_by(&self, source: SettleBy) -> Policy {
        let source = source.in_lower_case();
        self.on_terms(|terms| terms.settle_by = Some(source.clone()))
    }

    /// Where the actual cost of a request comes from, if its cost is settled.
    pub fn settled_by(&self) -> Option<&SettleBy> {
        self.terms().settle_by.as_ref()
    }

    /// Whether something happens to a request's charge after its response, so that it has to be kept:
    /// see [`Limiter::charge`](crate::Limiter::charge).
    pub fn needs_charge(&self) -> bool {
        let terms = self.terms();
        terms.charge_on != ChargeOn::Every
            || terms.settle_by.is_some()
            || self.has_concurrency_limit()
            || self.tiers().any(|(_, tier)| tier.has_concurrency_limit())
    }

    fn terms(&self) -> &Terms {
        &self.0.settings.terms
    }

    fn on_terms(&self, change: impl Fn(&mut Terms)) -> Policy {
        self.map_all_tiers(&|settings| change(&mut settings.terms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::TokenBucket,
        key::Key,
        policy::{FailureMode, Throttle},
    };

    fn rule(text: &str) -> Rule {
        text.parse().unwrap()
    }

    fn api() -> Policy {
        Policy::parse("api", "100/min").unwrap()
    }

    /// A policy with every term.
    fn all_terms(policy: &Policy) -> Policy {
        policy
            .exempt(rule("path:/health"))
            .block(rule("key:mallory"))
            .blocked_as(Blocked::TooMany)
            .cost_of(CostOf::Body)
            .charge_on("401".parse().unwrap())
            .settle_by(SettleBy::ResponseBytes)
    }

    fn judged(policy: &Policy, key: &str, path: &str) -> Judged {
        let (key, headers): (Key, &[(&str, &str)]) = (Key::new(key).unwrap(), &[]);
        policy.judged(&Facts::new(&key, path, headers))
    }

    #[test]
    fn a_blocked_request_is_refused_though_it_is_exempt() {
        let policy = all_terms(&api());

        assert_eq!(judged(&policy, "alice", "/"), Judged::Limited);
        assert_eq!(judged(&policy, "alice", "/health"), Judged::Exempt);
        for path in ["/", "/health"] {
            let refused = Judged::Blocked(Blocked::TooMany);
            assert_eq!(judged(&policy, "mallory", path), refused);
        }
        let by_default = api().block(rule("key:mallory"));
        let refused = Judged::Blocked(Blocked::Forbidden);
        assert_eq!(judged(&by_default, "mallory", "/"), refused);
        assert_eq!((api().has_rules(), by_default.has_rules()), (false, true));
    }

    #[test]
    fn every_term_is_part_of_what_a_policy_is() {
        let changed = [
            api().exempt(rule("key:a")),
            api().block(rule("key:a")),
            api().blocked_as(Blocked::TooMany),
            api().cost_of(CostOf::Body),
            api().charge_on("401".parse().unwrap()),
            api().settle_by(SettleBy::ResponseBytes),
            api(),
        ];
        for (index, one) in changed.iter().enumerate() {
            for (other_place, other) in changed.iter().enumerate() {
                assert_eq!(one == other, index == other_place);
            }
        }
    }

    #[test]
    fn terms_and_all_else_survive_each_other_in_any_order() {
        let rest = |policy: &Policy| {
            let cost = NonZeroU64::new(2).unwrap();
            let policy = policy.with_limit(TokenBucket::per_hour(1000)).unwrap();
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
        let tier = |policy: &Policy| {
            policy
                .with_tier("pro", "5000/min; concurrency 5 lease 30s")
                .unwrap()
        };

        let last = all_terms(&rest(&tier(&api())));
        let first = tier(&rest(&all_terms(&api())));
        let between = rest(&tier(&all_terms(&api())));

        assert_eq!(first, last);
        assert_eq!(between, last);
        assert_eq!(last.tier("pro").terms(), last.terms());
    }

    #[test]
    fn in_shadow_all_tiers_are() {
        let policy = api().with_tier("pro", "200/min").unwrap().shadow();

        assert_eq!(policy.tier("pro").enforcement_percent(), 0);
    }

    #[test]
    fn a_charge_is_kept_when_something_happens_to_it_later() {
        let slots = api().with_tier("pro", "concurrency 5 lease 30s").unwrap();

        assert!(
            !api()
                .cost_of(CostOf::Body)
                .block(rule("key:a"))
                .needs_charge()
        );
        assert!(api().charge_on("401".parse().unwrap()).needs_charge());
        assert!(api().settle_by(SettleBy::ResponseBytes).needs_charge());
        assert!(slots.needs_charge());
    }

    #[test]
    fn a_cost_is_told_or_the_policys_own() {
        let own = NonZeroU64::new(7).unwrap();
        let tokens = api().cost_of(CostOf::Header("X-Tokens".to_owned()));
        let tokens = tokens.with_cost(own).unwrap();
        let body = api().cost_of(CostOf::Body).with_cost(own).unwrap();
        let cost = |policy: &Policy, name: &str, value: &str| {
            policy.cost_told([(name, value)].as_slice()).get()
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
    fn a_header_is_found_however_it_was_named() {
        let header = Rule::Header {
            name: "X-Internal".to_owned(),
            value: None,
        };
        let key = Key::new("alice").unwrap();
        let headers = [("X-INTERNAL", "1")];
        let facts = Facts::new(&key, "/", headers.as_slice());

        assert_eq!(api().exempt(header).judged(&facts), Judged::Exempt);
        let settled = api().settle_by(SettleBy::Header("X-Used".to_owned()));
        assert_eq!(settled.settled_by().unwrap().field(), Some("x-used"));
    }
}
