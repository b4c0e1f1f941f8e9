//! Envoy's rate limit service over gRPC.

mod grpc_timeout;
mod rules;
mod service;

pub(crate) use self::{
    rules::{CurrentRules, load_rules},
    service::RateLimitEndpoint,
};
