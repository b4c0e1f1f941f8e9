//! Responses of the discovery service.

use std::{error::Error, fmt};

use prost::{
    DecodeError, Message as _,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};
use prost_types::Any;

use crate::{
    proto::{
        envoy::service::discovery::v3::DiscoveryResponse,
        ratelimit::config::ratelimit::v3::RateLimitConfig,
    },
    resource::MAX_DESCRIPTORS,
};

/// The type of the resources: [`RateLimitConfig`].
pub const RESOURCE_TYPE: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The maximum number of resources in a response.
const MAX_RESOURCES: usize = 100_000;

/// The fields of messages that are counted before they are decoded.
const RESOURCES: u32 = 2;
const DESCRIPTORS_OF_CONFIG: u32 = 3;
const DESCRIPTORS_OF_DESCRIPTOR: u32 = 4;
/// The nesting at which `prost` refuses a message.
const MAX_DEPTH: u32 = 100;

/// A response of the discovery service: the rules of all domains.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RulesResponse {
    /// The version of the rules.
    pub version: String,
    /// The name of the response, which the answer to it has.
    pub nonce: String,
    /// The type of the resources, which should be [`RESOURCE_TYPE`].
    pub type_url: String,
    /// The resources, or the reason why they are refused.
    pub resources: Result<Vec<RateLimitConfig>, InvalidResource>,
}

impl RulesResponse {
    /// Decodes a [`DiscoveryResponse`] with its resources.
    ///
    /// Resources and descriptors are counted first: each takes two bytes in a response and hundreds in memory.
    ///
    /// # Errors
    ///
    /// Fails if the message is malformed. Its resources have a [result of their own](Self::resources).
    pub fn decode(bytes: &[u8]) -> Result<RulesResponse, DecodeError> {
        let (number, others) = split_resources(bytes)?;
        let is_bounded = number <= MAX_RESOURCES;
        let DiscoveryResponse {
            version_info: version,
            resources,
            type_url,
            nonce,
        } = DiscoveryResponse::decode(if is_bounded { bytes } else { &others })?;
        let resources = if is_bounded {
            decode_resources(&resources)
        } else {
            Err(InvalidResource::TooManyResources(number))
        };
        Ok(RulesResponse {
            version,
            nonce,
            type_url,
            resources,
        })
    }
}

/// The number of resources in a response, and its other fields.
fn split_resources(bytes: &[u8]) -> Result<(usize, Vec<u8>), DecodeError> {
    let (mut number, mut others, mut rest) = (0, Vec::new(), bytes);
    while !rest.is_empty() {
        let field = rest;
        let (tag, wire_type) = decode_key(&mut rest)?;
        skip_field(wire_type, tag, &mut rest, DecodeContext::default())?;
        if tag == RESOURCES {
            number += 1;
        } else {
            others.extend_from_slice(&field[..field.len() - rest.len()]);
        }
    }
    Ok((number, others))
}

fn decode_resources(resources: &[Any]) -> Result<Vec<RateLimitConfig>, InvalidResource> {
    let mut number = 0;
    for resource in resources {
        if resource.type_url != RESOURCE_TYPE {
            return Err(InvalidResource::Type(resource.type_url.clone()));
        }
        // A malformed message fails when it is decoded.
        let _ = count_descriptors(
            &resource.value,
            DESCRIPTORS_OF_CONFIG,
            MAX_DEPTH,
            &mut number,
        );
        if number > MAX_DESCRIPTORS {
            return Err(InvalidResource::TooManyDescriptors);
        }
    }
    let decoded = resources
        .iter()
        .map(|resource| RateLimitConfig::decode(&*resource.value));
    let decoded: Result<_, _> = decoded.collect();
    decoded.map_err(InvalidResource::Malformed)
}

/// Adds the descriptors of a message to `number`, at all levels, up to the first one above the maximum.
///
/// `field` is the field with descriptors. `None` if the message is malformed or nested too deeply.
fn count_descriptors(mut rest: &[u8], field: u32, depth: u32, number: &mut usize) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    while !rest.is_empty() && *number <= MAX_DESCRIPTORS {
        let (tag, wire_type) = decode_key(&mut rest).ok()?;
        if tag != field || wire_type != WireType::LengthDelimited {
            skip_field(wire_type, tag, &mut rest, DecodeContext::default()).ok()?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
        let (descriptor, others) = rest.split_at_checked(length)?;
        *number += 1;
        count_descriptors(descriptor, DESCRIPTORS_OF_DESCRIPTOR, depth, number)?;
        rest = others;
    }
    Some(())
}

/// Resources that cannot be decoded.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidResource {
    /// A resource has this type.
    Type(String),
    /// The bytes are not a message of the type.
    Malformed(DecodeError),
    /// The response has this number of resources.
    TooManyResources(usize),
    /// The resources have too many descriptors.
    TooManyDescriptors,
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
            InvalidResource::TooManyResources(number) => {
                write!(
                    f,
                    "expected at most {MAX_RESOURCES} resources, not {number}"
                )
            }
            InvalidResource::TooManyDescriptors => {
                write!(
                    f,
                    "expected at most {MAX_DESCRIPTORS} descriptors in all resources"
                )
            }
        }
    }
}

impl Error for InvalidResource {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            InvalidResource::Malformed(why) => Some(why),
            _ => None,
        }
    }
}
