//! The limited service.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use http_body::Body;
use ratelimit_http::middleware::CheckOutcome;
use tower_service::Service;

use crate::{
    body::ResponseBody,
    check::Admission,
    count_body::CountedBody,
    framework::{Config, insert_into_request},
    future::{PendingCall, ResponseFuture},
};

/// A service whose requests are limited, made by [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> RateLimit<S> {
    pub(crate) const fn new(inner: S, config: Arc<Config>) -> RateLimit<S> {
        RateLimit { inner, config }
    }

    /// A call for a future that checks before it calls. It takes the service that `poll_ready` made ready,
    /// and a clone takes its place.
    fn pending_call<B>(&mut self, request: Request<B>) -> PendingCall<S, B>
    where
        S: Clone,
    {
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        PendingCall::new(ready, request)
    }

    /// Counts the body of a request if the limit needs it. It is for adapters of frameworks.
    #[doc(hidden)]
    #[inline]
    pub fn count_body<B: Body>(
        &self,
        request: Request<B>,
        wrap: impl FnOnce(CountedBody<B>) -> B,
    ) -> Request<B> {
        let (mut head, body) = request.into_parts();
        let body = CountedBody::wrap_if_needed(&self.config.current(), &mut head, body, wrap);
        Request::from_parts(head, body)
    }

    /// The inner service.
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
        let config = self.config.current();
        let (mut parts, body) = request.into_parts();
        match config.check(&config.limiter, &parts) {
            CheckOutcome::Admitted(delay, admission) => {
                insert_into_request(&config, &admission, &mut parts.extensions);
                let admission = Admission::new(admission, config);
                if delay.is_zero() {
                    // Fast path: the ready service is called in place, without a clone.
                    let response = self.inner.call(Request::from_parts(parts, body));
                    return ResponseFuture::calling(response, Some(admission));
                }
                let call = PendingCall::new(self.inner.clone(), Request::from_parts(parts, body));
                ResponseFuture::delaying(delay, call, admission)
            }
            CheckOutcome::Bypassed => {
                let response = self.inner.call(Request::from_parts(parts, body));
                ResponseFuture::calling(response, None)
            }
            CheckOutcome::Rejected(response) => ResponseFuture::rejected(response),
            CheckOutcome::Pending(check) => {
                let call = self.pending_call(Request::from_parts(parts, body));
                ResponseFuture::checking(check, call, config)
            }
            CheckOutcome::Resolving(tier) => {
                let call = self.pending_call(Request::from_parts(parts, body));
                ResponseFuture::resolving(tier, call, config)
            }
        }
    }
}
