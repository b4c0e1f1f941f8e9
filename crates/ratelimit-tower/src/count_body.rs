//! Counting the bodies of requests whose length is unknown.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http::{Request, request::Parts};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use ratelimit_http::middleware::BodyCounter;
use tower_layer::Layer;
use tower_service::Service;

use crate::framework::Config;

/// Counts the bodies of requests, for limits below it whose cost is the length of the body.
///
/// - A policy with `cost = "body"` takes the length from `Content-Length`. A chunked request, or one over HTTP/2,
///   may have none. It costs the policy's cost at first. With this layer above the limit, the bytes that the
///   service reads are charged when the body ends or is dropped, as far as the budget allows.
/// - The body of a request changes its type to [`CountedBody`].
/// - axum's layer and attribute count without it.
///
/// ```
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use bytes::Bytes;
/// use ratelimit_core::Limiter;
/// use ratelimit_http::policy::HttpPolicy;
/// use ratelimit_tower::{CountBodyLayer, CountedBody, RateLimitLayer};
/// use tower::{ServiceBuilder, service_fn};
///
/// let policy = HttpPolicy::parse("upload", "1000000/h")?.with_cost_source("body".parse()?);
/// let service = ServiceBuilder::new()
///     .layer(CountBodyLayer)
///     .layer(RateLimitLayer::new(Limiter::in_memory(), policy))
///     .service(service_fn(async |_: Request<CountedBody<Full<Bytes>>>| {
///         Ok::<_, std::io::Error>(Response::new(Full::new(Bytes::new())))
///     }));
/// # drop(service);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct CountBodyLayer;

impl<S> Layer<S> for CountBodyLayer {
    type Service = CountBody<S>;

    fn layer(&self, inner: S) -> CountBody<S> {
        CountBody { inner }
    }
}

/// A service whose requests have counted bodies, made by [`CountBodyLayer`].
#[derive(Clone, Debug)]
pub struct CountBody<S> {
    inner: S,
}

impl<S, B> Service<Request<B>> for CountBody<S>
where
    S: Service<Request<CountedBody<B>>>,
    B: Body,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (mut head, body) = request.into_parts();
        let body = CountedBody::new(&mut head, body);
        self.inner.call(Request::from_parts(head, body))
    }
}

pin_project! {
    /// The body of a request whose bytes are counted as they are read.
    #[derive(Debug)]
    pub struct CountedBody<B> {
        #[pin]
        body: B,
        counter: Option<BodyCounter>,
    }
}

impl<B: Body> CountedBody<B> {
    /// Counts a body, and inserts the count into the extensions of its request.
    fn new(head: &mut Parts, body: B) -> CountedBody<B> {
        let counter = BodyCounter::default();
        head.extensions.insert(counter.count());
        let counter = (!body.is_end_stream()).then_some(counter);
        CountedBody { body, counter }
    }

    /// Counts the body of a request if a limit needs it. It is for adapters of frameworks.
    #[doc(hidden)]
    #[inline]
    pub fn wrap_if_needed(
        config: &Config,
        head: &mut Parts,
        body: B,
        wrap: impl FnOnce(CountedBody<B>) -> B,
    ) -> B {
        if config.counts_body(head) {
            wrap(CountedBody::new(head, body))
        } else {
            body
        }
    }
}

impl<B: Body> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if let (Some(counter), Some(Ok(frame))) = (&this.counter, &frame) {
            counter.count_bytes(frame.data_ref().map_or(0, Buf::remaining));
        }
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            *this.counter = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
