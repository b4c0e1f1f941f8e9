//! Rules: which budget a descriptor spends.
//!
//! - `unit.rs`: [`Unit`] and [`Rate`], a number of requests in a period.
//! - `pattern.rs`: texts with `*`.
//! - `window.rs`: the budget of a rate.
//! - `override_cache.rs`: the budgets of limits that requests bring along.
//! - `rule_policy.rs`: the budgets of any policy.
//! - `tree.rs`: the lookup of descriptors.
//! - `bucket.rs`: the lookup of buckets of the quota service.
//! - `listing.rs`: [`ListedRule`], the rules for operators.
//! - `builder.rs`: [`RulesBuilder`], which checks rules as they are written.

mod bucket;
mod builder;
mod listing;
mod override_cache;
mod pattern;
mod rule_policy;
mod tree;
mod unit;
mod window;

use std::collections::HashMap;

use prost_types::Struct;
use ratelimit_core::Policy;

use crate::{config::UnmatchedBuckets, policy_name::PolicyName};

use self::override_cache::OverrideCache;
pub use self::{builder::RulesBuilder, listing::ListedRule, unit::Unit};
pub(crate) use self::{
    rule_policy::RulePolicy,
    tree::{DescriptorLevel, RuleNode, budget_key},
    unit::Rate,
    window::Window,
};

/// The rules of all domains, to look descriptors up in.
///
/// A lookup is one hash lookup for each entry of a descriptor, and the patterns of its key.
#[derive(Debug, Default)]
pub struct Rules {
    domains: HashMap<String, DescriptorLevel>,
    overrides: OverrideCache,
    /// The policies of the rules that are not windows.
    policies: Vec<Policy>,
    /// Whether all rules are in quota mode.
    is_quota: bool,
    /// The rules for buckets of the quota service.
    buckets: HashMap<String, DescriptorLevel>,
    unmatched: UnmatchedBuckets,
}

impl Rules {
    /// The policies of [`RulesBuilder::add_rules`], with the headroom for readings.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The names of the domains, in no order.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.domains.keys().map(String::as_str)
    }

    /// Whether all rules are in quota mode.
    pub(crate) fn is_quota(&self) -> bool {
        self.is_quota
    }

    /// The rules of a domain.
    pub(crate) fn domain(&self, name: &str) -> Option<&DescriptorLevel> {
        self.domains.get(name)
    }

    /// The budget of a limit that a request brings along; `None` if it cannot be counted.
    pub(crate) fn override_window(&self, policy_name: String, rate: Rate) -> Option<Window> {
        self.overrides.get(policy_name, rate)
    }
}

/// A rule: the limit of the descriptors that end at its node.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The name of its policy, from which the names of overridden limits are derived.
    pub(crate) policy_name: PolicyName,
    pub(crate) effect: Effect,
    pub(crate) role: Role,
    /// The name in answers and in `replaces` of other rules; empty without one.
    pub(crate) name: String,
    /// The names of rules that do not apply beside this one.
    pub(crate) replaces: Vec<String>,
    pub(crate) metadata: Option<Struct>,
    /// Whether metrics have the values of all entries.
    pub(crate) detailed_metric: bool,
}

/// The limit of a rule.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Every request passes, and nothing is counted.
    Unlimited,
    /// No request passes: a rate of 0 requests.
    Blocked(Rate),
    /// A budget for each key.
    Limited(Window),
    /// The budgets of a policy.
    Policy(Box<RulePolicy>),
}

/// The part that a member has in the decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The request passes only if this member has budget left.
    Must,
    /// The request passes only if one of the members with this role has budget left (quota mode).
    Any,
    /// The member is charged if it has budget left, and never denies (shadow mode).
    Watch,
}
