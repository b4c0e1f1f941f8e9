//! What tests over several crates share: an exact model, traces aimed at edges, real servers.

pub mod chaos;
pub mod model;
mod ports;
pub mod random;
pub mod redis;
pub mod traces;
