//! What the fields of a policy's table mean together.

use std::num::NonZeroU32;

use crate::policy_file::{
    code::Code,
    finding::Findings,
    overlapping::find_overlapping,
    policy_values::{Cost, Mode, Spot, Written},
    tier_table::{Tenant, Tier, add_tenants, add_tiers, find_needless},
};
use crate::{
    limit::Limit,
    policy::{FailureMode, InvalidPolicy, Policy, SettleBy, StatusSet, Throttle},
    rules::Blocked,
};

/// A policy's table as far as it was read.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) limits: Option<Spot<String>>,
    pub(super) on_failure: Option<Spot<Mode>>,
    pub(super) instances: Option<Spot<NonZeroU32>>,
    pub(super) cost: Option<Spot<Cost>>,
    pub(super) throttle: Option<Spot<Throttle>>,
    pub(super) shadow: Option<Spot<bool>>,
    pub(super) enforced: Option<Spot<u8>>,
    pub(super) tiers: Vec<Tier>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) exempt: Vec<Written>,
    pub(super) blocked: Vec<Written>,
    pub(super) blocked_status: Option<Spot<Blocked>>,
    pub(super) charge_on: Option<Spot<StatusSet>>,
    pub(super) settle: Option<Spot<SettleBy>>,
}

impl Draft {
    /// What the fields mean together.
    pub(super) fn finish(self, name: &str, line: usize, findings: &mut Findings) -> Option<Policy> {
        let mode = self.failure_mode(line, findings);
        let Some(limits) = self.limits else {
            let told = format!("the policy {name:?} has no limits");
            findings.add(Code::MissingField, line, told);
            return None;
        };
        let mut policy = match Policy::parse(name, &limits.value?) {
            Ok(policy) => policy,
            Err(why) => {
                let (code, line) = match why {
                    InvalidPolicy::Name { .. } => (Code::BadName, line),
                    _ => (Code::BadLimit, limits.line),
                };
                findings.add(code, line, why.to_string());
                return None;
            }
        };
        find_needless(&policy, limits.line, findings);
        policy = add_tiers(policy, &self.tiers, findings);
        policy = add_tenants(&policy, self.tenants, findings);
        if let Some(mode) = mode {
            policy = policy.with_failure_mode(mode);
        }
        policy = enforced(
            policy,
            self.shadow.as_ref(),
            self.enforced.as_ref(),
            findings,
        );
        policy = throttled(policy, self.throttle, findings);
        let spends = [
            self.cost.as_ref().map(|cost| ("cost", cost.line)),
            self.charge_on
                .as_ref()
                .map(|statuses| ("charge_on", statuses.line)),
            self.settle.as_ref().map(|settle| ("settle", settle.line)),
        ];
        find_without_units(&policy, spends, findings);
        policy = costing(policy, self.cost, findings);
        policy = ruled(
            policy,
            self.exempt,
            self.blocked,
            self.blocked_status.as_ref(),
            findings,
        );
        if let Some(statuses) = self.charge_on.and_then(|spot| spot.value) {
            policy = policy.charge_on(statuses);
        }
        if let Some(settle) = self.settle.and_then(|spot| spot.value) {
            policy = policy.settle_by(settle);
        }
        Some(policy)
    }

    fn failure_mode(&self, line: usize, findings: &mut Findings) -> Option<FailureMode> {
        let mode = self.on_failure.as_ref();
        let is_shared = mode.is_some_and(|mode| mode.value == Some(Mode::LocalShare));
        match &self.instances {
            Some(instances) if !is_shared => {
                let told = "instances means something only with on_failure = \"local_share\"";
                findings.add(Code::IgnoredField, instances.line, told);
            }
            None if is_shared => {
                let told =
                    "on_failure = \"local_share\" needs instances, how many share the limits";
                findings.add(
                    Code::MissingField,
                    mode.map_or(line, |mode| mode.line),
                    told,
                );
            }
            _ => {}
        }
        match mode?.value? {
            Mode::Plain(mode) => Some(mode),
            Mode::LocalShare => {
                let instances = self.instances.as_ref()?.value?;
                Some(FailureMode::LocalShare { instances })
            }
        }
    }
}

fn enforced(
    policy: Policy,
    shadow: Option<&Spot<bool>>,
    percent: Option<&Spot<u8>>,
    findings: &mut Findings,
) -> Policy {
    let is_shadow = shadow.and_then(|shadow| shadow.value) == Some(true);
    match percent {
        Some(percent) if is_shadow => {
            let told = "shadow = true enforces nothing: leave out one of shadow and enforced";
            findings.add(Code::ConflictingFields, percent.line, told);
            policy
        }
        None if is_shadow => policy.shadow(),
        Some(Spot {
            value: Some(percent),
            ..
        }) => policy.with_enforcement(*percent).unwrap_or(policy),
        _ => policy,
    }
}

fn throttled(policy: Policy, throttle: Option<Spot<Throttle>>, findings: &mut Findings) -> Policy {
    let Some(Spot {
        line,
        value: Some(throttle),
    }) = throttle
    else {
        return policy;
    };
    policy.with_throttle(throttle).unwrap_or_else(|why| {
        findings.add(Code::BadThrottle, line, why.to_string());
        policy
    })
}

fn costing(policy: Policy, cost: Option<Spot<Cost>>, findings: &mut Findings) -> Policy {
    let Some(Spot {
        line,
        value: Some(cost),
    }) = cost
    else {
        return policy;
    };
    match cost {
        Cost::Told(source) => policy.cost_of(source),
        Cost::Fixed(cost) => policy.with_cost(cost).unwrap_or_else(|why| {
            findings.add(Code::ImpossibleCost, line, why.to_string());
            policy
        }),
    }
}

fn ruled(
    mut policy: Policy,
    exempt: Vec<Written>,
    blocked: Vec<Written>,
    status: Option<&Spot<Blocked>>,
    findings: &mut Findings,
) -> Policy {
    find_overlapping(&exempt, &blocked, findings);
    if let Some(status) = status {
        if blocked.is_empty() {
            let told = "blocked_status means something only with rules in blocked";
            findings.add(Code::IgnoredField, status.line, told);
        }
        policy = policy.blocked_as(status.value.unwrap_or_default());
    }
    for written in exempt {
        policy = policy.exempt(written.rule);
    }
    for written in blocked {
        policy = policy.block(written.rule);
    }
    policy
}

/// Adds a finding for each field that says what is spent where no limit counts that.
fn find_without_units(
    policy: &Policy,
    fields: [Option<(&str, usize)>; 3],
    findings: &mut Findings,
) {
    let has_units = |policy: &Policy| policy.limits().iter().any(Limit::counts_units);
    if has_units(policy) || policy.tiers().any(|(_, tier)| has_units(tier)) {
        return;
    }
    for (name, line) in fields.into_iter().flatten() {
        let told = format!("{name} means nothing here: a hit holds one slot, whatever it costs");
        findings.add(Code::IgnoredField, line, told);
    }
}
