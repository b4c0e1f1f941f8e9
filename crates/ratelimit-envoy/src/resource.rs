//! The rules of a resource of the discovery service.

use std::{collections::HashMap, fmt};

use ratelimit_http::policy_file::{DiagnosticCode, Severity};

use crate::{
    config::{DescriptorConfig, LimitConfig},
    proto::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
    },
    rule::RulesBuilder,
};

/// The maximum number of descriptors in all resources of a response.
pub(crate) const MAX_DESCRIPTORS: usize = 200_000;
/// The maximum length of a domain, a key and a value, in bytes.
const MAX_TEXT_BYTES: usize = 4_096;
/// The maximum length of a domain or a path in a diagnostic, in characters, and of its message.
const MAX_SHOWN_PATH: usize = 200;
const MAX_SHOWN_MESSAGE: usize = 1_000;

/// The number of the domain in place of a line. The descriptors follow, each before those below it.
const DOMAIN: usize = 1;

/// A mistake in a resource of the discovery service.
///
/// It displays as `domain "edge", descriptor "path=/login / user": error[missing-field]: expected the field unit with
/// second, minute, hour, day, week, month or year`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ResourceDiagnostic {
    /// The kind of the mistake.
    pub code: DiagnosticCode,
    /// The domain of the resource. A long one is cut.
    pub domain: String,
    /// The path of the descriptor: its keys and values, outermost first. A long one is cut. Empty for the resource as a
    /// whole.
    pub path: String,
    /// The text that was found, and what was expected.
    pub message: String,
}

impl ResourceDiagnostic {
    /// The severity of the code.
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Whether the resource is rejected.
    pub fn is_error(&self) -> bool {
        self.severity() == Severity::Error
    }
}

impl fmt::Display for ResourceDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {:?}", self.domain)?;
        if !self.path.is_empty() {
            write!(f, ", descriptor {:?}", self.path)?;
        }
        write!(f, ": {}[{}]: {}", self.severity(), self.code, self.message)
    }
}

impl RulesBuilder {
    /// Adds the rules of a resource: those of one domain.
    ///
    /// A domain, a key or a value of more than 4,096 bytes is an error, and so are more than 200,000 descriptors in all
    /// resources. Nothing of the resource is added then.
    ///
    /// ```
    /// use ratelimit_envoy::{RulesBuilder, proto::ratelimit::config::ratelimit::v3::RateLimitConfig};
    ///
    /// let edge = RateLimitConfig { domain: "edge".into(), ..RateLimitConfig::default() };
    /// let mut builder = RulesBuilder::new();
    /// assert!(builder.add_resource(&edge).is_empty());
    /// assert!(builder.add_resource(&edge)[0].is_error());
    /// ```
    pub fn add_resource(&mut self, resource: &RateLimitConfig) -> Vec<ResourceDiagnostic> {
        let diagnostic = |code, path: &str, message: &str| ResourceDiagnostic {
            code,
            domain: shortened(&resource.domain, MAX_SHOWN_PATH),
            path: path.to_owned(),
            message: shortened(message, MAX_SHOWN_MESSAGE),
        };
        if resource.domain.is_empty() {
            let name = &resource.name;
            let message = format!("expected the field domain with a name in the resource {name:?}");
            return vec![diagnostic(DiagnosticCode::MissingField, "", &message)];
        }
        let mut size = ResourceSize {
            descriptors: self.resource_descriptors,
            long_text: long_text("domain", &resource.domain).map(|text| (DOMAIN, text)),
        };
        let mut last = DOMAIN;
        size.add(&resource.descriptors, &mut last);
        self.resource_descriptors = size.descriptors;
        if size.descriptors > MAX_DESCRIPTORS {
            let message =
                format!("expected at most {MAX_DESCRIPTORS} descriptors in all resources");
            return vec![diagnostic(DiagnosticCode::TooLarge, "", &message)];
        }
        if let Some((number, message)) = &size.long_text {
            let paths = paths(resource, [*number]);
            let code = DiagnosticCode::TooLarge;
            return vec![diagnostic(code, &paths[number], message)];
        }
        let mut last = DOMAIN;
        let descriptors = to_descriptor_configs(&resource.descriptors, &mut last);
        let found = self.add_domain(&resource.domain, descriptors);
        let paths = paths(resource, found.iter().map(|found| found.line));
        let found = found.iter();
        found
            .map(|found| diagnostic(found.code, &paths[&found.line], &found.message))
            .collect()
    }
}

/// The size of resources, before rules are built of them.
struct ResourceSize {
    descriptors: usize,
    /// The number of the first descriptor with a text that is too long, and the mistake.
    long_text: Option<(usize, String)>,
}

impl ResourceSize {
    fn add(&mut self, descriptors: &[RateLimitDescriptor], last: &mut usize) {
        self.descriptors += descriptors.len();
        for descriptor in descriptors {
            *last += 1;
            if self.long_text.is_none() {
                let long = long_text("key", &descriptor.key);
                let long = long.or_else(|| long_text("value", &descriptor.value));
                self.long_text = long.map(|text| (*last, text));
            }
            self.add(&descriptor.descriptors, last);
        }
    }
}

/// The mistake of a text that is too long.
fn long_text(name: &str, text: &str) -> Option<String> {
    let bytes = text.len();
    let is_long = bytes > MAX_TEXT_BYTES;
    is_long.then(|| format!("expected a {name} of at most {MAX_TEXT_BYTES} bytes, not {bytes}"))
}

/// The beginning of a text, with `…` if it is cut.
fn shortened(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The descriptors in the form of a file, with numbers in place of lines. `last` is the number before the first one.
fn to_descriptor_configs(
    descriptors: &[RateLimitDescriptor],
    last: &mut usize,
) -> Vec<DescriptorConfig> {
    let descriptors = descriptors.iter().map(|descriptor| {
        *last += 1;
        let number = *last;
        DescriptorConfig {
            line: number,
            key: descriptor.key.clone(),
            value: descriptor.value.clone(),
            limit: descriptor
                .rate_limit
                .as_ref()
                .map(|policy| limit(policy, number)),
            descriptors: to_descriptor_configs(&descriptor.descriptors, last),
            shadow_mode: descriptor.shadow_mode,
            quota_mode: descriptor.quota_mode,
            detailed_metric: descriptor.detailed_metric,
            value_to_metric: false,
            share_threshold: false,
            metadata: descriptor.metadata.clone(),
        }
    });
    descriptors.collect()
}

fn limit(policy: &RateLimitPolicy, number: usize) -> LimitConfig {
    let unit = match RateLimitUnit::try_from(policy.unit) {
        Ok(RateLimitUnit::Unknown) => String::new(),
        Ok(unit) => unit.as_str_name().to_owned(),
        Err(_) => policy.unit.to_string(),
    };
    LimitConfig {
        line: number,
        unit,
        requests_per_unit: policy.requests_per_unit,
        unlimited: policy.unlimited,
        name: policy.name.clone(),
        replaces: policy.replaces.iter().map(|one| one.name.clone()).collect(),
    }
}

/// The paths of the descriptors with these numbers, found in one walk; that of the domain is empty.
fn paths(
    resource: &RateLimitConfig,
    numbers: impl IntoIterator<Item = usize>,
) -> HashMap<usize, String> {
    let mut paths: HashMap<_, _> = numbers
        .into_iter()
        .map(|number| (number, String::new()))
        .collect();
    if !paths.is_empty() {
        let (mut last, mut path) = (DOMAIN, String::new());
        find_paths(&resource.descriptors, &mut last, &mut path, &mut paths);
    }
    paths
}

/// Sets the paths of descriptors whose numbers are keys of `paths`. `path` is the path above them.
fn find_paths(
    descriptors: &[RateLimitDescriptor],
    last: &mut usize,
    path: &mut String,
    paths: &mut HashMap<usize, String>,
) {
    let above = path.len();
    for descriptor in descriptors {
        *last += 1;
        if above > 0 {
            path.push_str(" / ");
        }
        path.push_str(&descriptor.key);
        if !descriptor.value.is_empty() {
            path.push('=');
            path.push_str(&descriptor.value);
        }
        if let Some(wanted) = paths.get_mut(last) {
            *wanted = shortened(path, MAX_SHOWN_PATH);
        }
        find_paths(&descriptor.descriptors, last, path, paths);
        path.truncate(above);
    }
}
