//! Readers for the values of single fields.
//!
//! Each reader returns `None` after it has added a diagnostic.

use std::num::NonZeroU64;

use crate::key::without_secret;
use crate::policy::{BlockStatus, CostSource, Rule, StatusSet};
use crate::policy_file::{
    code::DiagnosticCode,
    diagnostic::Diagnostics,
    tree::{Node, Value},
};
use ratelimit_core::{FailureMode, InvalidPolicy, Policy};

/// The value of a field and its line. The value is `None` if it was invalid.
pub(crate) struct Located<T> {
    pub(crate) line: usize,
    pub(crate) value: Option<T>,
}

impl<T> Located<T> {
    /// The value with the line of its node.
    pub(crate) const fn of(node: &Node, value: Option<T>) -> Located<T> {
        let line = node.line;
        Located { line, value }
    }
}

/// The value of `on_failure`. `local_share` needs `instances` as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureModeName {
    Plain(FailureMode),
    LocalShare,
}

/// The value of `cost`: a number, or a source such as `header:x-tokens`.
pub(crate) enum WrittenCost {
    Fixed(NonZeroU64),
    Source(CostSource),
}

/// A rule, its text for messages, and its line.
pub(crate) struct LocatedRule {
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) rule: Rule,
}

/// The expectation for counts and costs.
pub(crate) const AT_LEAST_1: &str = "a whole number of at least 1";

/// Reads a text of limits and reports syntax errors.
pub(crate) fn limits(node: &Node, diagnostics: &mut Diagnostics) -> Option<String> {
    let known = |text: &str| match Policy::parse("limits", text) {
        Err(InvalidPolicy::Text(error)) => Err(error),
        // Errors across limits are reported when the policy is built.
        Ok(_) | Err(_) => Ok(text.to_owned()),
    };
    node.parse_with(DiagnosticCode::BadLimit, known, diagnostics)
}

/// Reads `on_failure`.
pub(crate) fn mode(node: &Node, diagnostics: &mut Diagnostics) -> Option<FailureModeName> {
    let known = |text: &str| match text {
        "local" => Ok(FailureModeName::Plain(FailureMode::Local)),
        "local_share" => Ok(FailureModeName::LocalShare),
        "open" => Ok(FailureModeName::Plain(FailureMode::Open)),
        "closed" => Ok(FailureModeName::Plain(FailureMode::Closed)),
        other => Err(format!(
            "expected local, local_share, open or closed, not {other:?}"
        )),
    };
    node.parse_with(DiagnosticCode::UnknownFailureMode, known, diagnostics)
}

/// Reports a number that is 0.
pub(crate) fn at_least_1<T>(
    number: Option<T>,
    node: &Node,
    diagnostics: &mut Diagnostics,
) -> Option<T> {
    if number.is_none() {
        let message = format!("expected {AT_LEAST_1}, not 0");
        diagnostics.add(DiagnosticCode::BadValue, node.line, message);
    }
    number
}

/// Reads `cost`.
pub(crate) fn cost(node: &Node, diagnostics: &mut Diagnostics) -> Option<WrittenCost> {
    match node.value {
        Value::Text(_) => node.parsed(diagnostics).map(WrittenCost::Source),
        Value::Integer(_) => {
            let cost: u64 = node.integer(AT_LEAST_1, diagnostics)?;
            at_least_1(NonZeroU64::new(cost), node, diagnostics).map(WrittenCost::Fixed)
        }
        _ => node.wrong_type(
            "a whole number of at least 1, header:NAME or body",
            diagnostics,
        ),
    }
}

/// Reads a percentage from 0 to 100.
pub(crate) fn percent(node: &Node, diagnostics: &mut Diagnostics) -> Option<u8> {
    const EXPECTED: &str = "a whole number from 0 to 100";
    let percent: u8 = node.integer(EXPECTED, diagnostics)?;
    if percent > 100 {
        let message = format!("expected {EXPECTED}, not {percent}");
        diagnostics.add(DiagnosticCode::BadValue, node.line, message);
        return None;
    }
    Some(percent)
}

/// The share of `prefetch = "5%"`, in percent.
///
/// | text | share |
/// |---|---|
/// | `5%` | 5 |
/// | `0%`, `60%` | read here, and rejected by the policy with its bounds |
/// | `5`, `5 %`, `five` | a diagnostic |
///
/// The unit is required, so that a share is not mistaken for a number of units.
pub(crate) fn prefetch_share(node: &Node, diagnostics: &mut Diagnostics) -> Option<u32> {
    let known = |text: &str| {
        let digits = text.strip_suffix('%').filter(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        let percent = digits.and_then(|digits| digits.parse().ok());
        percent.ok_or_else(|| format!("expected a share from 1% to 50%, not {text:?}"))
    };
    node.parse_with(DiagnosticCode::BadValue, known, diagnostics)
}

/// Reads a list of rules and leaves out the invalid ones.
pub(crate) fn rules(node: &Node, diagnostics: &mut Diagnostics) -> Vec<LocatedRule> {
    let nodes = node.list(diagnostics).unwrap_or_default().iter();
    let rules = nodes.filter_map(|node| {
        let rule = node.parse_with(DiagnosticCode::BadRule, str::parse, diagnostics)?;
        let text = without_secret(node.text(diagnostics)?).into_owned();
        let line = node.line;
        Some(LocatedRule { line, text, rule })
    });
    rules.collect()
}

/// Reads `blocked_status`.
pub(crate) fn blocked_status(node: &Node, diagnostics: &mut Diagnostics) -> Option<BlockStatus> {
    const EXPECTED: &str = "403 or 429";
    let status: i64 = node.integer(EXPECTED, diagnostics)?;
    let kinds = [BlockStatus::Forbidden, BlockStatus::TooManyRequests];
    let known = kinds
        .into_iter()
        .find(|kind| i64::from(kind.status()) == status);
    if known.is_none() {
        let message = format!("expected {EXPECTED}, not {status}");
        diagnostics.add(DiagnosticCode::BadValue, node.line, message);
    }
    known
}

/// Reads a list of statuses and classes. An empty list is an error: nothing would ever be charged.
pub(crate) fn statuses(node: &Node, diagnostics: &mut Diagnostics) -> Option<StatusSet> {
    let nodes = node.list(diagnostics)?;
    if nodes.is_empty() {
        let message = "expected at least one status: else nothing would ever be charged";
        diagnostics.add(DiagnosticCode::BadValue, node.line, message);
        return None;
    }
    let mut all = StatusSet::default();
    for node in nodes {
        let one: Result<StatusSet, _> = match &node.value {
            Value::Text(text) => text.parse(),
            Value::Integer(status) => status.to_string().parse(),
            _ => {
                return node
                    .wrong_type("a status such as 401, or a class such as 4xx", diagnostics);
            }
        };
        match one {
            Ok(one) => all = all.and(&one),
            Err(error) => {
                diagnostics.add(DiagnosticCode::BadValue, node.line, error.to_string());
                return None;
            }
        }
    }
    Some(all)
}
