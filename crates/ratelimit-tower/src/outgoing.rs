//! Limits on the requests that a client sends.

mod body;
mod future;

use std::{
    error::Error,
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use ratelimit_core::{Decision, Key, Limiter, Policy};
use ratelimit_http::{middleware::log_unmatched_keys, policy::HttpPolicy};
use tower_layer::Layer;
use tower_service::Service;

pub use self::{body::OutgoingBody, future::OutgoingFuture};
use crate::key::{KeyError, KeyExtractor};

/// Limits the requests that a client sends, so that it stays within the limits of the other side.
///
/// - Each host and port has its own budget; [`key_by`](Self::key_by) counts by something else.
/// - A request over the limit fails with [`OutgoingError::Denied`], or waits up to
///   [`max_wait`](Self::max_wait).
/// - A policy that is not [enforced](Policy::enforces) for a key, such as one in shadow mode, counts
///   the request and neither delays nor denies it.
/// - The slot of a concurrency limit is held until the [body](OutgoingBody) of the response has ended,
///   fails or is dropped. It is released as well when the request fails or its future is dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use http::{Request, Response};
/// use ratelimit_core::{Limiter, Policy};
/// use ratelimit_tower::OutgoingLimitLayer;
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let layer = OutgoingLimitLayer::new(Limiter::in_memory(), Policy::parse("upstream", "1/h")?);
/// let client = service_fn(async |_: Request<()>| Ok::<_, std::io::Error>(Response::new("hello")));
/// let client = layer.layer(client);
///
/// let request = Request::builder().uri("http://api.example/").body(())?;
/// assert!(client.clone().oneshot(request.clone()).await.is_ok());
/// assert!(client.oneshot(request).await.is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias("client", "egress"))]
pub struct OutgoingLimitLayer {
    config: Arc<OutgoingConfig>,
}

#[derive(Clone)]
struct OutgoingConfig {
    limiter: Limiter,
    policy: Policy,
    key: Arc<dyn KeyExtractor>,
    max_wait: Duration,
}

impl OutgoingLimitLayer {
    /// Limits the requests to each host by `policy`.
    pub fn new(limiter: Limiter, policy: Policy) -> OutgoingLimitLayer {
        let config = OutgoingConfig {
            limiter,
            policy,
            key: Arc::new(host),
            max_wait: Duration::ZERO,
        };
        OutgoingLimitLayer {
            config: Arc::new(config),
        }
    }

    /// Sets the key by which requests are counted. The default is the request's host and port.
    #[must_use]
    pub fn key_by(mut self, key: impl KeyExtractor) -> OutgoingLimitLayer {
        Arc::make_mut(&mut self.config).key = Arc::new(key);
        self
    }

    /// Lets a request wait for its budget up to `max_wait` in total. The default is zero.
    ///
    /// A request that would have to wait longer fails at once.
    #[must_use]
    pub fn max_wait(mut self, max_wait: Duration) -> OutgoingLimitLayer {
        Arc::make_mut(&mut self.config).max_wait = max_wait;
        self
    }
}

impl<S> Layer<S> for OutgoingLimitLayer {
    type Service = OutgoingLimit<S>;

    fn layer(&self, inner: S) -> OutgoingLimit<S> {
        let policy = HttpPolicy::from(self.config.policy.clone());
        log_unmatched_keys(&policy, &self.config.key.key_kinds());
        OutgoingLimit {
            inner,
            config: Arc::clone(&self.config),
        }
    }
}

impl fmt::Debug for OutgoingConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingConfig")
            .field("limiter", &self.limiter)
            .field("policy", &self.policy)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

/// The key of the host and port of a request.
fn host(request: &Parts) -> Result<Key, KeyError> {
    let host = request.uri.host().ok_or(KeyError::Missing)?;
    let mut name = host.to_ascii_lowercase();
    if let Some(port) = request.uri.port_u16() {
        name = format!("{name}:{port}");
    }
    Ok(Key::tagged("host", name)?)
}

/// A client whose requests are limited, made by [`OutgoingLimitLayer`].
#[derive(Clone, Debug)]
pub struct OutgoingLimit<S> {
    inner: S,
    config: Arc<OutgoingConfig>,
}

impl<S, B, R> Service<Request<B>> for OutgoingLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<OutgoingBody<R>>;
    type Error = OutgoingError<S::Error>;
    type Future = OutgoingFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(OutgoingError::Inner)
    }

    fn call(&mut self, request: Request<B>) -> OutgoingFuture<S, B> {
        // The future checks before it calls. It takes the service that `poll_ready` made ready, and a
        // clone takes its place.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let (head, body) = request.into_parts();
        let key = match self.config.key.extract(&head) {
            Ok(key) => key,
            Err(error) => return OutgoingFuture::failed(OutgoingError::NoKey(error)),
        };
        let request = Request::from_parts(head, body);
        OutgoingFuture::checking(ready, request, key, &self.config)
    }
}

/// The error of an outgoing request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutgoingError<E> {
    /// The request is over its limit, and would have to wait longer than it may.
    ///
    /// A shaping limit has charged the request; other limits have not.
    Denied(Box<Decision>),
    /// The store did not answer and the failure mode is closed.
    Unavailable,
    /// The request has no key.
    NoKey(KeyError),
    /// The inner client failed.
    Inner(E),
}

impl<E> fmt::Display for OutgoingError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OutgoingError::Denied(_) => "the rate limit on outgoing requests is used up",
            OutgoingError::Unavailable => "the rate limit store did not answer",
            OutgoingError::NoKey(_) => "the outgoing request has no rate limit key",
            OutgoingError::Inner(_) => "the request failed",
        })
    }
}

impl<E: Error + 'static> Error for OutgoingError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OutgoingError::NoKey(error) => Some(error),
            OutgoingError::Inner(error) => Some(error),
            OutgoingError::Denied(_) | OutgoingError::Unavailable => None,
        }
    }
}
