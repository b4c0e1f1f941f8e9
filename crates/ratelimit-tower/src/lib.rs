//! Rate limiting for any service of HTTP requests: axum, hyper, tonic and tower stacks.
//!
//! A [`RateLimitLayer`] extracts the [`Key`](ratelimit_core::Key) of each request and asks its
//! [`Limiter`](ratelimit_core::Limiter). A request over its limit gets 429 and does not reach the service.
//! Other responses get headers that report the remaining budget. An [`OutgoingLimitLayer`] limits the
//! requests that a client sends: they wait or fail.
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
//! | feature | effect |
//! |---|---|
//! | `axum` | the peer's address from axum's `ConnectInfo`, and bodies that convert into axum's |
//!
#![doc = include_str!("../docs/explain/client-key.md")]
//!
#![doc = include_str!("../docs/reference/headers.md")]

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

#[doc(inline)]
pub use ratelimit_http::{
    key::UnknownKeyName,
    middleware::{SlotGuard, TierResolver},
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
