//! The rules as a list, for operators.

use ratelimit_core::Policy;

use crate::rule::{
    Effect, Role, Rules,
    tree::{DescriptorLevel, RuleNode},
};

/// A rule that limits requests.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ListedRule<'a> {
    /// The domain of the rule.
    pub domain: &'a str,
    /// The policy that requests are charged under. Its name begins with `rls:` or `rlqs:`, unless the rule names a policy of
    /// the configuration.
    pub policy: &'a Policy,
    /// Whether the policy is a window of the rule's rate. Its throttle is then the room for readings, not a setting.
    pub is_window: bool,
    /// The part that the rule has in decisions.
    pub role: Role,
    /// Whether the rule is for buckets of the quota service.
    pub is_bucket: bool,
}

impl Rules {
    /// The rules that limit requests, in no order. Rules without a limit, and those of 0 requests, have no policy and are
    /// left out.
    ///
    /// ```
    /// use ratelimit_envoy::RulesBuilder;
    ///
    /// let mut builder = RulesBuilder::new();
    /// let text = "{domain: edge, descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 5}}]}";
    /// assert!(builder.add_yaml(text).is_empty());
    /// let rules = builder.build();
    ///
    /// let listed = rules.listed();
    /// assert_eq!((listed[0].domain, listed[0].policy.name()), ("edge", "rls:edge:user"));
    /// ```
    pub fn listed(&self) -> Vec<ListedRule<'_>> {
        let mut listed = Vec::new();
        for (domains, is_bucket) in [(&self.domains, false), (&self.buckets, true)] {
            for (domain, level) in domains {
                for node in all_nodes(level) {
                    listed.extend(listed_rule(domain, node, is_bucket));
                }
            }
        }
        listed
    }
}

/// All nodes below a level. A stack in place of recursion: a path may have any number of steps.
fn all_nodes(level: &DescriptorLevel) -> impl Iterator<Item = &RuleNode> {
    let mut open: Vec<&RuleNode> = level.nodes().collect();
    std::iter::from_fn(move || {
        let node = open.pop()?;
        open.extend(node.next.nodes());
        Some(node)
    })
}

fn listed_rule<'a>(domain: &'a str, node: &'a RuleNode, is_bucket: bool) -> Option<ListedRule<'a>> {
    let rule = node.rule.as_ref()?;
    let (policy, is_window) = match &rule.effect {
        Effect::Unlimited | Effect::Blocked(_) => return None,
        Effect::Limited(window) => (&window.charge, true),
        Effect::Policy(policy) => (&policy.charge, false),
    };
    Some(ListedRule {
        domain,
        policy,
        is_window,
        role: rule.role,
        is_bucket,
    })
}

#[cfg(test)]
mod tests {
    use crate::{Role, RulesBuilder};

    #[test]
    fn every_rule_with_a_limit_is_listed_once() {
        let mut builder = RulesBuilder::new();
        let text = "
domain: edge
descriptors:
  - {key: plan, value: free, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: plan, value: 'p*', rate_limit: {unit: hour, requests_per_unit: 7}}
  - key: plan
    rate_limit: {unlimited: true}
    descriptors:
      - {key: path, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: 'x-*', rate_limit: {unit: day, requests_per_unit: 9}}
  - {key: blocked, rate_limit: {unit: day, requests_per_unit: 0}}
";
        let found = builder.add_yaml(text);
        assert!(
            found.iter().all(|one| one.code.as_str() == "key-pattern"),
            "{found:?}"
        );
        let rules = builder.build();

        let mut listed: Vec<_> = rules
            .listed()
            .iter()
            .map(|rule| (rule.policy.limits()[0].to_string(), rule.role))
            .collect();
        listed.sort_by(|one, other| one.0.cmp(&other.0));

        assert_eq!(
            listed,
            [
                ("fixed_window 1/s".to_owned(), Role::Watch),
                ("fixed_window 5/min".to_owned(), Role::Must),
                ("fixed_window 7/h".to_owned(), Role::Must),
                ("fixed_window 9/d".to_owned(), Role::Must),
            ]
        );
    }
}
