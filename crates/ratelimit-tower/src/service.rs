//! The limited service.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use ratelimit_core::adapter::Way;
use tower_service::Service;

use crate::{
    body::ResponseBody,
    check::Passed,
    framework::Settings,
    future::{Parked, ResponseFuture},
};

/// A service whose requests are limited, made by [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    settings: Arc<Settings>,
}

impl<S> RateLimit<S> {
    pub(crate) const fn new(inner: S, settings: Arc<Settings>) -> RateLimit<S> {
        RateLimit { inner, settings }
    }

    /// The service inside.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, B, R> Service<Request<B>> for RateLimit<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let settings = self.settings.current();
        let (mut parts, body) = request.into_parts();
        match settings.decide(&settings.limiter, &parts) {
            Way::Go(delay, passage) => {
                settings.own.share_inwards(&passage, &mut parts.extensions);
                let passed = Passed::new(passage, settings);
                if delay.is_zero() {
                    // The ready service is called where it stands, and no clone is made.
                    let response = self.inner.call(Request::from_parts(parts, body));
                    return ResponseFuture::calling(response, Some(passed));
                }
                let parked = Parked::new(self.inner.clone(), Request::from_parts(parts, body));
                ResponseFuture::waiting(delay, parked, passed)
            }
            Way::Pass => {
                let response = self.inner.call(Request::from_parts(parts, body));
                ResponseFuture::calling(response, None)
            }
            Way::Refuse(answer) => ResponseFuture::refused(answer),
            Way::Ask(asking) => {
                // The check comes before the call, so the future takes the service that
                // `poll_ready` made ready, and leaves a clone in its place.
                let clone = self.inner.clone();
                let ready = mem::replace(&mut self.inner, clone);
                let parked = Parked::new(ready, Request::from_parts(parts, body));
                ResponseFuture::asking(asking, parked, settings)
            }
        }
    }
}
