//! Envoy's rate limit protocols over `ratelimit-core`.
//!
//! A rate limit service (RLS) answers one question for each request that Envoy receives: may a request with these
//! descriptors pass? This crate turns the question into hits of the engine and their verdicts into the answer. It
//! opens no socket.
//!
//! - [The rate limit service](#the-rate-limit-service)
//! - [The quota service](#the-quota-service)
//! - [Features](#features)
//!
//! # The rate limit service
//!
//! 1. [`load_directory`] or [`RulesBuilder`] reads rules, in the YAML form or the discovery form of Envoy's own rate
//!    limit server, into [`Rules`]. [`read_rules`] reads rules with any policy from a configuration file.
//! 2. [`Rules::resolve`] finds the rule of each descriptor and returns a [`ResolvedRequest`] with its [`Member`]s:
//!    policies, keys, costs and roles.
//! 3. [`decide`] charges the members in one step, all or nothing. [`give_back`] gives back what a request returns.
//! 4. [`ResolvedRequest::response`] makes the answer of the verdicts.
//!
//! ```
//! use ratelimit_core::{Limiter, Timestamp};
//! use ratelimit_envoy::{ResponseOptions, RulesBuilder, decide, proto};
//! use proto::envoy::extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry};
//! use proto::envoy::service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!
//! let mut builder = RulesBuilder::new();
//! let file = "domain: edge\ndescriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 1 } }]";
//! assert!(builder.add_yaml(file).is_empty());
//! let rules = builder.build();
//!
//! let entry = Entry { key: "user".into(), value: "alice".into() };
//! let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
//! let request = RateLimitRequest { domain: "edge".into(), descriptors: vec![descriptor], hits_addend: 0 };
//!
//! let limiter = Limiter::in_memory();
//! for expected in [Code::Ok, Code::OverLimit] {
//!     let resolved = rules.resolve(&request)?;
//!     let verdicts = decide(&limiter, &resolved, None).await;
//!     let response = resolved.response(&verdicts, Timestamp::from_secs(0), ResponseOptions::default());
//!     assert_eq!(response.overall_code(), expected);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The quota service
//!
//! A rate limit quota service (RLQS) assigns buckets of requests to each Envoy in advance. [`quota`] grants units that were
//! charged before: [`Rules::quota_target`] finds the budget of a bucket, and [`quota::QuotaHolder`] charges, grants and
//! settles it.
//!
//! # Features
//!
//! The crate has no features.

mod charge;
mod config;
mod decide;
mod directory;
mod discovery;
mod matched_descriptor;
mod member;
mod policy_name;
pub mod proto;
pub mod quota;
mod request;
mod resource;
mod response;
mod rule;
mod usage;

pub use self::{
    charge::Charge,
    config::{
        DescriptorConfig, LimitConfig, RuleConfig, RulesConfig, UnmatchedBuckets, read_rules,
        rule_field_names,
    },
    decide::{decide, give_back},
    directory::{DirectoryOptions, FileDiagnostics, list_files, load_directory},
    discovery::{InvalidResource, RESOURCE_TYPE, RulesResponse},
    member::Member,
    request::{InvalidRequest, ResolvedRequest},
    resource::ResourceDiagnostic,
    response::ResponseOptions,
    rule::{ListedRule, Role, Rules, RulesBuilder, Unit},
    usage::{DescriptorUsage, HitCounts, NearLimitRatio},
};

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
