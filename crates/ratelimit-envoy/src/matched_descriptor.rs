//! The rule of a descriptor.

use crate::{
    policy_name::PolicyName,
    proto::envoy::extensions::common::ratelimit::v3::{
        RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride,
    },
    rule::{DescriptorLevel, Effect, Rate, Rule, RuleNode, Rules, Unit, Window},
};

/// The rule of a descriptor, and the limit that replaces the rule's own.
pub(crate) struct MatchedDescriptor<'r> {
    pub(crate) descriptor: &'r RateLimitDescriptor,
    rule: Option<&'r Rule>,
    pub(crate) path: Vec<&'r RuleNode>,
    pub(crate) rate: Option<Rate>,
    /// Whether the descriptor has a limit that cannot be applied.
    pub(crate) ignores_override: bool,
}

impl<'r> MatchedDescriptor<'r> {
    pub(crate) fn new(
        domain: &'r DescriptorLevel,
        descriptor: &'r RateLimitDescriptor,
    ) -> MatchedDescriptor<'r> {
        let path = domain.find(&descriptor.entries).unwrap_or_default();
        // A limit without entries has no key to count by.
        let has_key = !descriptor.entries.is_empty();
        let limit = descriptor.limit.as_ref();
        let rate = limit.map(|limit| override_rate(limit).filter(|_| has_key));
        MatchedDescriptor {
            descriptor,
            rule: path.last().and_then(|node| node.rule.as_ref()),
            path,
            ignores_override: rate == Some(None),
            rate: rate.flatten(),
        }
    }

    /// The rule, unless a limit of the descriptor takes its place.
    pub(crate) fn own_rule(&self) -> Option<&'r Rule> {
        self.rule.filter(|_| self.rate.is_none())
    }

    /// The policies of the descriptor's own limit: those of the rule if the rate is equal, else cached or new ones.
    /// Windows of the same length share their counts.
    pub(crate) fn override_window(
        &self,
        rules: &Rules,
        rate: Rate,
        domain: &str,
    ) -> Option<Window> {
        let name = match self.rule {
            None => PolicyName::domain(domain).with_period(rate.period()),
            Some(rule) => match &rule.effect {
                Effect::Limited(window) if window.rate == rate => return Some(window.clone()),
                Effect::Limited(window) if window.rate.period() == rate.period() => {
                    rule.policy_name.clone()
                }
                _ => rule.policy_name.with_period(rate.period()),
            },
        };
        rules.override_window(name.into_string(), rate)
    }
}

/// The limit of a descriptor; `None` if it cannot be applied.
fn override_rate(limit: &RateLimitOverride) -> Option<Rate> {
    let rate = Rate {
        requests: limit.requests_per_unit,
        unit: Unit::from_number(limit.unit)?,
        multiplier: limit.unit_multiplier.unwrap_or(1),
    };
    rate.is_countable().then_some(rate)
}
