//! The engine through its public face, on both stores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod allocations;
mod batching;
mod catch_up;
mod concurrency;
mod credit;
mod deny_cache;
mod deployments;
mod dropped;
mod earlier;
mod equivalence;
mod examples;
mod first_hits;
mod footprint;
mod input;
mod joint;
mod joint_redis;
mod keys;
mod memory_capacity;
mod multi_key;
mod oracle;
mod outages;
mod peers;
mod policies;
mod prefetch;
mod receipts;
mod runtime;
mod stores;
mod throttle;
mod traced_keys;
mod ttl;
mod vectors;
