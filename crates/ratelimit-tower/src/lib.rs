//! Rate limiting for any service of HTTP requests: axum, hyper, tonic and tower stacks.
//!
//! A [`RateLimitLayer`] extracts the [`Key`](ratelimit_core::Key) of each request and asks its
//! [`Limiter`](ratelimit_core::Limiter). A request over its limit gets 429 and does not reach the service.
//! Other responses get headers that report the remaining budget. An [`OutgoingLimitLayer`] limits the
//! requests that a client sends: they wait or fail.
//!
//! - [A layer](#a-layer)
//! - [Outgoing requests](#outgoing-requests)
//! - [Features](#features)
//! - [Client keys](#client-keys): which client a request belongs to, behind a proxy and without
//! - [Response headers](#response-headers)
//!
//! # A layer
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use http::{Request, Response, StatusCode};
//! use ratelimit_core::{Limiter, Policy};
//! use ratelimit_tower::{PeerAddr, RateLimitLayer};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! let layer = RateLimitLayer::new(Limiter::in_memory(), Policy::parse("api", "1/min")?);
//! let hello = layer.layer(service_fn(async |_| Ok::<_, std::io::Error>(Response::new("hello"))));
//! let request = Request::builder().extension(PeerAddr("203.0.113.7:443".parse()?)).body(())?;
//!
//! assert_eq!(hello.clone().oneshot(request.clone()).await?.headers()["x-ratelimit-remaining"], "0");
//! assert_eq!(hello.oneshot(request).await?.status(), StatusCode::TOO_MANY_REQUESTS);
//! # Ok(())
//! # }
//! ```
//!
//! # Outgoing requests
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use http::{Request, Response};
//! use ratelimit_core::{Limiter, Policy};
//! use ratelimit_tower::OutgoingLimitLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! let layer = OutgoingLimitLayer::new(Limiter::in_memory(), Policy::parse("upstream", "1/h")?);
//! let client = service_fn(async |_: Request<()>| Ok::<_, std::io::Error>(Response::new("hello")));
//! let client = layer.layer(client);
//!
//! let request = Request::builder().uri("http://api.example/").body(())?;
//! assert!(client.clone().oneshot(request.clone()).await.is_ok());
//! assert!(client.oneshot(request).await.is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! `ratelimit-core` has the features of the stores.
//!
//! | feature | effect |
//! |---|---|
//! | `axum` | the peer's address from axum's `ConnectInfo`, the path from its `OriginalUri`, and bodies that convert into axum's |
//! | `toml`, `yaml` | policies from a file, with `Registry::watch` |
//!
// The page links to another page, which docs.rs does not have: of two definitions of a link, Markdown takes the first.
//! [Behind a proxy]: ratelimit_http::client_ip::TrustedProxies
//!
#![doc = include_str!("../docs/explain/client-key.md")]
//!
#![doc = include_str!("../docs/reference/headers.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod check;
mod count_body;
mod framework;
mod future;
mod key;
mod layer;
mod outgoing;
mod peer_addr;
mod rejection;
mod reset_value;
mod service;

#[cfg(any(feature = "toml", feature = "yaml"))]
#[doc(inline)]
pub use ratelimit_http::registry::{PolicyFileWatch, ReloadError};
#[doc(inline)]
pub use ratelimit_http::{
    key::UnknownKeyName,
    middleware::{DecisionSharing, SlotGuard, TierResolver},
    registry::Registry,
};

pub use crate::{
    body::ResponseBody,
    check::Admission,
    count_body::{CountBody, CountBodyLayer, CountedBody},
    framework::HttpFramework,
    future::ResponseFuture,
    key::{
        And, ApiKey, ClientAddress, ClientKey, CookieKey, ExtensionKey, HeaderKey, KeyError,
        KeyExtractor, MethodKey, Or, OrShared, PathKey, QueryKey,
    },
    layer::RateLimitLayer,
    outgoing::{OutgoingBody, OutgoingError, OutgoingFuture, OutgoingLimit, OutgoingLimitLayer},
    peer_addr::{AddPeerAddr, PeerAddr},
    rejection::{Defaults, Rejection, RejectionReason, set_global_defaults},
    service::RateLimit,
};

/// Compiles and runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
