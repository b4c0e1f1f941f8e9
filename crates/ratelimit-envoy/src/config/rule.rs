//! Rules in a configuration file of this project, under `[[envoy.rule]]`.

use ratelimit_http::{
    key::KeyKinds,
    policy::{CostSource, HttpPolicy},
    policy_file::{
        DiagnosticCode, Diagnostics, Entry, Field, Node, Value, read_policies, read_table,
    },
};

use crate::policy_name::PolicyName;

/// The fields of a policy that a rule with `limits` can have as well.
const POLICY_FIELDS: [&str; 8] = [
    "on_failure",
    "instances",
    "cost",
    "throttle",
    "shadow",
    "enforced",
    "tiers",
    "tenants",
];

/// A rule as it is written: the descriptors that it matches, and their policy.
///
/// [`read_rules`] reads it, and [`RulesBuilder::add_rules`](crate::RulesBuilder::add_rules) checks it.
#[derive(Clone, Debug)]
pub struct RuleConfig {
    /// The line in its file, from 1.
    pub(crate) line: usize,
    pub(crate) domain: String,
    /// At least one entry.
    pub(crate) entries: Vec<EntryConfig>,
    /// The name in answers; empty without one.
    pub(crate) name: String,
    pub(crate) policy: PolicyConfig,
}

/// An entry of a descriptor that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryConfig {
    pub(crate) key: String,
    /// The value, with `*` for any text; empty for every value.
    pub(crate) value: String,
}

/// The policy of a rule.
#[derive(Clone, Debug)]
pub(crate) enum PolicyConfig {
    /// The rule's own, of its `limits`.
    Own(Box<HttpPolicy>),
    /// The policy of that name, and the line that names it.
    Named(String, usize),
}

impl RuleConfig {
    /// The path of the rule, which names its own policy.
    pub(crate) fn path(&self) -> PolicyName {
        path(&self.domain, &self.entries)
    }
}

fn path(domain: &str, entries: &[EntryConfig]) -> PolicyName {
    entries
        .iter()
        .fold(PolicyName::domain(domain), |path, entry| {
            path.step(&entry.key, &entry.value)
        })
}

/// Reads the table `envoy` of a configuration file and leaves out invalid rules.
///
/// ```
/// use ratelimit_envoy::{RulesBuilder, read_rules};
/// use ratelimit_http::policy_file::{Diagnostics, Format, parse};
///
/// let text = "rule: [{ domain: edge, match: [user], limits: 10/s burst 50 }]";
/// let mut diagnostics = Diagnostics::new();
/// let node = parse(text, Format::Yaml, &mut diagnostics).expect("YAML");
/// let rules = read_rules(&node, &mut diagnostics);
/// assert!(diagnostics.sorted().is_empty());
///
/// let mut builder = RulesBuilder::new();
/// assert!(builder.add_rules(&rules, |_| None).is_empty());
/// assert_eq!(builder.build().domains().collect::<Vec<_>>(), ["edge"]);
/// ```
pub fn read_rules(node: &Node, diagnostics: &mut Diagnostics) -> Vec<RuleConfig> {
    const FIELDS: &[Field<Vec<RuleConfig>>] = &[Field::new("rule", |rules, node, diagnostics| {
        for node in node.list(diagnostics).unwrap_or_default() {
            rules.extend(read_rule(node, diagnostics));
        }
    })];
    let mut rules = Vec::new();
    if let Some(entries) = node.table(diagnostics) {
        read_table(&mut rules, entries, FIELDS, diagnostics);
    }
    let has_rules = |node: &Node| match &node.value {
        Value::Table(entries) => entries.iter().any(|entry| !is_empty_list(&entry.node)),
        _ => true,
    };
    if !has_rules(node) {
        let message = "expected at least one rule, [[envoy.rule]]";
        diagnostics.add(DiagnosticCode::MissingField, node.line, message);
    }
    rules
}

fn is_empty_list(node: &Node) -> bool {
    matches!(&node.value, Value::List(nodes) if nodes.is_empty())
}

/// The fields of a rule. A field is `None` if it is absent or invalid.
#[derive(Default)]
struct RuleFields {
    domain: Option<String>,
    entries: Option<Vec<EntryConfig>>,
    name: String,
    policy: Option<PolicyConfig>,
    limits: Option<Node>,
}

const FIELDS: &[Field<RuleFields>] = &[
    Field::new("domain", |rule, node, diagnostics| {
        rule.domain = non_empty(node, diagnostics);
    }),
    Field::new("match", |rule, node, diagnostics| {
        rule.entries = read_match(node, diagnostics);
    }),
    Field::new("limits", |rule, node, _| rule.limits = Some(node.clone())),
    Field::new("policy", |rule, node, diagnostics| {
        let name = non_empty(node, diagnostics);
        rule.policy = name.map(|name| PolicyConfig::Named(name, node.line));
    }),
    Field::new("name", |rule, node, diagnostics| {
        rule.name = non_empty(node, diagnostics).unwrap_or_default();
    }),
];

/// The names of the fields of a rule.
///
/// ```
/// use ratelimit_envoy::rule_field_names;
///
/// assert!(rule_field_names().any(|name| name == "match"));
/// ```
pub fn rule_field_names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(Field::name).chain(POLICY_FIELDS)
}

fn non_empty(node: &Node, diagnostics: &mut Diagnostics) -> Option<String> {
    let known = |text: &str| match text {
        "" => Err("expected a name, not an empty text"),
        _ => Ok(text.to_owned()),
    };
    node.parse_with(DiagnosticCode::BadValue, known, diagnostics)
}

/// Reads a list of entries such as `user` or `path=/login*`.
fn read_match(node: &Node, diagnostics: &mut Diagnostics) -> Option<Vec<EntryConfig>> {
    let nodes = node.list(diagnostics)?;
    if nodes.is_empty() {
        let message = "expected at least one entry: no descriptor is without entries";
        diagnostics.add(DiagnosticCode::BadValue, node.line, message);
        return None;
    }
    let entries = nodes
        .iter()
        .map(|node| node.parse_with(DiagnosticCode::BadValue, read_entry, diagnostics));
    let entries: Vec<Option<EntryConfig>> = entries.collect();
    entries.into_iter().collect()
}

fn read_entry(text: &str) -> Result<EntryConfig, String> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    if key.is_empty() || key.contains('*') || value == Some("") {
        return Err(format!(
            "expected KEY, KEY=VALUE or KEY=PATTERN with * in the pattern, not {text:?}"
        ));
    }
    Ok(EntryConfig {
        key: key.to_owned(),
        value: value.unwrap_or_default().to_owned(),
    })
}

fn read_rule(node: &Node, diagnostics: &mut Diagnostics) -> Option<RuleConfig> {
    let line = node.line;
    let entries = node.table(diagnostics)?.iter().cloned();
    let (of_policy, of_rule): (Vec<Entry>, Vec<Entry>) =
        entries.partition(|entry| POLICY_FIELDS.contains(&&*entry.name));
    let mut fields = RuleFields::default();
    read_table(&mut fields, &of_rule, FIELDS, diagnostics);
    let has = |name: &str| of_rule.iter().any(|entry| entry.name == name);
    for (name, is_missing) in [
        ("domain", !has("domain")),
        ("match", !has("match")),
        ("limits or policy", !has("limits") && !has("policy")),
    ] {
        if is_missing {
            let message = format!("the rule has no {name}");
            diagnostics.add(DiagnosticCode::MissingField, line, message);
        }
    }
    if has("policy") {
        let limits = of_rule.iter().filter(|entry| entry.name == "limits");
        for entry in limits.chain(&of_policy) {
            let message = format!("policy has its own {}: remove one of them", entry.name);
            diagnostics.add(DiagnosticCode::ConflictingFields, entry.line, message);
        }
    }
    let (domain, entries) = (fields.domain?, fields.entries?);
    let own = || {
        let name = path(&domain, &entries).into_string();
        let policy = own_policy(name, fields.limits?, of_policy, diagnostics)?;
        Some(PolicyConfig::Own(Box::new(policy)))
    };
    let policy = fields.policy.or_else(own)?;
    Some(RuleConfig {
        line,
        domain,
        entries,
        name: fields.name,
        policy,
    })
}

/// The policy of `limits` and of the other fields of a policy.
fn own_policy(
    name: String,
    limits: Node,
    mut fields: Vec<Entry>,
    diagnostics: &mut Diagnostics,
) -> Option<HttpPolicy> {
    let line = limits.line;
    let cost_line = fields.iter().find(|field| field.name == "cost");
    let cost_line = cost_line.map_or(line, |field| field.line);
    fields.push(Entry {
        line,
        name: "limits".to_owned(),
        node: limits,
    });
    let table = |name: String, entries: Vec<Entry>| Entry {
        line,
        name,
        node: Node {
            line,
            value: Value::Table(entries),
        },
    };
    let policies = table(String::new(), vec![table(name, fields)]).node;
    let kinds = KeyKinds::unknown();
    let policy = read_policies(&policies, |name| name, &kinds, diagnostics).pop()?;
    if *policy.cost_source() != CostSource::Fixed {
        let message = "Envoy sends the cost as hits_addend: expected a whole number";
        diagnostics.add(DiagnosticCode::BadValue, cost_line, message);
    }
    Some(policy)
}
