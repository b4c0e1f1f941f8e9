//! Building a policy from the fields of its table, with the checks across fields.

use std::num::NonZeroU32;

use crate::key::KeyKinds;
use crate::policy::{BlockStatus, HttpPolicy, Rule, SettleSource, StatusSet};
use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    overlap::report_overlapping,
    redundant::report_redundant,
    slow_bucket::report_slow_buckets,
    tiers::{Tenant, Tier, add_tenants, add_tiers},
    values::{FailureModeName, Located, LocatedRule, WrittenCost},
};
use ratelimit_core::{FailureMode, InvalidPolicy, Limit, Policy, Throttle};

/// The fewest units that a limiter prefetches.
const MIN_PREFETCH: u64 = 4;

/// The fields of a policy's table.
///
/// A field is `None` or empty if it is absent. A field that is present and invalid is a [`Located`] without a
/// value, so that checks across fields do not report it as missing.
#[derive(Default)]
pub(crate) struct PolicyBuilder {
    /// The kinds of keys that requests can have.
    pub(crate) key_kinds: KeyKinds,
    pub(crate) limits: Option<Located<String>>,
    pub(crate) on_failure: Option<Located<FailureModeName>>,
    pub(crate) instances: Option<Located<NonZeroU32>>,
    pub(crate) cost: Option<Located<WrittenCost>>,
    pub(crate) throttle: Option<Located<Throttle>>,
    pub(crate) shadow: Option<Located<bool>>,
    pub(crate) enforced: Option<Located<u8>>,
    /// The share of each limit that may be prefetched, in percent.
    pub(crate) prefetch: Option<Located<u32>>,
    pub(crate) tiers: Vec<Tier>,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) exempt: Vec<LocatedRule>,
    pub(crate) blocked: Vec<LocatedRule>,
    pub(crate) blocked_status: Option<Located<BlockStatus>>,
    pub(crate) charge_on: Option<Located<StatusSet>>,
    pub(crate) settle: Option<Located<SettleSource>>,
}

impl PolicyBuilder {
    /// Builds the policy. It is `None` if the limits are absent or invalid; other invalid fields are
    /// reported and left out.
    ///
    /// The checks across fields report:
    ///
    /// - `instances` without `local_share`, and the reverse,
    /// - `enforced` together with `shadow`,
    /// - `blocked_status` without rules in `blocked`,
    /// - fields about costs in a policy that only limits concurrency,
    /// - redundant limits, overlapping rules, keys that no request can have, and unknown tiers.
    pub(crate) fn build(
        self,
        name: &str,
        line: usize,
        diagnostics: &mut Diagnostics,
    ) -> Option<HttpPolicy> {
        self.report_unmatched_keys(diagnostics);
        let mode = self.failure_mode(line, diagnostics);
        let Some(limits) = self.limits else {
            let message = format!("the policy {name:?} has no limits");
            diagnostics.add(DiagnosticCode::MissingField, line, message);
            return None;
        };
        let mut policy = match Policy::parse(name, &limits.value?) {
            Ok(policy) => policy,
            Err(error) => {
                let (code, line) = match error {
                    InvalidPolicy::Name { .. } => (DiagnosticCode::BadName, line),
                    _ => (DiagnosticCode::BadLimit, limits.line),
                };
                diagnostics.add(code, line, error.to_string());
                return None;
            }
        };
        report_redundant(&policy, limits.line, diagnostics);
        report_slow_buckets(&policy, limits.line, diagnostics);
        policy = add_tiers(policy, &self.tiers, diagnostics);
        if let Some(mode) = mode {
            policy = policy.with_failure_mode(mode);
        }
        policy = apply_enforcement(
            policy,
            self.shadow.as_ref(),
            self.enforced.as_ref(),
            diagnostics,
        );
        policy = apply_throttle(policy, self.throttle, diagnostics);
        policy = apply_prefetch(policy, self.prefetch.as_ref(), diagnostics);
        let cost_fields = [
            self.cost.as_ref().map(|cost| ("cost", cost.line)),
            self.charge_on
                .as_ref()
                .map(|statuses| ("charge_on", statuses.line)),
            self.settle.as_ref().map(|settle| ("settle", settle.line)),
        ];
        report_ignored_costs(&policy, cost_fields, diagnostics);
        let policy = apply_cost(policy, self.cost, diagnostics);
        let policy = add_tenants(policy, self.tenants, diagnostics);
        let mut policy = apply_rules(
            policy,
            self.exempt,
            self.blocked,
            self.blocked_status.as_ref(),
            diagnostics,
        );
        if let Some(statuses) = self.charge_on.and_then(|located| located.value) {
            policy = policy.with_charge_on(statuses);
        }
        if let Some(settle) = self.settle.and_then(|located| located.value) {
            policy = policy.with_settle_source(settle);
        }
        Some(policy)
    }

    /// Reports rules and tenants whose key no request can have.
    fn report_unmatched_keys(&self, diagnostics: &mut Diagnostics) {
        let rules = self.exempt.iter().chain(&self.blocked);
        let rules = rules.filter_map(|located| match &located.rule {
            Rule::Key(key) => Some(("rule", located.line, key)),
            _ => None,
        });
        let tenants = self.tenants.iter().map(|tenant| {
            let (line, key) = tenant.key();
            ("tenant", line, key)
        });
        for (noun, line, key) in rules.chain(tenants) {
            if let Some(message) = self.key_kinds.warning(noun, key) {
                diagnostics.add(DiagnosticCode::UnmatchedKey, line, message);
            }
        }
    }

    /// The failure mode of `on_failure` and `instances`, which belong together.
    fn failure_mode(&self, line: usize, diagnostics: &mut Diagnostics) -> Option<FailureMode> {
        let mode = self.on_failure.as_ref();
        let is_local_share =
            mode.is_some_and(|mode| mode.value == Some(FailureModeName::LocalShare));
        match &self.instances {
            Some(instances) if !is_local_share => {
                let message = "instances means something only with on_failure = \"local_share\"";
                diagnostics.add(DiagnosticCode::IgnoredField, instances.line, message);
            }
            None if is_local_share => {
                let message =
                    "on_failure = \"local_share\" needs instances, how many share the limits";
                diagnostics.add(
                    DiagnosticCode::MissingField,
                    mode.map_or(line, |mode| mode.line),
                    message,
                );
            }
            _ => {}
        }
        match mode?.value? {
            FailureModeName::Plain(mode) => Some(mode),
            FailureModeName::LocalShare => {
                let instances = self.instances.as_ref()?.value?;
                Some(FailureMode::LocalShare { instances })
            }
        }
    }
}

/// Applies `shadow` or `enforced`; both together are a conflict.
fn apply_enforcement(
    policy: Policy,
    shadow: Option<&Located<bool>>,
    percent: Option<&Located<u8>>,
    diagnostics: &mut Diagnostics,
) -> Policy {
    let is_shadow = shadow.and_then(|shadow| shadow.value) == Some(true);
    match percent {
        Some(percent) if is_shadow => {
            let message = "shadow = true enforces nothing: leave out one of shadow and enforced";
            diagnostics.add(DiagnosticCode::ConflictingFields, percent.line, message);
            policy
        }
        None if is_shadow => policy.shadow(),
        Some(Located {
            value: Some(percent),
            ..
        }) => policy.with_enforcement(*percent).unwrap_or(policy),
        _ => policy,
    }
}

/// Applies `throttle`.
fn apply_throttle(
    policy: Policy,
    throttle: Option<Located<Throttle>>,
    diagnostics: &mut Diagnostics,
) -> Policy {
    let Some(Located {
        line,
        value: Some(throttle),
    }) = throttle
    else {
        return policy;
    };
    policy.with_throttle(throttle).unwrap_or_else(|error| {
        diagnostics.add(DiagnosticCode::BadThrottle, line, error.to_string());
        policy
    })
}

/// Sets the share to prefetch.
///
/// - A limit that cannot be prefetched, of the policy or of a tier, is an error that names the limit and the reason.
/// - A share outside of 1 % to 50 % is an error.
/// - A share of fewer than four units of a limit is a warning, because nothing is prefetched then.
///
/// After an error the policy is built without prefetching, so that further mistakes of the file are found.
fn apply_prefetch(
    policy: Policy,
    prefetch: Option<&Located<u32>>,
    diagnostics: &mut Diagnostics,
) -> Policy {
    let Some(&Located {
        line,
        value: Some(percent),
    }) = prefetch
    else {
        return policy;
    };
    let policy = match policy.with_prefetch(percent) {
        Ok(policy) => policy,
        Err(error) => {
            let code = match error {
                InvalidPolicy::Prefetch { .. } => DiagnosticCode::NotPrefetchable,
                _ => DiagnosticCode::BadValue,
            };
            diagnostics.add(code, line, error.to_string());
            return policy;
        }
    };
    let units = |limit: &Limit| {
        limit.capacity() / 100 * u64::from(percent)
            + limit.capacity() % 100 * u64::from(percent) / 100
    };
    let too_small = |policy: &Policy| {
        policy
            .limits()
            .iter()
            .copied()
            .find(|limit| units(limit) < MIN_PREFETCH)
    };
    let tiers = policy.tiers().map(|(_, tier)| tier);
    if let Some(limit) = std::iter::once(&policy).chain(tiers).find_map(too_small) {
        let message = format!(
            "{percent}% of {limit} are {} units, and fewer than {MIN_PREFETCH} are never prefetched",
            units(&limit)
        );
        diagnostics.add(DiagnosticCode::PrefetchesNothing, line, message);
    }
    policy
}

/// Applies `cost`: a number, or a source.
fn apply_cost(
    policy: Policy,
    cost: Option<Located<WrittenCost>>,
    diagnostics: &mut Diagnostics,
) -> HttpPolicy {
    let Some(Located {
        line,
        value: Some(cost),
    }) = cost
    else {
        return policy.into();
    };
    match cost {
        WrittenCost::Source(source) => HttpPolicy::from(policy).with_cost_source(source),
        WrittenCost::Fixed(cost) => {
            let policy = policy.with_cost(cost).unwrap_or_else(|error| {
                diagnostics.add(DiagnosticCode::ImpossibleCost, line, error.to_string());
                policy
            });
            policy.into()
        }
    }
}

/// Applies `exempt`, `blocked` and `blocked_status`.
fn apply_rules(
    mut policy: HttpPolicy,
    exempt: Vec<LocatedRule>,
    blocked: Vec<LocatedRule>,
    status: Option<&Located<BlockStatus>>,
    diagnostics: &mut Diagnostics,
) -> HttpPolicy {
    report_overlapping(&exempt, &blocked, diagnostics);
    if let Some(status) = status {
        if blocked.is_empty() {
            let message = "blocked_status means something only with rules in blocked";
            diagnostics.add(DiagnosticCode::IgnoredField, status.line, message);
        }
        policy = policy.with_block_status(status.value.unwrap_or_default());
    }
    for located_rule in exempt {
        policy = policy.with_exempt_rule(located_rule.rule);
    }
    for located_rule in blocked {
        policy = policy.with_block_rule(located_rule.rule);
    }
    policy
}

/// Reports fields about costs in a policy whose limits count only concurrent requests.
fn report_ignored_costs(
    policy: &Policy,
    fields: [Option<(&str, usize)>; 3],
    diagnostics: &mut Diagnostics,
) {
    let has_units = |policy: &Policy| policy.limits().iter().any(Limit::counts_units);
    if has_units(policy) || policy.tiers().any(|(_, tier)| has_units(tier)) {
        return;
    }
    for (name, line) in fields.into_iter().flatten() {
        let message = format!("{name} means nothing here: a hit holds one slot, whatever it costs");
        diagnostics.add(DiagnosticCode::IgnoredField, line, message);
    }
}
