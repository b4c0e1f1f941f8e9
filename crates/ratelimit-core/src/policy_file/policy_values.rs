//! What the fields of a policy's table mean, each by itself.

use std::num::NonZeroU64;

use crate::policy_file::{
    code::Code,
    finding::Findings,
    node::{Node, Value},
};
use crate::{
    limit::Limit,
    policy::{CostOf, FailureMode, StatusSet},
    rules::{Blocked, Rule},
};

/// A value that was read, and its line; the value is missing when it was refused.
pub(super) struct Spot<T> {
    pub(super) line: usize,
    pub(super) value: Option<T>,
}

impl<T> Spot<T> {
    pub(super) const fn of(node: &Node, value: Option<T>) -> Spot<T> {
        let line = node.line;
        Spot { line, value }
    }
}

/// A failure mode by its name alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Plain(FailureMode),
    LocalShare,
}

/// What a hit costs, or where that is told.
pub(super) enum Cost {
    Fixed(NonZeroU64),
    Told(CostOf),
}

/// A rule and how it is written.
pub(super) struct Written {
    pub(super) line: usize,
    pub(super) text: String,
    pub(super) rule: Rule,
}

pub(super) const AT_LEAST_1: &str = "a whole number of at least 1";

pub(super) fn limits(node: &Node, findings: &mut Findings) -> Option<String> {
    let known = |text: &str| Limit::parse_list_keyed(text).map(|_| text.to_owned());
    node.checked(Code::BadLimit, known, findings)
}

pub(super) fn mode(node: &Node, findings: &mut Findings) -> Option<Mode> {
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

pub(super) fn at_least_1<T>(number: Option<T>, node: &Node, findings: &mut Findings) -> Option<T> {
    if number.is_none() {
        let told = format!("expected {AT_LEAST_1}, not 0");
        findings.add(Code::BadValue, node.line, told);
    }
    number
}

pub(super) fn cost(node: &Node, findings: &mut Findings) -> Option<Cost> {
    match node.value {
        Value::Text(_) => node.parsed(findings).map(Cost::Told),
        Value::Integer(_) => {
            let cost: u64 = node.integer(AT_LEAST_1, findings)?;
            at_least_1(NonZeroU64::new(cost), node, findings).map(Cost::Fixed)
        }
        _ => node.is_no(
            "a whole number of at least 1, header:NAME or body",
            findings,
        ),
    }
}

pub(super) fn percent(node: &Node, findings: &mut Findings) -> Option<u8> {
    const EXPECTED: &str = "a whole number from 0 to 100";
    let percent: u8 = node.integer(EXPECTED, findings)?;
    if percent > 100 {
        let told = format!("expected {EXPECTED}, not {percent}");
        findings.add(Code::BadValue, node.line, told);
        return None;
    }
    Some(percent)
}

pub(super) fn rules(node: &Node, findings: &mut Findings) -> Vec<Written> {
    let nodes = node.list(findings).unwrap_or_default().iter();
    let rules = nodes.filter_map(|node| {
        let rule = node.checked(Code::BadRule, str::parse, findings)?;
        let text = node.text(findings)?.to_owned();
        let line = node.line;
        Some(Written { line, text, rule })
    });
    rules.collect()
}

pub(super) fn blocked_status(node: &Node, findings: &mut Findings) -> Option<Blocked> {
    const EXPECTED: &str = "403 or 429";
    let status: i64 = node.integer(EXPECTED, findings)?;
    let kinds = [Blocked::Forbidden, Blocked::TooMany];
    let known = kinds
        .into_iter()
        .find(|kind| i64::from(kind.status()) == status);
    if known.is_none() {
        let told = format!("expected {EXPECTED}, not {status}");
        findings.add(Code::BadValue, node.line, told);
    }
    known
}

/// A list of statuses and classes, which is not empty: what is never charged needs no policy.
pub(super) fn statuses(node: &Node, findings: &mut Findings) -> Option<StatusSet> {
    let nodes = node.list(findings)?;
    if nodes.is_empty() {
        let told = "expected at least one status: else nothing would ever be charged";
        findings.add(Code::BadValue, node.line, told);
        return None;
    }
    let mut all = StatusSet::default();
    for node in nodes {
        let one: Result<StatusSet, _> = match &node.value {
            Value::Text(text) => text.parse(),
            Value::Integer(status) => status.to_string().parse(),
            _ => return node.is_no("a status such as 401, or a class such as 4xx", findings),
        };
        match one {
            Ok(one) => all = all.and(&one),
            Err(why) => {
                findings.add(Code::BadValue, node.line, why.to_string());
                return None;
            }
        }
    }
    Some(all)
}
