//! Envoy's rate limit service over gRPC.

mod grpc_timeout;
mod json;
mod limit_headers;
mod ratelimit_metrics;
mod reflection;
mod rules;
mod service;

pub(crate) use self::{
    json::json_routes,
    rules::{CurrentRules, load_rules},
    service::RateLimitEndpoint,
};
