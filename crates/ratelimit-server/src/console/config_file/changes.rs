//! The difference between a configuration and the one that runs.

use ratelimit_http::policy::HttpPolicy;
use serde::Serialize;

use crate::{
    config::{Policies, Rules},
    console::policies::PolicyTerms,
    policy_summary::PolicySummary,
};

/// The policies that a text adds, removes and changes, and the settings that need a restart.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Changes {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<ChangedPolicy>,
    needs_restart: Vec<String>,
}

#[derive(Serialize)]
struct ChangedPolicy {
    name: String,
    from: String,
    to: String,
}

impl Changes {
    /// The changes from the running rules to new ones. `has_hidden`: secrets of the new ones are hidden, and are taken for
    /// unchanged.
    pub(super) fn new(
        running: &Rules,
        new: &Rules,
        needs_restart: Vec<String>,
        has_hidden: bool,
    ) -> Changes {
        let (before, after) = (&running.policies, &new.policies);
        let changed = after.iter_http().filter_map(|policy| {
            let old = before.http(policy.name())?;
            let is_same = if has_hidden {
                is_same_but_for_secrets(old, policy)
            } else {
                old == policy
            };
            (!is_same).then(|| ChangedPolicy {
                name: policy.name().to_owned(),
                from: PolicySummary(old.policy()).to_string(),
                to: PolicySummary(policy.policy()).to_string(),
            })
        });
        Changes {
            added: missing_names(after, before),
            removed: missing_names(before, after),
            changed: changed.collect(),
            needs_restart,
        }
    }
}

/// The names of policies that `others` lack.
fn missing_names(policies: &Policies, others: &Policies) -> Vec<String> {
    let names = policies.iter().map(ratelimit_core::Policy::name);
    let missing = names.filter(|name| others.named(name).is_none());
    missing.map(str::to_owned).collect()
}

fn is_same_but_for_secrets(one: &HttpPolicy, other: &HttpPolicy) -> bool {
    let summary = |policy: &HttpPolicy| PolicySummary(policy.policy()).to_string();
    let terms = |policy: &HttpPolicy| PolicyTerms::new(policy.policy(), Some(policy));
    summary(one) == summary(other) && terms(one).is_same_but_for_tenants(&terms(other))
}
