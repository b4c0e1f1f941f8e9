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

    /// The service that `poll_ready` made ready. A clone takes its place.
    fn take_ready(&mut self) -> S
    where
        S: Clone,
    {
        let clone = self.inner.clone();
        mem::replace(&mut self.inner, clone)
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
                // Dropping the ready service frees its capacity for other requests during the delay. Then the
                // future makes a clone ready, which would wait forever for what this service kept.
                self.inner = self.inner.clone();
                let call = PendingCall::new(self.inner.clone(), request);
                State::delaying(delay, call, admission, config)
            }
            CheckOutcome::Bypassed => State::Calling {
                response: self.inner.call(request),
                admission: None,
                config,
            },
            CheckOutcome::Rejected(response) => {
                // The service is not called, so it must not keep its capacity until the next request.
                self.inner = self.inner.clone();
                State::Rejected {
                    response: Some(response),
                }
            }
            CheckOutcome::Pending(check) => State::Checking {
                check,
                call: Some(PendingCall::new(self.take_ready(), request)),
                config,
            },
            CheckOutcome::Resolving(tier) => State::Resolving {
                tier,
                call: Some(PendingCall::new(self.take_ready(), request)),
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
