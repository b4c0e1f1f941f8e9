//! Envoy's rate limit service over gRPC.

mod grpc_timeout;
mod limit_headers;
mod ratelimit_metrics;
mod reflection;
mod rules;
mod service;

pub(crate) use self::{
    rules::{CurrentRules, load_rules},
    service::RateLimitEndpoint,
};
