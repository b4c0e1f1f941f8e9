//! Policies as JSON.

use std::collections::BTreeMap;

use ratelimit_core::{Limit, Policy};
use ratelimit_http::policy::{CostSource, HttpPolicy, Rule, SettleSource};
use serde::Serialize;

use super::{
    catalog::{CatalogEntry, Origin},
    limit_words::limit_words,
};
use crate::{app::App, check_keys::key_text, micros::micros, sampler::PolicyRates};

/// The number of tenants that a policy shows.
const MAX_SHOWN_TENANTS: usize = 10;

const NO_PEEK: &str =
    "the keys of an Envoy rule are made of descriptors; a link of Top denied keys opens one";

/// A policy with its modes and rates.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyRow<'a> {
    name: &'a str,
    text: String,
    shadow: bool,
    /// The share of keys for which denials apply, in percent.
    enforced: u8,
    throttle: String,
    on_failure: &'static str,
    built_in: bool,
    /// Whether `explain`, `forecast` and `reset` accept the policy, and why not.
    peek: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    peek_reason: Option<&'static str>,
    /// The share of each limit that is prefetched, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    prefetch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envoy: Option<EnvoyRuleView<'a>>,
    checks: f64,
    denied: f64,
    would_deny: f64,
    decided_by: DecidedBy,
    p99_micros: Option<u64>,
}

/// Checks a second by what decided them.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DecidedBy {
    store: f64,
    /// The failure mode, because the store did not answer.
    fallback: f64,
    prefetched: f64,
    /// Denials that repeat one of the store.
    deny_cache: f64,
}

/// The Envoy rule that a policy belongs to.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EnvoyRuleView<'a> {
    domain: &'a str,
    /// `must`, `any` (quota mode) or `watch` (shadow mode).
    role: &'static str,
    /// Whether the rule is for buckets of the quota service.
    quota_service: bool,
}

/// A policy with all its terms.
#[derive(Serialize)]
pub(super) struct PolicyDetail<'a> {
    #[serde(flatten)]
    row: PolicyRow<'a>,
    #[serde(flatten)]
    terms: PolicyTerms,
}

/// The terms of a policy, which do not change between reloads.
#[derive(Clone, PartialEq, Serialize)]
pub(in crate::console) struct PolicyTerms {
    cost: CostView,
    charge_on: Option<Vec<String>>,
    settle: Option<String>,
    limits: Vec<LimitView>,
    tiers: BTreeMap<String, String>,
    tenants: TenantsView,
    exempt: Vec<String>,
    blocked: Vec<String>,
    #[serde(rename = "blockedStatus")]
    blocked_status: u16,
}

#[derive(Clone, PartialEq, Serialize)]
#[serde(untagged)]
enum CostView {
    Fixed(u64),
    Source(String),
}

#[derive(Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct LimitView {
    text: String,
    algorithm: &'static str,
    limit: u64,
    period_micros: u64,
    by: Option<String>,
    words: String,
}

/// The number of tenants, and the first ones with their tiers.
#[derive(Clone, PartialEq, Serialize)]
struct TenantsView {
    total: usize,
    first: BTreeMap<String, String>,
}

impl<'a> PolicyRow<'a> {
    pub(super) fn new(app: &App, entry: &CatalogEntry<'a>, rates: &PolicyRates) -> PolicyRow<'a> {
        let enforced = entry.enforced_percent();
        PolicyRow {
            name: entry.name(),
            text: entry.policy.to_string(),
            shadow: enforced == 0,
            enforced,
            throttle: entry.throttle(),
            on_failure: entry.failure_mode(app).as_str(),
            built_in: entry.is_built_in(),
            peek: entry.http().is_some(),
            peek_reason: entry.http().is_none().then_some(NO_PEEK),
            prefetch: entry.policy.prefetch(),
            envoy: envoy_view(entry),
            checks: rates.checks,
            denied: rates.denied,
            would_deny: rates.would_deny,
            decided_by: DecidedBy {
                store: rates.store,
                fallback: rates.unchecked,
                prefetched: rates.prefetched,
                deny_cache: rates.deny_cached,
            },
            p99_micros: rates.p99_micros,
        }
    }
}

#[cfg(feature = "envoy")]
fn envoy_view<'a>(entry: &CatalogEntry<'a>) -> Option<EnvoyRuleView<'a>> {
    use ratelimit_envoy::Role;

    let Origin::Envoy(rule, _) = entry.origin else {
        return None;
    };
    Some(EnvoyRuleView {
        domain: rule.domain,
        role: match rule.role {
            Role::Must => "must",
            Role::Any => "any",
            _ => "watch",
        },
        quota_service: rule.is_bucket,
    })
}

#[cfg(not(feature = "envoy"))]
fn envoy_view<'a>(entry: &CatalogEntry<'a>) -> Option<EnvoyRuleView<'a>> {
    match entry.origin {
        Origin::BuiltIn(_) | Origin::Configured(_) => None,
    }
}

impl<'a> PolicyDetail<'a> {
    pub(super) fn new(
        app: &App,
        entry: &CatalogEntry<'a>,
        rates: &PolicyRates,
    ) -> PolicyDetail<'a> {
        PolicyDetail {
            row: PolicyRow::new(app, entry, rates),
            terms: PolicyTerms::new(entry.policy, entry.http()),
        }
    }
}

impl PolicyTerms {
    pub(in crate::console) fn new(policy: &Policy, http: Option<&HttpPolicy>) -> PolicyTerms {
        let limits = policy.limits().iter().enumerate();
        let rules = |rules: fn(&HttpPolicy) -> &[Rule]| {
            let rules = http.map_or(&[][..], rules);
            rules.iter().map(Rule::to_string).collect()
        };
        let tiers = policy.tiers();
        let charge_on = http.and_then(HttpPolicy::charge_on).map(|statuses| {
            let statuses = statuses.to_string();
            statuses.split(", ").map(str::to_owned).collect()
        });
        PolicyTerms {
            cost: cost(policy, http),
            charge_on,
            settle: http
                .and_then(HttpPolicy::settle_source)
                .map(SettleSource::to_string),
            limits: limits
                .map(|(index, limit)| LimitView::new(limit, policy.key_name(index)))
                .collect(),
            tiers: tiers
                .map(|(name, tier)| (name.to_owned(), tier.to_string()))
                .collect(),
            tenants: tenants(policy),
            exempt: rules(HttpPolicy::exempt_rules),
            blocked: rules(HttpPolicy::block_rules),
            blocked_status: http.map_or(403, |http| http.block_status().status()),
        }
    }
}

impl PolicyTerms {
    /// Whether the terms are equal, tenants compared by their number alone.
    pub(in crate::console) fn is_same_but_for_tenants(&self, other: &PolicyTerms) -> bool {
        let without = |terms: &PolicyTerms| PolicyTerms {
            tenants: TenantsView {
                first: BTreeMap::new(),
                ..terms.tenants
            },
            ..terms.clone()
        };
        without(self) == without(other)
    }
}

impl LimitView {
    fn new(limit: &Limit, by: Option<&str>) -> LimitView {
        LimitView {
            text: limit.to_string(),
            algorithm: limit.algorithm().wire_name(),
            limit: limit.capacity(),
            period_micros: micros(limit.period()),
            by: by.map(str::to_owned),
            words: limit_words(limit),
        }
    }
}

fn cost(policy: &Policy, http: Option<&HttpPolicy>) -> CostView {
    match http.map(HttpPolicy::cost_source) {
        Some(CostSource::Header(name)) => CostView::Source(format!("header:{name}")),
        Some(CostSource::ContentLength) => CostView::Source("body".to_owned()),
        _ => CostView::Fixed(policy.cost().get()),
    }
}

fn tenants(policy: &Policy) -> TenantsView {
    let tier_of = |key| {
        let own = policy.for_key(key);
        let mut tiers = policy.tiers();
        let tier = tiers.find(|(_, tier)| std::ptr::eq(*tier, own));
        tier.map_or("", |(name, _)| name).to_owned()
    };
    let first = policy.tier_members().take(MAX_SHOWN_TENANTS);
    TenantsView {
        total: policy.tier_members().count(),
        first: first.map(|key| (key_text(key), tier_of(key))).collect(),
    }
}
