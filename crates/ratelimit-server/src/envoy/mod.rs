//! Envoy's rate limit service over gRPC.

mod grpc_timeout;
mod resources;
mod rules;
mod service;
mod xds;

pub(crate) use self::{
    rules::{CurrentRules, load_rules},
    service::RateLimitEndpoint,
    xds::XdsClient,
};
