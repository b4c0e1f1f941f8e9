//! What the table of a policy may hold.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
};

use super::{
    code::Code,
    field::{Field, is_there_twice, read_table},
    finding::Findings,
    node::{Entry, Node, Value},
    shadowed::find_shadowed,
};
use crate::{
    limit::Limit,
    policy::{FailureMode, InvalidPolicy, Policy},
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
        let cost: Option<u64> = node.integer(AT_LEAST_1, findings);
        let cost = cost.and_then(|cost| at_least_1(NonZeroU64::new(cost), node, findings));
        draft.cost = Some(Spot::of(node, cost));
    }),
];

const AT_LEAST_1: &str = "a whole number of at least 1";

/// A policy's table as far as it was read; the value of a [`Spot`] is missing when it was refused.
#[derive(Default)]
struct Draft {
    limits: Option<Spot<String>>,
    on_failure: Option<Spot<Mode>>,
    instances: Option<Spot<NonZeroU32>>,
    cost: Option<Spot<NonZeroU64>>,
}

struct Spot<T> {
    line: usize,
    value: Option<T>,
}

impl<T> Spot<T> {
    fn of(node: &Node, value: Option<T>) -> Spot<T> {
        let line = node.line;
        Spot { line, value }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Plain(FailureMode),
    LocalShare,
}

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

impl Draft {
    /// What the fields mean together.
    fn finish(self, name: &str, line: usize, findings: &mut Findings) -> Option<Policy> {
        let mode = self.failure_mode(line, findings);
        let Some(limits) = self.limits else {
            let told = format!("the policy {name:?} has no limits");
            findings.add(Code::MissingField, line, told);
            return None;
        };
        let mut policy = match Policy::parse(name, &limits.value?) {
            Ok(policy) => policy,
            Err(why) => {
                let (code, line) = match why {
                    InvalidPolicy::Name { .. } => (Code::BadName, line),
                    _ => (Code::BadLimit, limits.line),
                };
                findings.add(code, line, why.to_string());
                return None;
            }
        };
        for group in policy.groups() {
            let together: Vec<Limit> = group.bounds.iter().map(|bound| bound.limit).collect();
            find_shadowed(&together, limits.line, findings);
        }
        if let Some(mode) = mode {
            policy = policy.on_failure(mode);
        }
        if let Some(Spot { line, value }) = self.cost {
            match policy.costing(value?) {
                Ok(costing) => policy = costing,
                Err(why) => findings.add(Code::ImpossibleCost, line, why.to_string()),
            }
        }
        Some(policy)
    }

    fn failure_mode(&self, line: usize, findings: &mut Findings) -> Option<FailureMode> {
        let mode = self.on_failure.as_ref();
        let is_shared = mode.is_some_and(|mode| mode.value == Some(Mode::LocalShare));
        match &self.instances {
            Some(instances) if !is_shared => {
                let told = "instances means something only with on_failure = \"local_share\"";
                findings.add(Code::IgnoredField, instances.line, told);
            }
            None if is_shared => {
                let told =
                    "on_failure = \"local_share\" needs instances, how many share the limits";
                findings.add(
                    Code::MissingField,
                    mode.map_or(line, |mode| mode.line),
                    told,
                );
            }
            _ => {}
        }
        match mode?.value? {
            Mode::Plain(mode) => Some(mode),
            Mode::LocalShare => {
                let instances = self.instances.as_ref()?.value?;
                Some(FailureMode::LocalShare { instances })
            }
        }
    }
}

fn limits(node: &Node, findings: &mut Findings) -> Option<String> {
    let known = |text: &str| Limit::parse_keyed(text).map(|_| text.to_owned());
    node.checked(Code::BadLimit, known, findings)
}

fn mode(node: &Node, findings: &mut Findings) -> Option<Mode> {
    let known = |text: &str| match text {
        "local" => Ok(Mode::Plain(FailureMode::Local)),
        "local_share" => Ok(Mode::LocalShare),
        "open" => Ok(Mode::Plain(FailureMode::Open)),
        "closed" => Ok(Mode::Plain(FailureMode::Closed)),
        other => Err(format!(
            "expected local, local_share, open or closed, not {other:?}"
        )),
    };
    node.checked(Code::UnknownFailureMode, known, findings)
}

fn at_least_1<T>(number: Option<T>, node: &Node, findings: &mut Findings) -> Option<T> {
    if number.is_none() {
        let told = format!("expected {AT_LEAST_1}, not 0");
        findings.add(Code::BadValue, node.line, told);
    }
    number
}
