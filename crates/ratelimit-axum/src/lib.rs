//! Rate limiting for axum: one line for a router, one for a handler.
//!
//! - [Example](#example)
//! - [Features](#features)
//! - [axum](#axum): the guide
//!
//! # Example
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::net::SocketAddr;
//! use axum::{Router, body::Body, extract::connect_info::MockConnectInfo, routing::get};
//! use ratelimit_axum::RateLimitLayer;
//! use tower::ServiceExt;
//!
//! let app = Router::new()
//!     .route("/", get(async || "hello"))
//!     .layer(RateLimitLayer::per_client("1/min")?)
//!     .layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 7], 443))));
//!
//! let request = || http::Request::new(Body::empty());
//! assert_eq!(app.clone().oneshot(request()).await?.status(), 200);
//! assert_eq!(app.oneshot(request()).await?.status(), 429);
//! # Ok(())
//! # }
//! ```
//!
//! The types that applications need are re-exported here. [`ratelimit_core`] and [`ratelimit_http`] have everything else.
//!
//! # Features
//!
//! | feature | effect |
//! |---|---|
//! | `macros` (default) | `#[rate_limit("5/min")]` for handlers |
//! | `redis` | `RedisStore`, whose budgets all instances of a service share |
//! | `redis-tls` | TLS connections to Redis |
//! | `redis-cluster`, `bb8` | stores on a `ClusterConnection` of the redis crate, and on existing connection pools |
//! | `toml`, `yaml` | policies from a file: `Registry::from_toml`, `Registry::from_yaml` and their `reload_` methods, which do not exist without the feature |
//!
// The page links to other pages, which docs.rs does not have: of two definitions of a link, Markdown takes the first.
//! [The text of a limit]: Limit
//! [the same in Rust]: TokenBucket
//! [list its address]: TrustedProxies
//! [When Redis does not answer]: FailureMode
//! [The attribute]: macro@rate_limit
//! [named]: macro@rate_limit
//! [The layer]: RateLimitLayer
//! [The order of settings]: RateLimitLayer
//! [some requests pass without a slot]: SlotGuard
//! [Tiers from a database]: TierResolver
//! [policy file]: Registry
//! [without a restart]: Registry
//!
#![doc = include_str!("../docs/start/axum.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod extract;
#[cfg(feature = "macros")]
mod handler;
mod layer;
mod rejection;
mod service;

#[doc(no_inline)]
pub use ratelimit_core;
pub use ratelimit_core::{
    Clock, Concurrency, Decision, FailureMode, FixedWindow, InvalidPolicy, Key, KeySet,
    LeakyBucket, Limit, Limiter, LoadSignal, MemoryStore, Outcome, PenaltyBox, Policy,
    SlidingWindowCounter, SlidingWindowLog, Throttle, Timestamp, TokenBucket, Verdict,
};
#[cfg(feature = "redis")]
pub use ratelimit_core::{RedisConfig, RedisStore};
#[doc(no_inline)]
pub use ratelimit_http;
#[cfg(any(feature = "toml", feature = "yaml"))]
pub use ratelimit_http::registry::{PolicyFileWatch, ReloadError};
pub use ratelimit_http::{
    client_ip::TrustedProxies,
    handler::set_global_registry,
    middleware::{DecisionSharing, SlotGuard, TierResolver},
    policy::{CostSource, HttpPolicy, Rule, SettleSource, StatusSet},
    registry::Registry,
    response::HeaderStyle,
};
/// ```
/// use axum::{Router, routing::post};
/// use ratelimit_axum::rate_limit;
///
/// #[rate_limit("5/min; 20/h", charge_on = [401])]
/// async fn login(body: String) -> String {
///     format!("{} bytes", body.len())
/// }
///
/// let app: Router = Router::new().route("/login", post(login));
/// ```
#[cfg(feature = "macros")]
pub use ratelimit_macros::rate_limit_axum as rate_limit;
pub use ratelimit_tower::{
    ApiKey, ClientKey, CookieKey, ExtensionKey, HeaderKey, KeyError, KeyExtractor, MethodKey,
    PathKey, QueryKey,
};

pub use crate::{
    extract::{CurrentDecision, RouteKey},
    layer::RateLimitLayer,
    rejection::{Defaults, Rejection, set_global_defaults},
    service::{RateLimit, ResponseFuture},
};

/// Items that the expansion of [`rate_limit`] names.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod private {
    pub use axum::response::Response;
    pub use http::request::Parts;
    pub use ratelimit_core::{FailureMode, Key};
    pub use ratelimit_http::{
        handler::{CostOf, DeclaredHandler, DeclaredPolicy},
        private::inventory,
        response::HeaderStyle,
    };
    pub use ratelimit_tower::{KeyError, KeyExtractor};

    pub use crate::{
        handler::{
            DebugHandlerGoesBelowRateLimit, HandlerId, HandlerKey, HandlerLimit, HandlerRejection,
            HandlerResponse, LimitOf, Limited, Placeholder, handler_id, into_response,
            respond_to_rejection,
        },
        rejection::Rejection,
    };
}

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
