//! Envoy's rate limit services over gRPC: RLS in `service.rs`, RLQS in `quota_service.rs` and `quota_stream.rs`.

mod grpc_timeout;
mod quota_buckets;
mod quota_metrics;
mod quota_service;
mod quota_stream;
mod rules;
mod service;

pub(crate) use self::{
    rules::{CurrentRules, load_rules},
    service::RateLimitEndpoint,
};
