//! The fields of a file in the form of Envoy's rate limit server.

use std::collections::BTreeMap;

use prost_types::{ListValue, Struct, Value, value::Kind};
use ratelimit_http::policy_file::{DiagnosticCode, Diagnostics, nearest};

use crate::config::{
    descriptor::{DescriptorConfig, LimitConfig},
    scalar,
    yaml::{self, YamlNode, YamlValue},
};

const ROOT: &[&str] = &["domain", "descriptors"];
const DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const LIMIT: &[&str] = &["unit", "requests_per_unit", "unlimited", "name", "replaces"];
const REPLACES: &[&str] = &["name"];

/// Reads the domain of a file and its descriptors. The result is `None` after a diagnostic.
pub(crate) fn read_domain(
    text: &str,
    diagnostics: &mut Diagnostics,
) -> Option<(String, Vec<DescriptorConfig>)> {
    let Some(root) = yaml::parse(text, diagnostics) else {
        if !diagnostics.has_errors() {
            diagnostics.add(DiagnosticCode::EmptyFile, 1, "the file has no domain");
        }
        return None;
    };
    let fields = fields(&root, ROOT, diagnostics)?;
    let domain = fields
        .get("domain")
        .map_or(Some(""), |node| node.text(diagnostics))?
        .to_owned();
    let descriptors = fields
        .get("descriptors")
        .map(|node| descriptors(node, diagnostics))
        .unwrap_or_default();
    if domain.is_empty() {
        let message = "expected the field domain with a name";
        diagnostics.add(DiagnosticCode::MissingField, root.line, message);
        return None;
    }
    Some((domain, descriptors))
}

/// Reads a list of descriptors and leaves out the invalid ones.
fn descriptors(node: &YamlNode, diagnostics: &mut Diagnostics) -> Vec<DescriptorConfig> {
    let nodes = node.list(diagnostics).unwrap_or_default();
    nodes
        .iter()
        .filter_map(|node| descriptor(node, diagnostics))
        .collect()
}

/// Reads one descriptor.
fn descriptor(node: &YamlNode, diagnostics: &mut Diagnostics) -> Option<DescriptorConfig> {
    let fields = fields(node, DESCRIPTOR, diagnostics)?;
    let mut flag = |name: &str| {
        let value = fields.get(name).map(|node| node.boolean(diagnostics));
        value.flatten().unwrap_or_default()
    };
    let (shadow_mode, quota_mode) = (flag("shadow_mode"), flag("quota_mode"));
    let share_threshold = flag("share_threshold");
    let (detailed_metric, value_to_metric) = (flag("detailed_metric"), flag("value_to_metric"));
    let mut text = |name: &str| {
        let value = fields.get(name).map(|node| node.text(diagnostics));
        value.flatten().unwrap_or_default().to_owned()
    };
    let (key, value) = (text("key"), text("value"));
    let limit = fields.get("rate_limit").filter(|node| !node.is_null());
    Some(DescriptorConfig {
        line: node.line,
        key,
        value,
        limit: limit.and_then(|node| limit_config(node, diagnostics)),
        descriptors: fields
            .get("descriptors")
            .map(|node| descriptors(node, diagnostics))
            .unwrap_or_default(),
        shadow_mode,
        quota_mode,
        share_threshold,
        detailed_metric,
        value_to_metric,
        metadata: fields
            .get("metadata")
            .filter(|node| !node.is_null())
            .and_then(|node| metadata(node, diagnostics)),
    })
}

/// Reads `rate_limit`.
fn limit_config(node: &YamlNode, diagnostics: &mut Diagnostics) -> Option<LimitConfig> {
    let fields = fields(node, LIMIT, diagnostics)?;
    let mut text = |name: &str| {
        let value = fields.get(name).map(|node| node.text(diagnostics));
        value.flatten().unwrap_or_default().to_owned()
    };
    let (unit, name) = (text("unit"), text("name"));
    let unlimited = fields
        .get("unlimited")
        .and_then(|node| node.boolean(diagnostics));
    let requests = fields
        .get("requests_per_unit")
        .and_then(|node| node.unsigned(diagnostics));
    let replaces = fields
        .get("replaces")
        .and_then(|node| node.list(diagnostics))
        .unwrap_or_default();
    let replaces = replaces.iter().filter_map(|node| {
        let fields = self::fields(node, REPLACES, diagnostics)?;
        let name = fields.get("name")?.text(diagnostics)?;
        Some(name.to_owned())
    });
    Some(LimitConfig {
        line: node.line,
        unit,
        requests_per_unit: requests.unwrap_or_default(),
        unlimited: unlimited.unwrap_or_default(),
        name,
        replaces: replaces.collect(),
    })
}

/// The entries of a map by name.
///
/// - A name that no map of the file has is an error.
/// - A name of another map gets a warning: it has no effect here.
/// - Of a name that is there twice the last value counts, with a warning.
fn fields<'a>(
    node: &'a YamlNode,
    known: &[&'static str],
    diagnostics: &mut Diagnostics,
) -> Option<BTreeMap<&'static str, &'a YamlNode>> {
    let mut fields = BTreeMap::new();
    for entry in node.map(diagnostics)? {
        let name = entry.name.as_str();
        let Some(field) = known.iter().find(|known| **known == name) else {
            report_unknown(name, entry.line, known, diagnostics);
            continue;
        };
        if fields.insert(*field, &entry.node).is_some() {
            let message = format!("{name:?} is there twice: the last one counts");
            diagnostics.add(DiagnosticCode::RepeatedField, entry.line, message);
        }
    }
    Some(fields)
}

/// Reports a name that has no meaning in its map.
fn report_unknown(name: &str, line: usize, known: &[&str], diagnostics: &mut Diagnostics) {
    let mut all = [ROOT, DESCRIPTOR, LIMIT].into_iter().flatten();
    if all.any(|other| *other == name) {
        let message = format!(
            "{name:?} has no effect here: expected one of {}",
            known.join(", ")
        );
        diagnostics.add(DiagnosticCode::MisplacedField, line, message);
        return;
    }
    let hint = match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("expected one of {}", known.join(", ")),
    };
    let message = format!("unknown field {name:?}: {hint}");
    diagnostics.add(DiagnosticCode::UnknownField, line, message);
}

/// Reads `metadata`: any map.
fn metadata(node: &YamlNode, diagnostics: &mut Diagnostics) -> Option<Struct> {
    let entries = node.map(diagnostics)?.iter();
    let fields = entries.map(|entry| (entry.name.clone(), json(&entry.node)));
    Some(Struct {
        fields: fields.collect(),
    })
}

/// A value of `metadata`.
fn json(node: &YamlNode) -> Value {
    let kind = match &node.value {
        _ if node.is_null() => Kind::NullValue(0),
        YamlValue::Plain(text) => plain(text),
        YamlValue::Quoted(text) => Kind::StringValue(text.clone()),
        YamlValue::List(nodes) => Kind::ListValue(ListValue {
            values: nodes.iter().map(json).collect(),
        }),
        YamlValue::Map(entries) => Kind::StructValue(Struct {
            fields: entries
                .iter()
                .map(|entry| (entry.name.clone(), json(&entry.node)))
                .collect(),
        }),
    };
    Value { kind: Some(kind) }
}

/// A scalar of `metadata` without quotes.
fn plain(text: &str) -> Kind {
    #[expect(
        clippy::cast_precision_loss,
        reason = "numbers of a Struct are floating point"
    )]
    let number = scalar::integer(text)
        .map(|number| number as f64)
        .or_else(|| {
            scalar::is_fraction(text)
                .then(|| text.parse().ok())
                .flatten()
        });
    match (scalar::boolean(text), number) {
        (Some(is_true), _) => Kind::BoolValue(is_true),
        (None, Some(number)) => Kind::NumberValue(number),
        (None, None) => Kind::StringValue(text.to_owned()),
    }
}
