//! The tables `tiers` and `tenants` of a policy.
//!
//! ```toml
//! [policy.api]
//! limits = "10/min"
//! tiers = { pro = "100/min", enterprise = "10000/min" }
//! tenants = { "acme" = "pro", "printed:header:x-tenant:globex" = "enterprise" }
//! ```
//!
//! A key without an entry in `tenants` has the limits of the policy itself.

use std::{collections::BTreeMap, iter};

use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    field::report_duplicate,
    tree::{Entry, Node},
    values::limits,
};
use crate::{
    key::{RuleKey, without_secret},
    policy::HttpPolicy,
};
use ratelimit_core::RedundantLimit;
use ratelimit_core::{InvalidPolicy, Limit, Policy};

/// An entry of `tiers`: a name and a text of limits.
pub(crate) struct Tier {
    line: usize,
    name: String,
    limits: String,
}

/// An entry of `tenants`: a key and the name of its tier.
pub(crate) struct Tenant {
    line: usize,
    key: RuleKey,
    tier: String,
}

impl Tenant {
    /// The line and the key.
    pub(crate) const fn key(&self) -> (usize, &RuleKey) {
        (self.line, &self.key)
    }
}

/// Reads `tiers`.
pub(crate) fn tiers(node: &Node, diagnostics: &mut Diagnostics) -> Vec<Tier> {
    let tiers = distinct(node, diagnostics).into_iter().filter_map(|entry| {
        let limits = limits(&entry.node, diagnostics)?;
        let (line, name) = (entry.node.line, entry.name.clone());
        Some(Tier { line, name, limits })
    });
    tiers.collect()
}

/// Reads `tenants`.
pub(crate) fn tenants(node: &Node, diagnostics: &mut Diagnostics) -> Vec<Tenant> {
    let mut lines = BTreeMap::new();
    let entries = node.table(diagnostics).unwrap_or_default().iter();
    let tenants = entries.filter_map(|entry| {
        let key = match RuleKey::of_tenant(&entry.name) {
            Ok(key) => key,
            Err(error) => {
                diagnostics.add(DiagnosticCode::BadValue, entry.line, error.to_string());
                return None;
            }
        };
        // Two texts can name one key, such as `acme` and `key:acme`.
        if let Some(before) = lines.insert(key.key().clone(), entry.line) {
            let name = without_secret(&entry.name);
            report_duplicate(&name, entry.line, before, diagnostics);
            return None;
        }
        let tier = entry.node.text(diagnostics)?.to_owned();
        let line = entry.node.line;
        Some(Tenant { line, key, tier })
    });
    tenants.collect()
}

/// The entries of a table. A repeated name is reported and left out.
fn distinct<'a>(node: &'a Node, diagnostics: &mut Diagnostics) -> Vec<&'a Entry> {
    let mut kept: Vec<&Entry> = Vec::new();
    let mut lines = BTreeMap::new();
    for entry in node.table(diagnostics).unwrap_or_default() {
        match lines.insert(&entry.name, entry.line) {
            Some(before) => report_duplicate(&entry.name, entry.line, before, diagnostics),
            None => kept.push(entry),
        }
    }
    kept
}

/// Adds the tiers to the policy. An invalid tier is reported and left out.
pub(crate) fn add_tiers(
    mut policy: Policy,
    tiers: &[Tier],
    diagnostics: &mut Diagnostics,
) -> Policy {
    for tier in tiers {
        match policy.with_tier(&tier.name, &tier.limits) {
            Ok(with_tier) => {
                let own = with_tier.tier(&tier.name);
                report_redundant(own, tier.line, diagnostics);
                report_other_algorithms(own, tier, &policy, diagnostics);
                policy = with_tier;
            }
            Err(error) => diagnostics.add(code_of(&error), tier.line, error.to_string()),
        }
    }
    policy
}

/// Assigns the tenants to their tiers. An unknown tier is reported.
pub(crate) fn add_tenants(
    policy: HttpPolicy,
    tenants: Vec<Tenant>,
    diagnostics: &mut Diagnostics,
) -> HttpPolicy {
    for Tenant { line, tier, .. } in &tenants {
        let policy = policy.policy();
        if !policy.tiers().any(|(name, _)| name == tier) {
            let names: Vec<_> = policy.tiers().map(|(name, _)| name).collect();
            let hint = match names.join(", ").as_str() {
                "" => "the policy has no tiers".to_owned(),
                names => format!("expected one of {names}"),
            };
            let message = format!("there is no tier {tier:?}: {hint}");
            diagnostics.add(DiagnosticCode::UnknownTier, *line, message);
        }
    }
    if tenants.is_empty() {
        return policy;
    }
    policy.with_tier_members(tenants.into_iter().map(|tenant| (tenant.key, tenant.tier)))
}

/// Reports each limit that never denies, because another limit of the same key is stricter.
pub(crate) fn report_redundant(policy: &Policy, line: usize, diagnostics: &mut Diagnostics) {
    for RedundantLimit { limit, stricter } in policy.redundant_limits() {
        if limit == stricter {
            let message = format!("the limit {limit} is there twice");
            diagnostics.add(DiagnosticCode::RepeatedLimit, line, message);
        } else {
            let message = format!(
                "the limit {limit} never denies anything: {stricter} is always at least as strict"
            );
            diagnostics.add(DiagnosticCode::ShadowedLimit, line, message);
        }
    }
}

/// Reports a limit whose algorithm differs from that of the policy, or of an earlier tier, at the same
/// position: the state of a key is lost there when the key changes tiers.
fn report_other_algorithms(
    own: &Policy,
    tier: &Tier,
    policy: &Policy,
    diagnostics: &mut Diagnostics,
) {
    let limits = iter::once(("the policy's own limits have".to_owned(), policy));
    let tiers = policy.tiers().filter(|(name, _)| *name != tier.name);
    let tiers = tiers.map(|(name, other)| (format!("the tier {name:?} has"), other));
    let differing = limits.chain(tiers).find_map(|(owner, other)| {
        let (ours, theirs) = other_algorithm(own, other)?;
        Some(format!(
            "{ours} stands where {owner} {theirs}: what a key spent there does not carry over when \
             it changes tiers"
        ))
    });
    if let Some(message) = differing {
        diagnostics.add(DiagnosticCode::TierAlgorithms, tier.line, message);
    }
}

/// The first two limits with different algorithms at the same position of the same key.
fn other_algorithm(ours: &Policy, theirs: &Policy) -> Option<(Limit, Limit)> {
    ours.limits_by_key().find_map(|(key, ours)| {
        let (_, theirs) = theirs.limits_by_key().find(|(other, _)| *other == key)?;
        let mut pairs = ours.into_iter().zip(theirs);
        pairs.find(|(one, two)| one.algorithm() != two.algorithm())
    })
}

/// The diagnostic code for an invalid tier.
const fn code_of(error: &InvalidPolicy) -> DiagnosticCode {
    match error {
        InvalidPolicy::Ceiling(_) | InvalidPolicy::Percent { .. } => DiagnosticCode::BadThrottle,
        InvalidPolicy::Cost { .. } => DiagnosticCode::ImpossibleCost,
        _ => DiagnosticCode::BadLimit,
    }
}
