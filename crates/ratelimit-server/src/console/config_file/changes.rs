//! The difference between a configuration and the one that runs.

use ratelimit_http::policy::HttpPolicy;
use serde::Serialize;

use crate::{
    config::{Policies, ReloadableConfig},
    config_check::EnvoyLimits,
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
    /// The settings that a reload changes.
    settings: Vec<String>,
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
        running: &ReloadableConfig,
        new: &ReloadableConfig,
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
            settings: new.settings.changes(&running.settings),
            needs_restart: Vec::new(),
        }
    }

    pub(super) fn with_needs_restart(self, needs_restart: Vec<String>) -> Changes {
        Changes {
            needs_restart,
            ..self
        }
    }

    /// Adds the changes of Envoy rules, which are policies like others.
    pub(super) fn with_envoy(mut self, before: &EnvoyLimits, after: &EnvoyLimits) -> Changes {
        let missing = |one: &EnvoyLimits, others: &EnvoyLimits| -> Vec<String> {
            let names = one.keys().filter(|name| !others.contains_key(*name));
            names.cloned().collect()
        };
        self.added.extend(missing(after, before));
        self.removed.extend(missing(before, after));
        let both = after
            .iter()
            .filter_map(|(name, to)| Some((name, before.get(name)?, to)));
        let changed = both.filter(|(_, from, to)| from != to);
        self.changed
            .extend(changed.map(|(name, from, to)| ChangedPolicy {
                name: name.clone(),
                from: from.clone(),
                to: to.clone(),
            }));
        self
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
