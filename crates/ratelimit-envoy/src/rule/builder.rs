//! Rules from descriptors as they are written.

use std::collections::HashMap;

use ratelimit_http::{
    policy::HttpPolicy,
    policy_file::{Diagnostic, DiagnosticCode, Diagnostics},
};

use crate::{
    config::{
        DescriptorConfig, LimitConfig, PolicyConfig, RuleConfig, UnmatchedBuckets, read_domain,
    },
    policy_name::PolicyName,
    rule::{
        Effect, Role, Rule, RulePolicy, Rules, Window,
        bucket::bucket_policy,
        tree::{DescriptorLevel, RuleNode},
        unit::{Rate, Unit},
    },
};

/// The units, for messages.
const UNITS: &str = "second, minute, hour, day, week, month or year";

/// Builds [`Rules`] from files and checks them.
///
/// Each `add_` method returns the diagnostics of what it added. The rules are complete only if none is an error.
#[derive(Debug, Default)]
pub struct RulesBuilder {
    rules: Rules,
    merge_domains: bool,
    value_metrics: bool,
    /// The number of descriptors of all resources.
    pub(crate) resource_descriptors: usize,
}

impl RulesBuilder {
    /// A builder without rules.
    pub fn new() -> RulesBuilder {
        RulesBuilder::default()
    }

    /// Sets whether a domain may be added several times. By default the second one is an error.
    #[must_use]
    pub fn merge_domains(mut self, merge: bool) -> RulesBuilder {
        self.merge_domains = merge;
        self
    }

    /// Sets whether all rules are in quota mode: a request passes if one of its descriptors does.
    #[must_use]
    pub fn quota_mode(mut self, is_quota: bool) -> RulesBuilder {
        self.rules.is_quota = is_quota;
        self
    }

    /// Sets whether the caller counts [`usages`](crate::ResolvedRequest::usages). By default `detailed_metric` and
    /// `value_to_metric` get a warning.
    #[must_use]
    pub fn value_metrics(mut self, are_counted: bool) -> RulesBuilder {
        self.value_metrics = are_counted;
        self
    }

    /// Adds the rules of a YAML text in the form of Envoy's rate limit server.
    pub fn add_yaml(&mut self, text: &str) -> Vec<Diagnostic> {
        let mut diagnostics = Diagnostics::new();
        if let Some((domain, descriptors)) = read_domain(text, &mut diagnostics) {
            self.add(&domain, descriptors, &mut diagnostics);
        }
        diagnostics.sorted()
    }

    /// Adds the rules of a domain.
    pub fn add_domain(
        &mut self,
        domain: &str,
        descriptors: Vec<DescriptorConfig>,
    ) -> Vec<Diagnostic> {
        let mut diagnostics = Diagnostics::new();
        self.add(domain, descriptors, &mut diagnostics);
        diagnostics.sorted()
    }

    /// Adds rules of a configuration file. `named` finds the policies that they name.
    ///
    /// The rules of a domain are added to those that it has already, so call it before files are added: a file with
    /// the same domain is then an error, unless [domains are merged](Self::merge_domains).
    pub fn add_rules<'p>(
        &mut self,
        rules: &'p [RuleConfig],
        named: impl Fn(&str) -> Option<&'p HttpPolicy>,
    ) -> Vec<Diagnostic> {
        let mut diagnostics = Diagnostics::new();
        for rule in rules {
            let Some((policy, line)) = policy_of(rule, &named, &mut diagnostics) else {
                continue;
            };
            let policy = RulePolicy::new(policy, &rule.entries, line, &mut diagnostics);
            self.rules.policies.push(policy.reading.clone());
            add_rule(&mut self.rules.domains, rule, policy, &mut diagnostics);
        }
        diagnostics.sorted()
    }

    /// Adds rules for buckets of the quota service. `named` finds the policies that they name.
    ///
    /// Policies that grants cannot carry are errors.
    pub fn add_buckets<'p>(
        &mut self,
        rules: &'p [RuleConfig],
        unmatched: UnmatchedBuckets,
        named: impl Fn(&str) -> Option<&'p HttpPolicy>,
    ) -> Vec<Diagnostic> {
        let mut diagnostics = Diagnostics::new();
        self.rules.unmatched = unmatched;
        for rule in rules {
            let Some((policy, line)) = policy_of(rule, &named, &mut diagnostics) else {
                continue;
            };
            let policy = bucket_policy(policy, rule, line, &mut diagnostics);
            self.rules.policies.push(policy.reading.clone());
            add_rule(&mut self.rules.buckets, rule, policy, &mut diagnostics);
        }
        diagnostics.sorted()
    }

    /// The rules.
    pub fn build(self) -> Rules {
        self.rules
    }

    fn add(
        &mut self,
        domain: &str,
        descriptors: Vec<DescriptorConfig>,
        diagnostics: &mut Diagnostics,
    ) {
        let is_new = !self.rules.domains.contains_key(domain);
        if !is_new && !self.merge_domains {
            let message = format!(
                "the domain {domain:?} has rules already, of another file or resource or of [[envoy.rule]]"
            );
            diagnostics.add(DiagnosticCode::DuplicateName, 1, message);
            return;
        }
        if !self.value_metrics {
            report_value_metrics(&descriptors, diagnostics);
        }
        let level = self.rules.domains.entry(domain.to_owned()).or_default();
        add_level(level, descriptors, &PolicyName::domain(domain), diagnostics);
    }
}

/// The policy of a rule, and the line that its mistakes are reported at.
fn policy_of<'p>(
    rule: &'p RuleConfig,
    named: impl Fn(&str) -> Option<&'p HttpPolicy>,
    diagnostics: &mut Diagnostics,
) -> Option<(&'p HttpPolicy, usize)> {
    match &rule.policy {
        PolicyConfig::Own(policy) => Some((policy, rule.line)),
        PolicyConfig::Named(name, line) => {
            let policy = named(name);
            if policy.is_none() {
                let message = format!("there is no policy {name:?}");
                diagnostics.add(DiagnosticCode::UnknownPolicy, *line, message);
            }
            policy.map(|policy| (policy, *line))
        }
    }
}

/// Adds one rule at the end of its path.
fn add_rule(
    domains: &mut HashMap<String, DescriptorLevel>,
    rule: &RuleConfig,
    policy: RulePolicy,
    diagnostics: &mut Diagnostics,
) {
    let mut level = domains.entry(rule.domain.clone()).or_default();
    let Some((last, path)) = rule.entries.split_last() else {
        return;
    };
    for entry in path {
        let node = level.entry(&entry.key, &entry.value);
        node.metric_key = metric_key(&entry.key, &entry.value);
        level = &mut node.next;
    }
    let node = level.entry(&last.key, &last.value);
    node.metric_key = metric_key(&last.key, &last.value);
    if node.rule.is_some() {
        let message = "another rule of the domain has the same match";
        diagnostics.add(DiagnosticCode::DuplicateName, rule.line, message);
        return;
    }
    node.rule = Some(Rule {
        policy_name: rule.path(),
        effect: Effect::Policy(Box::new(policy)),
        role: Role::Must,
        name: rule.name.clone(),
        replaces: Vec::new(),
        metadata: None,
        detailed_metric: false,
    });
}

/// Adds descriptors to the level of their path.
fn add_level(
    level: &mut DescriptorLevel,
    descriptors: Vec<DescriptorConfig>,
    path: &PolicyName,
    diagnostics: &mut Diagnostics,
) {
    for descriptor in descriptors {
        let (line, key) = (descriptor.line, descriptor.key.clone());
        let value = descriptor.value.clone();
        if key.is_empty() {
            let message = "expected the field key with a name";
            diagnostics.add(DiagnosticCode::MissingField, line, message);
            continue;
        }
        if key.contains('*') {
            let message = format!("{key:?} is a pattern: it matches every key of this form");
            diagnostics.add(DiagnosticCode::KeyPattern, line, message);
        }
        let path = path.step(&key, &value);
        report_ignored(&descriptor, diagnostics);
        let mut node = RuleNode {
            shared_pattern: (descriptor.share_threshold && value.contains('*'))
                .then(|| value.as_bytes().into()),
            metric_key: metric_key(&key, &value),
            value_to_metric: descriptor.value_to_metric,
            ..RuleNode::default()
        };
        let DescriptorConfig {
            limit, descriptors, ..
        } = descriptor;
        add_level(&mut node.next, descriptors, &path, diagnostics);
        if let Some(limit) = limit {
            let role = match (descriptor.shadow_mode, descriptor.quota_mode) {
                (true, _) => Role::Watch,
                (false, true) => Role::Any,
                (false, false) => Role::Must,
            };
            node.rule = effect(&limit, &path, diagnostics).map(|effect| Rule {
                policy_name: path,
                effect,
                role,
                name: limit.name,
                replaces: limit.replaces,
                metadata: descriptor.metadata,
                detailed_metric: descriptor.detailed_metric,
            });
        }
        if !level.add(&key, &value, node) {
            let entry = if value.is_empty() {
                key
            } else {
                format!("{key}={value}")
            };
            let message = format!("{entry:?} is there twice");
            diagnostics.add(DiagnosticCode::DuplicateName, line, message);
        }
    }
}

/// The key and the value of a rule in metrics, joined as Envoy's rate limit server joins them.
fn metric_key(key: &str, value: &str) -> String {
    match value {
        "" => key.to_owned(),
        value => format!("{key}_{value}"),
    }
}

/// Reports values for metrics that no metric has.
fn report_value_metrics(descriptors: &[DescriptorConfig], diagnostics: &mut Diagnostics) {
    for descriptor in descriptors {
        for (name, is_set) in [
            ("detailed_metric", descriptor.detailed_metric),
            ("value_to_metric", descriptor.value_to_metric),
        ] {
            if is_set {
                let message = format!(
                    "{name} has no effect without envoy-ratelimit-metrics: other metrics are by rule, without values"
                );
                diagnostics.add(DiagnosticCode::IgnoredField, descriptor.line, message);
            }
        }
        report_value_metrics(&descriptor.descriptors, diagnostics);
    }
}

/// Reports settings that have no effect beside the others.
fn report_ignored(descriptor: &DescriptorConfig, diagnostics: &mut Diagnostics) {
    let has_limit = descriptor.limit.is_some();
    for (is_ignored, reason) in [
        (
            descriptor.share_threshold && !descriptor.value.contains('*'),
            "share_threshold has no effect: the value is no pattern with *",
        ),
        (
            descriptor.shadow_mode && !has_limit,
            "shadow_mode has no effect without rate_limit",
        ),
        (
            descriptor.quota_mode && !has_limit,
            "quota_mode has no effect without rate_limit",
        ),
        (
            descriptor.quota_mode && descriptor.shadow_mode,
            "quota_mode has no effect beside shadow_mode",
        ),
        (
            descriptor.detailed_metric && !has_limit,
            "detailed_metric has no effect without rate_limit",
        ),
        (
            descriptor.metadata.is_some() && !has_limit,
            "metadata has no effect without rate_limit",
        ),
    ] {
        if is_ignored {
            diagnostics.add(DiagnosticCode::IgnoredField, descriptor.line, reason);
        }
    }
}

/// The effect of a limit, or `None` after a diagnostic.
fn effect(limit: &LimitConfig, path: &PolicyName, diagnostics: &mut Diagnostics) -> Option<Effect> {
    let mut reject = |code, message: String| diagnostics.add(code, limit.line, message);
    if limit.replaces.iter().any(String::is_empty) {
        let message = "expected names in replaces, not an empty text".to_owned();
        reject(DiagnosticCode::BadValue, message);
    }
    if !limit.name.is_empty() && limit.replaces.contains(&limit.name) {
        let message = format!("{:?} replaces itself", limit.name);
        reject(DiagnosticCode::ConflictingFields, message);
    }
    let unit = Unit::from_name(&limit.unit);
    match unit {
        _ if limit.unlimited && unit.is_some() => {
            let message = "unlimited has no unit".to_owned();
            reject(DiagnosticCode::ConflictingFields, message);
            None
        }
        _ if limit.unlimited => Some(Effect::Unlimited),
        None if limit.unit.is_empty() => {
            let message = format!("expected the field unit with {UNITS}");
            reject(DiagnosticCode::MissingField, message);
            None
        }
        None => {
            let message = format!("expected {UNITS}, not {:?}", limit.unit);
            reject(DiagnosticCode::BadValue, message);
            None
        }
        Some(unit) if limit.requests_per_unit == 0 => Some(Effect::Blocked(Rate::per(unit, 0))),
        Some(unit) => {
            let rate = Rate::per(unit, limit.requests_per_unit);
            let window = Window::new(path.as_str(), rate);
            window
                .map(Effect::Limited)
                .map_err(|error| reject(DiagnosticCode::BadLimit, error.to_string()))
                .ok()
        }
    }
}
