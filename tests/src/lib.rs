//! What tests over several crates share: an exact model, traces aimed at edges, real servers.
#![doc(test(attr(deny(unused_must_use))))]

pub mod chaos;
pub mod handlers;
pub mod model;
pub mod page;
#[cfg(doctest)]
pub mod pages;
pub mod ports;
pub mod prefetch_instance;
pub mod proxy_variables;
pub mod random;
pub mod redis;
pub mod snippet;
pub mod traces;
