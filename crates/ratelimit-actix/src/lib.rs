//! Rate limiting for actix-web: one line for an app, a scope or a resource, one for a handler.
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
//! All that a user names is here, the engine's types too.
//!
//! | feature | what it adds |
//! |---|---|
//! | `macros` (default) | `#[rate_limit("5/min")]` for handlers |
//! | `redis` | `RedisStore`, which all instances of a service share |
//! | `redis-cluster`, `redis-tls`, `bb8` | clusters, TLS, and pools that an application already has |
//! | `toml` | policies from a file |
//!
#![doc = include_str!("../docs/actix.md")]

#[cfg(feature = "macros")]
mod attribute;
mod body;
mod check;
mod decided;
mod framework;
mod key;
mod rate_limit;
mod rejection;
mod service;
mod workers;

pub use ratelimit_core::*;
#[cfg(feature = "macros")]
pub use ratelimit_macros::rate_limit_actix as rate_limit;

pub use ratelimit_core::adapter::UnknownKeyName;

pub use crate::{
    body::LimitedBody,
    decided::Decided,
    framework::Actix,
    key::{
        ApiKey, Both, ClientKey, CookieKey, Either, HeaderKey, KeyExtractor, MethodKey, NoKey,
        OrShared, PathKey, QueryKey, RouteKey, Whereabouts,
    },
    rate_limit::RateLimit,
    rejection::{Cause, Rejection},
    service::RateLimitService,
};

/// For the code that [`rate_limit`] expands to, and for nobody else.
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod private {
    pub use actix_web::{FromRequest, HttpRequest, HttpResponse, web::Payload};
    pub use ratelimit_core::{Attribute, private::inventory};

    pub use crate::attribute::{CostOf, HandlerLimit, KeyBy, run};
}
