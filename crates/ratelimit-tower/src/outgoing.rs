//! Limits on requests that are sent.

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
use tower_layer::Layer;
use tower_service::Service;

pub use self::{body::OutgoingBody, future::OutgoingFuture};
use crate::key::{KeyError, KeyExtractor};

/// Limits the requests that a client sends, so that it stays within what the other side allows.
///
/// Each host has its own budget unless [`key_by`](Self::key_by) says otherwise. A request over the
/// limit fails with [`OutgoingError::Denied`], or waits if [`wait`](Self::wait) lets it.
///
/// - A policy that is not [enforced](Policy::enforces) for a key, such as one in shadow mode, counts
///   the request and neither delays nor refuses it.
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
pub struct OutgoingLimitLayer {
    settings: Arc<OutgoingConfig>,
}

#[derive(Clone)]
struct OutgoingConfig {
    limiter: Limiter,
    policy: Policy,
    key: Arc<dyn KeyExtractor>,
    longest_wait: Duration,
}

impl OutgoingLimitLayer {
    /// Limits the requests to each host by `policy`.
    pub fn new(limiter: Limiter, policy: Policy) -> OutgoingLimitLayer {
        let settings = OutgoingConfig {
            limiter,
            policy,
            key: Arc::new(host),
            longest_wait: Duration::ZERO,
        };
        OutgoingLimitLayer {
            settings: Arc::new(settings),
        }
    }

    /// Whose budget is spent; that of the request's host and port, unless set.
    #[must_use]
    pub fn key_by(mut self, key: impl KeyExtractor) -> OutgoingLimitLayer {
        Arc::make_mut(&mut self.settings).key = Arc::new(key);
        self
    }

    /// Waits for the budget, all in all no longer than this, before a request fails.
    ///
    /// A request that would have to wait longer fails at once.
    #[must_use]
    pub fn wait(mut self, longest: Duration) -> OutgoingLimitLayer {
        Arc::make_mut(&mut self.settings).longest_wait = longest;
        self
    }
}

impl<S> Layer<S> for OutgoingLimitLayer {
    type Service = OutgoingLimit<S>;

    fn layer(&self, inner: S) -> OutgoingLimit<S> {
        OutgoingLimit {
            inner,
            settings: Arc::clone(&self.settings),
        }
    }
}

impl fmt::Debug for OutgoingConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limiter", &self.limiter)
            .field("policy", &self.policy)
            .field("longest_wait", &self.longest_wait)
            .finish_non_exhaustive()
    }
}

/// The key of the host and port that a request goes to.
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
    settings: Arc<OutgoingConfig>,
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
        let (head, body) = request.into_parts();
        let key = match self.settings.key.extract(&head) {
            Ok(key) => key,
            Err(why) => return OutgoingFuture::failed(OutgoingError::NoKey(why)),
        };
        // The check comes before the call, so the future takes the service that `poll_ready`
        // made ready, and leaves a clone in its place.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        let request = Request::from_parts(head, body);
        OutgoingFuture::checking(ready, request, key, &self.settings)
    }
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutgoingError<E> {
    /// The budget is spent, and for longer than the request may wait.
    ///
    /// A shaping limit has spent the request's cost by then; others have not.
    Denied(Box<Decision>),
    /// The store did not answer, and the failure mode is closed.
    Unavailable,
    /// The request has no key.
    NoKey(KeyError),
    /// The client inside failed.
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
            OutgoingError::NoKey(why) => Some(why),
            OutgoingError::Inner(error) => Some(error),
            OutgoingError::Denied(_) | OutgoingError::Unavailable => None,
        }
    }
}
