//! The fields of a policy's table.
//!
//! | field | value |
//! |---|---|
//! | `limits` | a text of limits, joined by `;` |
//! | `on_failure` | `local`, `local_share`, `open` or `closed` |
//! | `instances` | the number of instances that share the limits, for `local_share` |
//! | `cost` | a whole number, `header:NAME` or `body` |
//! | `throttle` | a throttle mode |
//! | `shadow` | true: decide and count, deny nothing |
//! | `enforced` | the percentage of keys for which the policy is enforced |
//! | `prefetch` | the share of each limit that an instance may prefetch, such as `5%` |
//! | `tiers` | a table of names and limits |
//! | `tenants` | a table of keys and the names of their tiers |
//! | `exempt`, `blocked` | lists of rules |
//! | `blocked_status` | 403 or 429 |
//! | `charge_on` | a list of statuses and classes |
//! | `settle` | `header:NAME` or `response-bytes` |

use std::{collections::BTreeMap, num::NonZeroU32};

use crate::key::KeyKinds;
use crate::policy::HttpPolicy;
use crate::policy_file::{
    build::PolicyBuilder,
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    field::{Field, read_table, report_duplicate},
    tiers::{tenants, tiers},
    tree::{Entry, Node, Value},
    values::{
        AT_LEAST_1, Located, at_least_1, blocked_status, cost, limits, mode, percent,
        prefetch_share, rules, statuses,
    },
};

/// The fields of a policy's table.
///
/// A new field is a line here, a field of [`PolicyBuilder`], and its use in [`PolicyBuilder::build`].
const FIELDS: &[Field<PolicyBuilder>] = &[
    Field::new("limits", |builder, node, diagnostics| {
        builder.limits = Some(Located::of(node, limits(node, diagnostics)));
    }),
    Field::new("on_failure", |builder, node, diagnostics| {
        builder.on_failure = Some(Located::of(node, mode(node, diagnostics)));
    }),
    Field::new("instances", |builder, node, diagnostics| {
        let count: Option<u32> = node.integer(AT_LEAST_1, diagnostics);
        let count = count.and_then(|count| at_least_1(NonZeroU32::new(count), node, diagnostics));
        builder.instances = Some(Located::of(node, count));
    }),
    Field::new("cost", |builder, node, diagnostics| {
        builder.cost = Some(Located::of(node, cost(node, diagnostics)));
    }),
    Field::new("throttle", |builder, node, diagnostics| {
        let throttle = node.parse_with(DiagnosticCode::BadThrottle, str::parse, diagnostics);
        builder.throttle = Some(Located::of(node, throttle));
    }),
    Field::new("shadow", |builder, node, diagnostics| {
        builder.shadow = Some(Located::of(node, node.boolean(diagnostics)));
    }),
    Field::new("enforced", |builder, node, diagnostics| {
        builder.enforced = Some(Located::of(node, percent(node, diagnostics)));
    }),
    Field::new("prefetch", |builder, node, diagnostics| {
        builder.prefetch = Some(Located::of(node, prefetch_share(node, diagnostics)));
    }),
    Field::new("tiers", |builder, node, diagnostics| {
        builder.tiers = tiers(node, diagnostics);
    }),
    Field::new("tenants", |builder, node, diagnostics| {
        builder.tenants = tenants(node, diagnostics);
    }),
    Field::new("exempt", |builder, node, diagnostics| {
        builder.exempt = rules(node, diagnostics);
    }),
    Field::new("blocked", |builder, node, diagnostics| {
        builder.blocked = rules(node, diagnostics);
    }),
    Field::new("blocked_status", |builder, node, diagnostics| {
        builder.blocked_status = Some(Located::of(node, blocked_status(node, diagnostics)));
    }),
    Field::new("charge_on", |builder, node, diagnostics| {
        builder.charge_on = Some(Located::of(node, statuses(node, diagnostics)));
    }),
    Field::new("settle", |builder, node, diagnostics| {
        builder.settle = Some(Located::of(node, node.parsed(diagnostics)));
    }),
];

/// The names of the fields of a policy's table.
///
/// ```
/// use ratelimit_http::policy_file::policy_field_names;
///
/// assert!(policy_field_names().any(|name| name == "limits"));
/// ```
pub fn policy_field_names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(Field::name)
}

/// Reads policies from a table of names with limits or tables, or from a list of `name=limits`.
///
/// `known_as` maps each name to the one that the policy gets. `key_kinds` are the kinds of keys that requests
/// can have; a rule or tenant with another key is a warning. An invalid policy is reported and left out.
pub fn read_policies(
    node: &Node,
    known_as: fn(&str) -> &str,
    key_kinds: &KeyKinds,
    diagnostics: &mut Diagnostics,
) -> Vec<HttpPolicy> {
    let mut lines = BTreeMap::new();
    let mut policies = Vec::new();
    let entries = match &node.value {
        Value::Table(entries) => entries,
        Value::List(nodes) => {
            let named = nodes
                .iter()
                .filter_map(|node| named_limits(node, diagnostics));
            &named.collect::<Vec<_>>()
        }
        _ => {
            let _: Option<()> =
                node.wrong_type("a table such as login = \"5/min; 20/h\"", diagnostics);
            return policies;
        }
    };
    for entry in entries {
        let name = known_as(&entry.name);
        if let Some(before) = lines.insert(name, entry.line) {
            report_duplicate(&entry.name, entry.line, before, diagnostics);
        }
        policies.extend(policy(name, entry, key_kinds, diagnostics));
    }
    policies
}

/// Reads `name=limits`.
fn named_limits(node: &Node, diagnostics: &mut Diagnostics) -> Option<Entry> {
    let line = node.line;
    let Some((name, limits)) = node.text(diagnostics)?.split_once('=') else {
        let message = "expected a name and limits such as login=5/min; 20/h";
        diagnostics.add(DiagnosticCode::BadValue, line, message);
        return None;
    };
    let value = Value::Text(limits.trim().to_owned());
    Some(Entry {
        line,
        name: name.trim().to_owned(),
        node: Node { line, value },
    })
}

/// Reads one policy: a text of limits, or a table.
fn policy(
    name: &str,
    entry: &Entry,
    key_kinds: &KeyKinds,
    diagnostics: &mut Diagnostics,
) -> Option<HttpPolicy> {
    let node = &entry.node;
    let mut builder = PolicyBuilder {
        key_kinds: key_kinds.clone(),
        ..PolicyBuilder::default()
    };
    match &node.value {
        Value::Text(_) => builder.limits = Some(Located::of(node, limits(node, diagnostics))),
        Value::Table(entries) => read_table(&mut builder, entries, FIELDS, diagnostics),
        _ => return node.wrong_type("a text of limits, or a table with limits", diagnostics),
    }
    builder.build(name, entry.line, diagnostics)
}
