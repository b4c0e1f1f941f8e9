//! Descriptors and limits as they are written.

use prost_types::Struct;

/// A descriptor of a configuration: one level of a rule's path.
///
/// [`RulesBuilder::add_domain`](crate::RulesBuilder::add_domain) checks it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the file of its own"
)]
pub struct DescriptorConfig {
    /// The line in its file, from 1; 0 without a file.
    pub line: usize,
    /// The key of the entry that it matches.
    pub key: String,
    /// The value that it matches, with `*` for any text; empty for every value.
    pub value: String,
    /// The limit for descriptors that end here.
    pub limit: Option<LimitConfig>,
    /// The next entry of longer descriptors.
    pub descriptors: Vec<DescriptorConfig>,
    /// Whether the rule counts and never denies.
    pub shadow_mode: bool,
    /// Whether a request passes if any of its rules in quota mode has budget left.
    pub quota_mode: bool,
    /// Whether all values that match the pattern share one budget.
    pub share_threshold: bool,
    /// Whether metrics of the rule have the values of all entries.
    pub detailed_metric: bool,
    /// Whether metrics of the rules below have the value of this entry.
    pub value_to_metric: bool,
    /// The content of `dynamic_metadata.metadata` while the rule is not over its limit.
    pub metadata: Option<Struct>,
}

/// The limit of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitConfig {
    /// The line in its file, from 1; 0 without a file.
    pub line: usize,
    /// The unit of time as written, in any case; empty without one.
    pub unit: String,
    /// The requests in each unit of time. 0 denies every request.
    pub requests_per_unit: u32,
    /// Whether nothing is counted.
    pub unlimited: bool,
    /// The name that `replaces` of other rules refer to.
    pub name: String,
    /// The names of rules that do not apply to a request that this rule matches.
    pub replaces: Vec<String>,
}
