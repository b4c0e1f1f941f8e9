//! Rules as they are written: the YAML files of Envoy's rate limit server, and rules of this project.
//!
//! - `yaml.rs`: YAML 1.1 as a tree, with aliases expanded.
//! - `scalar.rs`: texts, numbers and booleans of the tree.
//! - `file.rs`: the fields of a file.
//! - `descriptor.rs`: the result, which other sources of rules produce as well.
//! - `rule.rs`: the rules in a configuration file of this project.

mod descriptor;
mod file;
mod rule;
mod scalar;
mod yaml;

pub use self::{
    descriptor::{DescriptorConfig, LimitConfig},
    rule::{RuleConfig, RulesConfig, UnmatchedBuckets, read_rules, rule_field_names},
};
pub(crate) use self::{
    file::read_domain,
    rule::{EntryConfig, PolicyConfig},
};
