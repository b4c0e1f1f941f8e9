//! Policies in a TOML or YAML file, with diagnostics.
//!
//! [`PolicyFile::parse`] reads a text in three stages:
//!
//! 1. TOML or YAML becomes a tree of [`Node`]s, each with its line.
//! 2. The fields of each policy are read by name. An unknown field gets a suggestion.
//! 3. The fields of a policy are combined into an [`HttpPolicy`](crate::policy::HttpPolicy), and conflicts,
//!    overlapping rules and redundant limits are reported.
//!
//! A mistake does not end the reading, so one run reports all of them. Each [`Diagnostic`] has a stable
//! [code](DiagnosticCode) and a line.
//!
//! The tree and [`read_table`] are public for programs that embed policies in a configuration file of their
//! own:
//!
//! ```
//! # #[cfg(feature = "toml")] {
//! use ratelimit_http::key::KeyKinds;
//! use ratelimit_http::policy_file::{Diagnostics, Field, Format, parse, read_policies, read_table};
//! use ratelimit_http::policy::HttpPolicy;
//!
//! #[derive(Default)]
//! struct Settings {
//!     port: Option<u16>,
//!     policies: Vec<HttpPolicy>,
//! }
//!
//! const FIELDS: &[Field<Settings>] = &[
//!     Field::new("port", |settings, node, diagnostics| {
//!         settings.port = node.integer("a port", diagnostics);
//!     }),
//!     Field::new("policy", |settings, node, diagnostics| {
//!         settings.policies = read_policies(node, |name| name, &KeyKinds::unknown(), diagnostics);
//!     }),
//! ];
//!
//! let text = "port = 8080\n[policy]\nlogin = '5/min'\n";
//! let (mut settings, mut diagnostics) = (Settings::default(), Diagnostics::new());
//! let root = parse(text, Format::Toml, &mut diagnostics).expect("TOML");
//! let entries = root.table(&mut diagnostics).expect("a table");
//! read_table(&mut settings, entries, FIELDS, &mut diagnostics);
//!
//! assert!(!diagnostics.has_errors());
//! assert_eq!((settings.port, settings.policies.len()), (Some(8080), 1));
//! # }
//! ```

mod build;
mod code;
mod diagnostic;
mod field;
mod file;
mod format;
mod overlap;
mod redundant;
mod schema;
mod slow_bucket;
mod suggest;
mod tiers;
#[cfg(feature = "toml")]
mod toml;
mod tree;
mod values;
#[cfg(feature = "yaml")]
mod yaml;

pub(crate) use self::file::read_bytes;
pub use self::{
    code::{DiagnosticCode, Severity},
    diagnostic::{Diagnostic, Diagnostics, InvalidPolicyFile},
    field::{Field, read_table},
    file::{PolicyFile, parse, read},
    format::Format,
    schema::{policy_field_names, read_policies},
    slow_bucket::slow_bucket_warnings,
    suggest::nearest,
    tree::{Entry, Node, Value},
};
