//! Rules in a configuration file of this project, under `[[envoy.rule]]` and `[[envoy.bucket]]`.

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

/// The table `envoy` of a configuration file.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RulesConfig {
    /// The rules for requests of the rate limit service.
    pub rules: Vec<RuleConfig>,
    /// The rules for buckets of the rate limit quota service.
    pub buckets: Vec<RuleConfig>,
    /// The assignment of buckets without a rule.
    pub unmatched: UnmatchedBuckets,
}

impl RulesConfig {
    /// Whether there are no rules at all.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.buckets.is_empty()
    }
}

/// The assignment of buckets without a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnmatchedBuckets {
    /// Everything passes, and is counted.
    #[default]
    Allow,
    /// Nothing passes.
    Deny,
}

/// The service that a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleKind {
    /// Requests of the rate limit service, whose entries have an order.
    Request,
    /// Buckets of the rate limit quota service, whose entries are sorted by key.
    Bucket,
}

/// A rule as it is written: the descriptors or the buckets that it matches, and their policy.
///
/// [`read_rules`] reads it, and [`RulesBuilder::add_rules`](crate::RulesBuilder::add_rules) checks it.
#[derive(Clone, Debug)]
pub struct RuleConfig {
    kind: RuleKind,
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
        path(self.kind, &self.domain, &self.entries)
    }
}

fn path(kind: RuleKind, domain: &str, entries: &[EntryConfig]) -> PolicyName {
    let domain = match kind {
        RuleKind::Request => PolicyName::domain(domain),
        RuleKind::Bucket => PolicyName::buckets(domain),
    };
    entries
        .iter()
        .fold(domain, |path, entry| path.step(&entry.key, &entry.value))
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
/// assert!(builder.add_rules(&rules.rules, |_| None).is_empty());
/// assert_eq!(builder.build().domains().collect::<Vec<_>>(), ["edge"]);
/// ```
pub fn read_rules(node: &Node, diagnostics: &mut Diagnostics) -> RulesConfig {
    const FIELDS: &[Field<RulesConfig>] = &[
        Field::new("rule", |table, node, diagnostics| {
            let nodes = node.list(diagnostics).unwrap_or_default().iter();
            let rules = nodes.filter_map(|node| read_rule(RuleKind::Request, node, diagnostics));
            table.rules = rules.collect();
        }),
        Field::new("bucket", |table, node, diagnostics| {
            let nodes = node.list(diagnostics).unwrap_or_default().iter();
            let rules = nodes.filter_map(|node| read_rule(RuleKind::Bucket, node, diagnostics));
            table.buckets = rules.collect();
        }),
        Field::new("unmatched", |table, node, diagnostics| {
            let parse = |text: &str| match text {
                "allow" => Ok(UnmatchedBuckets::Allow),
                "deny" => Ok(UnmatchedBuckets::Deny),
                _ => Err(format!("expected allow or deny, not {text:?}")),
            };
            let parsed = node.parse_with(DiagnosticCode::BadValue, parse, diagnostics);
            table.unmatched = parsed.unwrap_or_default();
        }),
    ];
    let mut table = RulesConfig::default();
    let entries = node.table(diagnostics).unwrap_or_default();
    read_table(&mut table, entries, FIELDS, diagnostics);
    let has = |name: &str| {
        let mut named = entries.iter().filter(|entry| entry.name == name);
        named.any(|entry| !is_empty_list(&entry.node))
    };
    if matches!(&node.value, Value::Table(_)) && !has("rule") && !has("bucket") {
        let message = "expected at least one rule, [[envoy.rule]] or [[envoy.bucket]]";
        diagnostics.add(DiagnosticCode::MissingField, node.line, message);
    } else if let Some(unmatched) = entries.iter().find(|entry| entry.name == "unmatched")
        && !has("bucket")
    {
        let message = "unmatched has no effect without [[envoy.bucket]]";
        diagnostics.add(DiagnosticCode::ConflictingFields, unmatched.line, message);
    }
    table
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

/// Fields of a rule without effect on grants, and the reason.
const IGNORED_IN_BUCKETS: [(&str, &str); 4] = [
    ("name", "Envoy is told no name of a limit"),
    ("on_failure", "only the store grants"),
    ("instances", "only the store grants"),
    ("throttle", "grants stay below the limit"),
];

/// Sorts the entries of a bucket by key, as those of Envoy's messages are.
fn sort_entries(entries: &mut [EntryConfig], line: usize, diagnostics: &mut Diagnostics) {
    entries.sort_by(|one, other| one.key.cmp(&other.key));
    let is_twice = |pair: &[EntryConfig]| pair[0].key == pair[1].key;
    if entries.windows(2).any(is_twice) {
        let message = "a bucket has each key once, so no bucket has this match";
        diagnostics.add(DiagnosticCode::BadValue, line, message);
    }
}

fn read_rule(kind: RuleKind, node: &Node, diagnostics: &mut Diagnostics) -> Option<RuleConfig> {
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
    let (domain, mut entries) = (fields.domain?, fields.entries?);
    if kind == RuleKind::Bucket {
        sort_entries(&mut entries, line, diagnostics);
        for entry in of_rule.iter().chain(&of_policy) {
            let mut ignored = IGNORED_IN_BUCKETS.iter();
            if let Some((name, reason)) = ignored.find(|(name, _)| *name == entry.name) {
                let message = format!("{name} has no effect on a bucket: {reason}");
                diagnostics.add(DiagnosticCode::IgnoredField, entry.line, message);
            }
        }
    }
    let own = || {
        let name = path(kind, &domain, &entries).into_string();
        let policy = own_policy(name, fields.limits?, of_policy, diagnostics)?;
        Some(PolicyConfig::Own(Box::new(policy)))
    };
    let policy = fields.policy.or_else(own)?;
    Some(RuleConfig {
        kind,
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
