//! Rate limiting for actix-web: one line for an app, a scope or a resource, one for a handler.
//!
//! - [Example](#example)
//! - [Features](#features)
//! - [actix-web](#actix-web): the guide
//!
//! # Example
//!
//! ```
//! # #[actix_web::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use actix_web::{App, test, web};
//! use ratelimit_actix::RateLimit;
//!
//! let app = App::new()
//!     .wrap(RateLimit::per_client("1/min")?)
//!     .route("/", web::get().to(async || "hello"));
//! let app = test::init_service(app).await;
//!
//! let request = || test::TestRequest::get().peer_addr(([203, 0, 113, 7], 443).into()).to_request();
//! assert_eq!(test::call_service(&app, request()).await.status(), 200);
//! assert_eq!(test::call_service(&app, request()).await.status(), 429);
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
//! [list its address]: TrustedProxies
//! [When Redis does not answer]: FailureMode
//! [The attribute]: macro@rate_limit
//! [named]: macro@rate_limit
//! [The layer]: RateLimit
//! [The order of settings]: RateLimit
//! [some requests pass without one]: SlotGuard
//! [Tiers from a database]: TierResolver
//! [policy file]: Registry
//! [without a restart]: Registry
//!
#![doc = include_str!("../docs/start/actix.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod check;
mod count_body;
mod extract;
mod framework;
#[cfg(feature = "macros")]
mod handler;
mod key;
mod middleware;
mod rejection;
mod service;
mod worker_sharing;

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
/// use actix_web::{App, post};
/// use ratelimit_actix::rate_limit;
///
/// #[post("/login")]
/// #[rate_limit("5/min; 20/h", charge_on = [401])]
/// async fn login(body: String) -> String {
///     format!("{} bytes", body.len())
/// }
///
/// let app = App::new().service(login);
/// ```
#[cfg(feature = "macros")]
pub use ratelimit_macros::rate_limit_actix as rate_limit;

pub use crate::{
    body::ResponseBody,
    check::Admission,
    extract::CurrentDecision,
    framework::ActixFramework,
    key::{
        ApiKey, ClientKey, CookieKey, ExtensionKey, HeaderKey, KeyError, KeyExtractor, MethodKey,
        PathKey, QueryKey, RouteKey,
    },
    middleware::RateLimit,
    rejection::{Defaults, Rejection, set_global_defaults},
    service::RateLimitService,
};

/// Items that the expansion of [`rate_limit`] names.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod private {
    pub use actix_web::{FromRequest, HttpRequest, HttpResponse, web::Payload};
    pub use ratelimit_core::{FailureMode, Key};
    pub use ratelimit_http::{
        handler::{CostOf, DeclaredHandler, DeclaredPolicy},
        private::inventory,
        response::HeaderStyle,
    };

    pub use crate::{
        handler::{
            HandlerKey, HandlerLimit, HandlerRejection, HandlerResponse, into_response,
            respond_to_rejection, run,
        },
        key::{KeyError, KeyExtractor},
        rejection::Rejection,
    };
}

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
