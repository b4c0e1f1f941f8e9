//! Policies written in a file, TOML or YAML, and all that is wrong with it.

mod code;
mod field;
mod file;
mod finding;
mod format;
#[cfg(feature = "toml")]
mod from_toml;
#[cfg(feature = "yaml")]
mod from_yaml;
mod node;
mod overlapping;
mod policy_draft;
mod policy_table;
mod policy_values;
mod suggestion;
mod tier_table;

pub use self::{
    code::{Code, Severity},
    field::{Field, read_table},
    file::{PolicyFile, parse, read},
    finding::{Finding, Findings, InvalidPolicyFile},
    format::Format,
    node::{Entry, Node, Value},
    policy_table::read_policies,
};
