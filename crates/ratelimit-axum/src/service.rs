//! The limited service, with axum's bodies.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{BoxError, body::Body};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use pin_project_lite::pin_project;
use ratelimit_tower::CountedBody;
use tower_service::Service;

/// A service whose requests are limited, made by [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S>(ratelimit_tower::RateLimit<S>);

impl<S> RateLimit<S> {
    pub(crate) const fn new(limited: ratelimit_tower::RateLimit<S>) -> RateLimit<S> {
        RateLimit(limited)
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        self.0.get_ref()
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone,
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    R: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> ResponseFuture<S> {
        let response = self.0.call_with_body(request, |config, head, body| {
            CountedBody::wrap_if_needed(config, head, Body::new(body), Body::new)
        });
        ResponseFuture { response }
    }
}

pin_project! {
    /// The response future of a [`RateLimit`].
    #[must_use = "a request is made when its future is polled"]
    pub struct ResponseFuture<S>
    where
        S: Service<Request<Body>>,
    {
        #[pin]
        response: ratelimit_tower::ResponseFuture<S, Body>,
    }
}

impl<S, R> Future for ResponseFuture<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone,
    R: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    type Output = Result<Response<Body>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().response.poll_with_body(cx, Body::from)
    }
}

impl<S: Service<Request<Body>>> fmt::Debug for ResponseFuture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.response.fmt(f)
    }
}
