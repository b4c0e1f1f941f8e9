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

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    field::report_duplicate,
    redundant::report_redundant,
    slow_bucket::report_slow_buckets,
    suggest::nearest,
    tree::{Entry, Node},
    values::limits,
};
use crate::{
    key::{RuleKey, without_secret},
    policy::HttpPolicy,
};
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
///
/// The work per tier does not depend on the number of tiers: each is tried on the policy without tiers, and those that are
/// valid are added at once.
pub(crate) fn add_tiers(policy: Policy, tiers: &[Tier], diagnostics: &mut Diagnostics) -> Policy {
    let mut algorithms = Algorithms::of(&policy);
    let mut valid = Vec::with_capacity(tiers.len());
    for tier in tiers {
        match policy.with_tier(&tier.name, &tier.limits) {
            Ok(with_tier) => {
                let own = with_tier.tier(&tier.name);
                report_redundant(own, tier.line, diagnostics);
                report_slow_buckets(own, tier.line, diagnostics);
                if let Some(message) = algorithms.add(&tier.name, own) {
                    diagnostics.add(DiagnosticCode::TierAlgorithms, tier.line, message);
                }
                valid.push((&tier.name, &tier.limits));
            }
            Err(error) => diagnostics.add(code_of(&error), tier.line, error.to_string()),
        }
    }
    if valid.is_empty() {
        return policy;
    }
    // An error was found above.
    policy.with_tiers(valid).unwrap_or(policy)
}

/// Assigns the tenants to their tiers. An unknown tier is reported.
pub(crate) fn add_tenants(
    policy: HttpPolicy,
    tenants: Vec<Tenant>,
    diagnostics: &mut Diagnostics,
) -> HttpPolicy {
    if tenants.is_empty() {
        return policy;
    }
    let known: BTreeSet<&str> = policy.policy().tiers().map(|(name, _)| name).collect();
    let unknown = tenants
        .iter()
        .filter(|tenant| !known.contains(&*tenant.tier));
    for Tenant { line, tier, .. } in unknown.take(MAX_HINTS) {
        let hint = match nearest(tier, known.iter().copied()) {
            Some(known) => format!("did you mean {known}?"),
            None => expected(&known),
        };
        let message = format!("there is no tier {tier:?}: {hint}");
        diagnostics.add(DiagnosticCode::UnknownTier, *line, message);
    }
    policy.with_tier_members(tenants.into_iter().map(|tenant| (tenant.key, tenant.tier)))
}

/// The unknown tiers of a policy that are reported. A file has fewer diagnostics.
const MAX_HINTS: usize = 100;

/// The names of tiers in a message. Beyond this they are counted.
const MAX_NAMES: usize = 10;

fn expected(known: &BTreeSet<&str>) -> String {
    let names: Vec<&str> = known.iter().take(MAX_NAMES).copied().collect();
    let names = names.join(", ");
    match known.len() {
        0 => "the policy has no tiers".to_owned(),
        count if count > MAX_NAMES => {
            format!("expected one of {names}, or of {} more", count - MAX_NAMES)
        }
        _ => format!("expected one of {names}"),
    }
}

/// The algorithms of a policy and of its tiers so far, at each position of each key.
///
/// A limit whose algorithm differs from that of the policy, or of an earlier tier, at the same position is reported: the state
/// of a key is lost there when the key changes tiers.
struct Algorithms {
    firsts: HashMap<Place, Vec<FirstLimit>>,
    /// The number of tiers so far.
    tiers: usize,
}

/// A position among the limits of one key: `None` is the key of the hit, others are named by `by NAME`.
type Place = (Option<String>, usize);

/// The first limit with an algorithm.
struct FirstLimit {
    limit: Limit,
    /// The number of the tier; 0 is the policy.
    owner: usize,
    /// `None` is the policy.
    tier: Option<String>,
}

impl Algorithms {
    fn of(policy: &Policy) -> Algorithms {
        let mut algorithms = Algorithms {
            firsts: HashMap::new(),
            tiers: 0,
        };
        for (place, limit) in places(policy) {
            let first = FirstLimit {
                limit,
                owner: 0,
                tier: None,
            };
            algorithms.firsts.entry(place).or_default().push(first);
        }
        algorithms
    }

    /// Adds a tier. The result is the message about its first limit that differs from the earliest owner with another algorithm.
    fn add(&mut self, name: &str, tier: &Policy) -> Option<String> {
        let mut differing: Option<(usize, String)> = None;
        self.tiers += 1;
        for (place, limit) in places(tier) {
            // One entry for each algorithm at most, the earliest owner first.
            let firsts = self.firsts.entry(place).or_default();
            let other = firsts
                .iter()
                .find(|first| first.limit.algorithm() != limit.algorithm());
            if let Some(other) = other
                && differing
                    .as_ref()
                    .is_none_or(|(owner, _)| other.owner < *owner)
            {
                let theirs = match &other.tier {
                    None => "the policy's own limits have".to_owned(),
                    Some(tier) => format!("the tier {tier:?} has"),
                };
                let message = format!(
                    "{limit} stands where {theirs} {}: what a key spent there does not carry over when it changes tiers",
                    other.limit
                );
                differing = Some((other.owner, message));
            }
            let is_known = |first: &FirstLimit| first.limit.algorithm() == limit.algorithm();
            if !firsts.iter().any(is_known) {
                firsts.push(FirstLimit {
                    limit,
                    owner: self.tiers,
                    tier: Some(name.to_owned()),
                });
            }
        }
        differing.map(|(_, message)| message)
    }
}

/// The limits of a policy by their places.
fn places(policy: &Policy) -> impl Iterator<Item = (Place, Limit)> {
    policy.limits_by_key().flat_map(|(by, limits)| {
        let by = by.map(str::to_owned);
        let limits = limits.into_iter().enumerate();
        limits.map(move |(position, limit)| ((by.clone(), position), limit))
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
