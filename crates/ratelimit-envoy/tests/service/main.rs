//! Requests through rules, the engine and back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod descriptors;
mod files;
mod lookup;
mod model;
mod native;
mod outcomes;
mod resources;
