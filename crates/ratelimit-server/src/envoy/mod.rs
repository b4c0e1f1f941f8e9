//! Envoy's rate limit services over gRPC: RLS in `service.rs`, RLQS in `quota/`.

mod grpc_timeout;
mod quota;
mod rules;
mod service;

pub(crate) use self::{
    rules::{CurrentRules, load_rules},
    service::RateLimitEndpoint,
};
