//! Policies written in a file, TOML or YAML, and all that is wrong with it.

mod build;
mod code;
mod diagnostic;
mod field;
mod file;
mod format;
mod overlap;
mod schema;
mod suggest;
mod tiers;
#[cfg(feature = "toml")]
mod toml;
mod tree;
mod values;
#[cfg(feature = "yaml")]
mod yaml;

pub use self::{
    code::{DiagnosticCode, Severity},
    diagnostic::{Diagnostic, Diagnostics, InvalidPolicyFile},
    field::{Field, read_table},
    file::{PolicyFile, parse, read},
    format::Format,
    schema::read_policies,
    tree::{Entry, Node, Value},
};
