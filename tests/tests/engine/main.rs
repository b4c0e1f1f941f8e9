//! The engine through its public face, on both stores.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod allocations;
mod bound;
mod equivalence;
mod examples;
mod footprint;
mod input;
mod keys;
mod oracle;
mod peers;
mod receipts;
mod runtime;
mod subject;
mod ttl;
mod vectors;
