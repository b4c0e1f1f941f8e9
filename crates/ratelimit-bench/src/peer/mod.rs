//! The limiters that are measured beside ours.

pub mod http;
pub mod memory;
pub mod naive;
