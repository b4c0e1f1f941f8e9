//! The rules of a resource of the discovery service.

use std::{error::Error, fmt};

use prost::{DecodeError, Message as _};
use prost_types::Any;
use ratelimit_http::policy_file::{DiagnosticCode, Severity};

use crate::{
    config::{DescriptorConfig, LimitConfig},
    proto::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
    },
    rule::RulesBuilder,
};

/// The type of the resources: [`RateLimitConfig`].
pub const RESOURCE_TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Decodes a resource of a response of the discovery service.
///
/// # Errors
///
/// Fails if the resource has another type than [`RESOURCE_TYPE`], or is malformed.
pub fn decode_resource(resource: &Any) -> Result<RateLimitConfig, InvalidResource> {
    if resource.type_url != RESOURCE_TYPE {
        return Err(InvalidResource::Type(resource.type_url.clone()));
    }
    RateLimitConfig::decode(&*resource.value).map_err(InvalidResource::Malformed)
}

/// A resource that cannot be decoded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidResource {
    /// The resource has this type.
    Type(String),
    /// The bytes are not a message of the type.
    Malformed(DecodeError),
}

impl fmt::Display for InvalidResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidResource::Type(name) => {
                write!(
                    f,
                    "expected resources of type {RESOURCE_TYPE}, not {name:?}"
                )
            }
            InvalidResource::Malformed(_) => f.write_str("a resource is malformed"),
        }
    }
}

impl Error for InvalidResource {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            InvalidResource::Type(_) => None,
            InvalidResource::Malformed(why) => Some(why),
        }
    }
}

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
    /// The domain of the resource.
    pub domain: String,
    /// The path of the descriptor: its keys and values, outermost first. Empty for the resource as a whole.
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
    /// ```
    /// use ratelimit_envoy::{RulesBuilder, proto::ratelimit::config::ratelimit::v3::RateLimitConfig};
    ///
    /// let edge = RateLimitConfig { domain: "edge".into(), ..RateLimitConfig::default() };
    /// let mut builder = RulesBuilder::new();
    /// assert!(builder.add_resource(&edge).is_empty());
    /// assert!(builder.add_resource(&edge)[0].is_error());
    /// ```
    pub fn add_resource(&mut self, resource: &RateLimitConfig) -> Vec<ResourceDiagnostic> {
        let diagnostic = |code, path, message| ResourceDiagnostic {
            code,
            domain: resource.domain.clone(),
            path,
            message,
        };
        if resource.domain.is_empty() {
            let name = &resource.name;
            let message = format!("expected the field domain with a name in the resource {name:?}");
            return vec![diagnostic(
                DiagnosticCode::MissingField,
                String::new(),
                message,
            )];
        }
        let mut last = DOMAIN;
        let descriptors = numbered(&resource.descriptors, &mut last);
        let found = self.add_domain(&resource.domain, descriptors);
        let found = found.into_iter().map(|found| {
            let path = path(resource, found.line);
            diagnostic(found.code, path, found.message)
        });
        found.collect()
    }
}

/// The descriptors in the form of a file, with numbers in place of lines. `last` is the number before the first one.
fn numbered(descriptors: &[RateLimitDescriptor], last: &mut usize) -> Vec<DescriptorConfig> {
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
            descriptors: numbered(&descriptor.descriptors, last),
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

/// The path of the descriptor with a number; empty for the number of the domain.
fn path(resource: &RateLimitConfig, number: usize) -> String {
    let (mut last, mut steps) = (DOMAIN, Vec::new());
    find(&resource.descriptors, number, &mut last, &mut steps);
    steps.join(" / ")
}

/// Whether the descriptor with a number is found. `steps` are then those of its path.
fn find(
    descriptors: &[RateLimitDescriptor],
    number: usize,
    last: &mut usize,
    steps: &mut Vec<String>,
) -> bool {
    for descriptor in descriptors {
        *last += 1;
        steps.push(step(descriptor));
        if *last == number || find(&descriptor.descriptors, number, last, steps) {
            return true;
        }
        steps.pop();
    }
    false
}

fn step(descriptor: &RateLimitDescriptor) -> String {
    match descriptor.value.as_str() {
        "" => descriptor.key.clone(),
        value => format!("{}={value}", descriptor.key),
    }
}
