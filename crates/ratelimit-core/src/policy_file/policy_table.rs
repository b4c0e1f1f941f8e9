//! What the table of a policy may hold.

use std::{collections::BTreeMap, num::NonZeroU32};

use crate::policy::Policy;
use crate::policy_file::{
    code::Code,
    field::{Field, is_there_twice, read_table},
    finding::Findings,
    node::{Entry, Node, Value},
    policy_draft::Draft,
    policy_values::{
        AT_LEAST_1, Spot, at_least_1, blocked_status, cost, limits, mode, percent, rules, statuses,
    },
    tier_table::{tenants, tiers},
};

/// Every field of a policy's table. A new one is a line here, a field of [`Draft`], and what
/// [`Draft::finish`] makes of it.
const FIELDS: &[Field<Draft>] = &[
    Field::new("limits", |draft, node, findings| {
        draft.limits = Some(Spot::of(node, limits(node, findings)));
    }),
    Field::new("on_failure", |draft, node, findings| {
        draft.on_failure = Some(Spot::of(node, mode(node, findings)));
    }),
    Field::new("instances", |draft, node, findings| {
        let count: Option<u32> = node.integer(AT_LEAST_1, findings);
        let count = count.and_then(|count| at_least_1(NonZeroU32::new(count), node, findings));
        draft.instances = Some(Spot::of(node, count));
    }),
    Field::new("cost", |draft, node, findings| {
        draft.cost = Some(Spot::of(node, cost(node, findings)));
    }),
    Field::new("throttle", |draft, node, findings| {
        let throttle = node.checked(Code::BadThrottle, str::parse, findings);
        draft.throttle = Some(Spot::of(node, throttle));
    }),
    Field::new("shadow", |draft, node, findings| {
        draft.shadow = Some(Spot::of(node, node.boolean(findings)));
    }),
    Field::new("enforced", |draft, node, findings| {
        draft.enforced = Some(Spot::of(node, percent(node, findings)));
    }),
    Field::new("tiers", |draft, node, findings| {
        draft.tiers = tiers(node, findings);
    }),
    Field::new("tenants", |draft, node, findings| {
        draft.tenants = tenants(node, findings);
    }),
    Field::new("exempt", |draft, node, findings| {
        draft.exempt = rules(node, findings);
    }),
    Field::new("blocked", |draft, node, findings| {
        draft.blocked = rules(node, findings);
    }),
    Field::new("blocked_status", |draft, node, findings| {
        draft.blocked_status = Some(Spot::of(node, blocked_status(node, findings)));
    }),
    Field::new("charge_on", |draft, node, findings| {
        draft.charge_on = Some(Spot::of(node, statuses(node, findings)));
    }),
    Field::new("settle", |draft, node, findings| {
        draft.settle = Some(Spot::of(node, node.parsed(findings)));
    }),
];

/// Reads policies: a table from names to limits or to tables, or a list of `name=limits`.
///
/// `known_as` gives each name the one under which the policy is kept.
pub fn read_policies(
    node: &Node,
    known_as: fn(&str) -> &str,
    findings: &mut Findings,
) -> Vec<Policy> {
    let mut lines = BTreeMap::new();
    let mut policies = Vec::new();
    let entries = match &node.value {
        Value::Table(entries) => entries,
        Value::List(nodes) => {
            let named = nodes.iter().filter_map(|node| named_limits(node, findings));
            &named.collect::<Vec<_>>()
        }
        _ => {
            let _: Option<()> = node.is_no("a table such as login = \"5/min; 20/h\"", findings);
            return policies;
        }
    };
    for entry in entries {
        let name = known_as(&entry.name);
        if let Some(before) = lines.insert(name, entry.line) {
            is_there_twice(&entry.name, entry.line, before, findings);
        }
        policies.extend(policy(name, entry, findings));
    }
    policies
}

fn named_limits(node: &Node, findings: &mut Findings) -> Option<Entry> {
    let line = node.line;
    let Some((name, limits)) = node.text(findings)?.split_once('=') else {
        let told = "expected a name and limits such as login=5/min; 20/h";
        findings.add(Code::BadValue, line, told);
        return None;
    };
    let value = Value::Text(limits.trim().to_owned());
    Some(Entry {
        line,
        name: name.trim().to_owned(),
        node: Node { line, value },
    })
}

fn policy(name: &str, entry: &Entry, findings: &mut Findings) -> Option<Policy> {
    let node = &entry.node;
    let mut draft = Draft::default();
    match &node.value {
        Value::Text(_) => draft.limits = Some(Spot::of(node, limits(node, findings))),
        Value::Table(entries) => read_table(&mut draft, entries, FIELDS, findings),
        _ => return node.is_no("a text of limits, or a table with limits", findings),
    }
    draft.finish(name, entry.line, findings)
}
