//! Envoy's rate limit services over gRPC: RLS in `service.rs`, RLQS in `quota/`.

mod grpc_timeout;
mod json;
mod limit_headers;
mod log_text;
mod message_guard;
mod quota;
mod ratelimit_metrics;
mod reflection;
mod resources;
mod rules;
mod service;
mod xds;

pub(crate) use self::{
    json::json_routes,
    rules::{CurrentRules, load_rules},
    service::RateLimitEndpoint,
    xds::XdsClient,
};
