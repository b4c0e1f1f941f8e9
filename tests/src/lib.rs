//! What tests over several crates share: an exact model, traces aimed at edges, real servers.
#![doc(test(attr(deny(unused_must_use))))]

pub mod chaos;
pub mod handlers;
pub mod model;
mod ports;
pub mod prefetch_instance;
pub mod random;
pub mod redis;
pub mod snippet;
pub mod traces;

/// The README, so that its examples are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The README of the attribute's crate, which cannot depend on axum.
#[cfg(doctest)]
#[doc = include_str!("../../crates/ratelimit-macros/README.md")]
pub struct ReadmeOfMacros;

/// The page about tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/guides/testing.md")]
pub struct Testing;

/// The programs of the README and of the adapters' pages, run with a request each.
#[cfg(doctest)]
#[doc = include_str!(concat!(env!("OUT_DIR"), "/snippets.md"))]
pub struct Snippets;

/// The pages about moving here from other limiters, so that their examples are compiled and run.
#[cfg(doctest)]
pub mod moving {
    #[doc = include_str!("../../docs/move/tower_governor.md")]
    pub struct TowerGovernor;

    #[doc = include_str!("../../docs/move/actix-governor.md")]
    pub struct ActixGovernor;
}
