//! Grants of the quota service: simulated Envoys, lost streams, restarts, late messages and outages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod bucket;
mod envoy_model;
mod flaky_store;
mod lookup;
mod random;
mod worlds;
