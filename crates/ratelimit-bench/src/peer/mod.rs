//! The limiters that are measured beside ours.

pub mod contender;
pub mod http;
pub mod naive;
