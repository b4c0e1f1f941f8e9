//! The limited service.

use std::{
    mem,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use ratelimit_http::middleware::CheckOutcome;
use tower_service::Service;

use crate::{
    body::ResponseBody,
    framework::{Config, insert_into_request},
    future::{PendingCall, ResponseFuture, State},
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

    /// Calls the service with the body that `map_body` makes. It is for adapters of frameworks.
    #[doc(hidden)]
    #[inline]
    pub fn call_with_body<A, B, R>(
        &mut self,
        request: Request<A>,
        map_body: impl FnOnce(&Config, &mut Parts, A) -> B,
    ) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>, Response = Response<R>> + Clone,
    {
        let config = self.config.current();
        let (mut parts, body) = request.into_parts();
        let body = map_body(&config, &mut parts, body);
        let outcome = config.check(&config.limiter, &parts);
        if let CheckOutcome::Admitted(_, admission) = &outcome {
            insert_into_request(&config, admission, &mut parts.extensions);
        }
        let request = Request::from_parts(parts, body);
        let state = match outcome {
            CheckOutcome::Admitted(Duration::ZERO, admission) => {
                // Fast path: the ready service is called in place, without a clone. Returning here saves a copy of the
                // state, 110 instructions of 4,700 (`cargo xtask bench --only http`).
                return ResponseFuture {
                    state: State::Calling {
                        response: self.inner.call(request),
                        admission: Some(admission),
                        config,
                    },
                };
            }
            CheckOutcome::Admitted(delay, admission) => {
                let call = PendingCall::new(self.inner.clone(), request);
                State::delaying(delay, call, admission, config)
            }
            CheckOutcome::Bypassed => State::Calling {
                response: self.inner.call(request),
                admission: None,
                config,
            },
            CheckOutcome::Rejected(response) => State::Rejected {
                response: Some(response),
            },
            CheckOutcome::Pending(check) => State::Checking {
                check,
                call: Some(self.pending_call(request)),
                config,
            },
            CheckOutcome::Resolving(tier) => State::Resolving {
                tier,
                call: Some(self.pending_call(request)),
                config,
            },
        };
        ResponseFuture { state }
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
        self.call_with_body(request, |_, _, body| body)
    }
}
