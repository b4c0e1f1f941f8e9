//! The budgets of buckets of the quota service.

use std::{fmt::Write as _, sync::Arc};

use ratelimit_core::{FailureMode, KeySet, Limit, Policy, Throttle};
use ratelimit_http::{
    policy::HttpPolicy,
    policy_file::{DiagnosticCode, Diagnostics},
};

use crate::{
    charge::Charge,
    config::{RuleConfig, UnmatchedBuckets},
    proto::envoy::{
        extensions::common::ratelimit::v3::rate_limit_descriptor::Entry,
        service::rate_limit_quota::v3::BucketId,
    },
    quota::{QuotaTarget, too_fine},
    rule::{Effect, RulePolicy, Rules, rule_policy::with_tiers},
};

/// The budgets of a policy for buckets. Grants need the store, so its policies have the failure mode `closed`.
pub(super) fn bucket_policy(
    policy: &HttpPolicy,
    rule: &RuleConfig,
    line: usize,
    diagnostics: &mut Diagnostics,
) -> RulePolicy {
    let mut own = RulePolicy::new(policy, &rule.entries, line, diagnostics);
    report_unquotable(&own.charge, line, diagnostics);
    own.charge = own.charge.with_failure_mode(FailureMode::Closed);
    own.reading = own.reading.with_failure_mode(FailureMode::Closed);
    own
}

/// Reports limits that grants cannot carry.
fn report_unquotable(policy: &Policy, line: usize, diagnostics: &mut Diagnostics) {
    for limit in with_tiers(policy).flat_map(Policy::limits) {
        let reason = match limit {
            // Reported for every rule.
            Limit::Concurrency(_) => continue,
            Limit::PenaltyBox(_) => {
                Some("Envoy denies requests by itself, so a penalty_box cannot count denials")
            }
            Limit::SlidingWindowLog(log) if log.counts_denied() => {
                Some("Envoy denies requests by itself, so count-denied cannot count them")
            }
            _ => None,
        };
        if let Some(reason) = reason {
            diagnostics.add(DiagnosticCode::BadLimit, line, reason);
        }
        if let Some(reason) = too_fine(limit) {
            diagnostics.add(DiagnosticCode::RlqsTooFine, line, reason);
        }
    }
    if policy.prefetch().is_some() {
        let message =
            "grants are charged in advance already: a bucket needs a policy without prefetch";
        diagnostics.add(DiagnosticCode::ConflictingFields, line, message);
    }
    if with_tiers(policy).any(|tier| !matches!(tier.throttle(), Throttle::Hard)) {
        let message =
            "throttle of the policy has no effect on a bucket: grants stay below the limit";
        diagnostics.add(DiagnosticCode::IgnoredField, line, message);
    }
}

impl Rules {
    /// The budget of a bucket, or `None` without a rule.
    ///
    /// The entries of the bucket are compared in the order of their keys.
    pub fn quota_target(&self, domain: &str, bucket: &BucketId) -> Option<QuotaTarget> {
        let entries = bucket.bucket.iter().map(|entry| Entry {
            key: entry.key.clone(),
            value: entry.value.clone(),
        });
        let mut entries: Vec<Entry> = entries.collect();
        entries.sort_by(|one, other| one.key.cmp(&other.key));
        let path = self.buckets.get(domain)?.find(&entries)?;
        let Effect::Policy(policy) = &path.last()?.rule.as_ref()?.effect else {
            return None;
        };
        let keys = policy.keys(&entries);
        let charge = policy.charge.for_key(keys.primary()).clone();
        let (reading, max_reading) = policy.charged(Charge::Reading(u64::MAX), keys.primary());
        let Charge::Reading(max_reading) = max_reading else {
            return None;
        };
        Some(QuotaTarget {
            reading: reading.for_key(keys.primary()).clone(),
            cost: charge.cost().get(),
            max_reading,
            is_enforced: charge.enforces(keys.primary()),
            budget: budget(&charge, &keys),
            charge,
            keys,
        })
    }

    /// The assignment of buckets without a rule.
    pub fn unmatched_buckets(&self) -> UnmatchedBuckets {
        self.unmatched
    }

    /// The names of the domains with rules for buckets, in no order.
    pub fn bucket_domains(&self) -> impl Iterator<Item = &str> {
        self.buckets.keys().map(String::as_str)
    }
}

/// The identity of a budget: the name of the policy and all keys.
fn budget(policy: &Policy, keys: &KeySet) -> Arc<str> {
    let mut budget = format!("{} {}", policy.name(), keys.primary().as_str());
    for name in policy.key_names() {
        let key = keys.get(name).as_str();
        write!(budget, " {name}={key}").expect("a string takes all that is written");
    }
    budget.into()
}
