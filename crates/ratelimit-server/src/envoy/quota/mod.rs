//! Envoy's rate limit quota service.
//!
//! - `context.rs`: the state that all streams share, and their clock.
//! - `report.rs`: reports as they arrive, and batches of them.
//! - `buckets.rs`: the buckets of a stream, and when each has something to do.
//! - `stream.rs`: one stream: reports, wake-ups and reloads.
//! - `intake.rs`: the usages of reports, bucket by bucket.
//! - `pass.rs`: one pass over many buckets: calls of the store, and responses.
//! - `reload.rs`: changed rules on a stream.
//! - `metrics.rs`: the metrics.
//! - `service.rs`: the gRPC service.

mod buckets;
mod context;
mod intake;
mod metrics;
mod pass;
mod reload;
mod report;
mod service;
mod stream;

pub(crate) use self::service::{QuotaEndpoint, QuotaServer};
