//! Rate limiting of HTTP requests, without a framework.
//!
//! This crate contains everything about HTTP that the adapters for tower, axum and actix-web share. It works
//! on bytes and on two small traits, because the frameworks use different versions of the `http` crate.
//! Applications use it through `ratelimit_axum`, `ratelimit_actix` or `ratelimit_tower`.
//!
//! - [Modules](#modules-by-task)
//! - [A request by hand](#a-request-by-hand)
//! - [The client behind a proxy](#the-client-behind-a-proxy)
//! - [Features](#features)
//!
//! # Modules by task
//!
//! | module | content |
//! |---|---|
//! | [`client_ip`] | the client's address behind trusted proxies |
//! | [`key`] | the keys by which requests are counted |
//! | [`policy`] | [`HttpPolicy`](policy::HttpPolicy): rules, cost sources, settlement by the response |
//! | [`response`] | header fields and problem bodies |
//! | [`registry`] | policies by name, changed at run time |
//! | `policy_file` | policies in a TOML or YAML file, with diagnostics (features `toml`, `yaml`) |
//! | [`middleware`] | the implementation of the adapters |
//! | [`metrics`] | the names of the metrics |
//!
//! # A request by hand
//!
//! ```
//! use ratelimit_core::Key;
//! use ratelimit_http::policy::{HttpPolicy, RuleOutcome, RuleRequest};
//!
//! let api = HttpPolicy::parse("api", "100/min; 1000/h by ip")?
//!     .with_exempt_rule("path:/health".parse()?)
//!     .with_cost_source("header:x-tokens".parse()?);
//!
//! let (key, headers) = (Key::new("alice")?, [("X-Tokens", "40")]);
//! let request = RuleRequest::new(&key, "/chat", &headers[..]);
//! assert_eq!(api.evaluate(&request), RuleOutcome::Limited);
//! assert_eq!(api.cost_of_request(&headers[..]).get(), 40);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The client behind a proxy
//!
//! Headers are read from trusted peers only, so a client cannot choose its own address:
//!
//! ```
//! use ratelimit_http::client_ip::{ClientIpResolver, TrustedProxies};
//!
//! let resolver = ClientIpResolver::behind(TrustedProxies::parse(["10.0.0.0/8"])?);
//! let headers = [("X-Forwarded-For", "6.6.6.6, 203.0.113.7")];
//! let client = resolver.resolve(Some("10.0.0.1".parse()?), &headers[..])?;
//! assert_eq!(client.addr().to_string(), "203.0.113.7");
//! let direct = resolver.resolve(Some("198.51.100.1".parse()?), &headers[..])?;
//! assert_eq!(direct.addr().to_string(), "198.51.100.1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | effect |
//! |---|---|
//! | `toml`, `yaml` | policy files in that format |
//! | `tokio` | reservations are settled in spawned tasks if the store is not in memory |

#![cfg_attr(docsrs, feature(doc_cfg))]

/// Implements `Debug` as `Display`, because `main` prints its error with `Debug`.
macro_rules! debug_as_display {
    ($Error:ty) => {
        impl ::std::fmt::Debug for $Error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}

pub mod client_ip;
mod framework;
#[doc(hidden)]
pub mod handler;
pub mod key;
mod log_once;
pub mod metrics;
pub mod middleware;
pub mod policy;
#[cfg(any(feature = "toml", feature = "yaml"))]
pub mod policy_file;
pub mod registry;
pub mod response;
mod small_number;
mod syntax;

pub use self::syntax::InvalidSyntax;

/// Items that the macros of this workspace name.
#[doc(hidden)]
pub mod private {
    pub use inventory;

    pub use crate::syntax::is_token;
}

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
