//! The future of a request: resolving its tier, checking, delaying, calling.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use ratelimit_http::middleware::{
    CheckOutcome, CompletedCheck, PendingCheck, PendingTier, ResolvedTier,
};
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use crate::{
    body::ResponseBody,
    framework::{Config, HttpAdmission, finish, insert_into_request},
};

pin_project! {
    /// The response future of a [`RateLimit`](crate::RateLimit).
    ///
    /// Dropping it releases the slot of the request. The charge stays if the request was checked.
    #[must_use = "a request is made when its future is polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        pub(crate) state: State<S, B, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    pub(crate) enum State<S, B, F> {
        Rejected { response: Option<Response<Bytes>> },
        Resolving { tier: PendingTier, call: Option<PendingCall<S, B>>, config: Arc<Config> },
        Checking { check: PendingCheck, call: Option<PendingCall<S, B>>, config: Arc<Config> },
        Delaying {
            sleep: Pin<Box<Sleep>>,
            call: Option<PendingCall<S, B>>,
            admission: Option<HttpAdmission>,
            config: Arc<Config>,
        },
        Calling { #[pin] response: F, admission: Option<HttpAdmission>, config: Arc<Config> },
    }
}

/// A service and the request for it, boxed so that futures in other states stay small.
pub(crate) struct PendingCall<S, B>(Box<(S, Request<B>)>);

impl<S, B> PendingCall<S, B> {
    pub(crate) fn new(service: S, request: Request<B>) -> PendingCall<S, B> {
        PendingCall(Box::new((service, request)))
    }
}

impl<S, B, F> State<S, B, F> {
    pub(crate) fn delaying(
        delay: Duration,
        call: PendingCall<S, B>,
        admission: HttpAdmission,
        config: Arc<Config>,
    ) -> State<S, B, F> {
        State::Delaying {
            sleep: Box::pin(sleep(delay)),
            call: Some(call),
            admission: Some(admission),
            config,
        }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_with_body(cx, |body| body)
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>> + Clone,
{
    /// Polls for the response with the body that `map_body` makes. It is for adapters of frameworks.
    #[doc(hidden)]
    #[inline]
    pub fn poll_with_body<R, T>(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        map_body: impl FnOnce(ResponseBody<R>) -> T,
    ) -> Poll<Result<Response<T>, S::Error>>
    where
        S: Service<Request<B>, Response = Response<R>>,
    {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Calling {
                    response,
                    admission,
                    config,
                } => {
                    let mut response = ready!(response.poll(cx))?;
                    let guard = finish(config, admission.as_mut(), &mut response);
                    let response = response.map(|body| map_body(ResponseBody::inner(body, guard)));
                    return Poll::Ready(Ok(response));
                }
                StateProj::Rejected { response } => {
                    let response = response.take().expect("polled after completion");
                    let response = response.map(|bytes| map_body(ResponseBody::rejection(bytes)));
                    return Poll::Ready(Ok(response));
                }
                StateProj::Resolving { tier, call, config } => {
                    let resolved = ready!(Pin::new(tier).poll(cx));
                    let call = call.take().expect("taken once, when the tier is known");
                    after_resolving(resolved, call, config)
                }
                StateProj::Checking {
                    check,
                    call,
                    config,
                } => {
                    let completed = ready!(Pin::new(check).poll(cx));
                    let call = call.take().expect("taken once, when the check is done");
                    after_check(completed, call, config)
                }
                StateProj::Delaying {
                    sleep,
                    call,
                    admission,
                    config,
                } => {
                    ready!(sleep.as_mut().poll(cx));
                    let (service, _) = &mut *call.as_mut().expect("taken once, when ready").0;
                    ready!(service.poll_ready(cx))?;
                    let call = call.take().expect("taken once, when ready");
                    let (mut service, request) = *call.0;
                    State::Calling {
                        response: service.call(request),
                        admission: admission.take(),
                        config: Arc::clone(config),
                    }
                }
            };
            state.set(next);
        }
    }
}

/// The next state after the tier was looked up.
fn after_resolving<S, B>(
    resolved: ResolvedTier,
    call: PendingCall<S, B>,
    config: &Arc<Config>,
) -> State<S, B, S::Future>
where
    S: Service<Request<B>> + Clone,
{
    let (service, request) = *call.0;
    let (parts, body) = request.into_parts();
    let outcome = config.check_resolved(&config.limiter, &parts, resolved);
    let call = |service| PendingCall::new(service, Request::from_parts(parts, body));
    match outcome {
        CheckOutcome::Admitted(delay, admission) => {
            admit(delay, admission, call(service), Arc::clone(config))
        }
        CheckOutcome::Rejected(response) => State::Rejected {
            response: Some(response),
        },
        CheckOutcome::Bypassed => {
            let (mut service, request) = *call(service).0;
            State::Calling {
                response: service.call(request),
                admission: None,
                config: Arc::clone(config),
            }
        }
        CheckOutcome::Pending(check) => State::Checking {
            check,
            call: Some(call(service)),
            config: Arc::clone(config),
        },
        CheckOutcome::Resolving(tier) => State::Resolving {
            tier,
            call: Some(call(service)),
            config: Arc::clone(config),
        },
    }
}

/// The next state after the limiter's answer.
fn after_check<S, B>(
    completed: CompletedCheck,
    call: PendingCall<S, B>,
    config: &Arc<Config>,
) -> State<S, B, S::Future>
where
    S: Service<Request<B>> + Clone,
{
    let (service, request) = *call.0;
    let (parts, body) = request.into_parts();
    match config.complete(&parts, completed) {
        Ok((delay, admission)) => {
            let call = PendingCall::new(service, Request::from_parts(parts, body));
            admit(delay, admission, call, Arc::clone(config))
        }
        Err(response) => State::Rejected {
            response: Some(response),
        },
    }
}

/// The next state of a request that passed.
fn admit<S, B>(
    delay: Duration,
    admission: HttpAdmission,
    call: PendingCall<S, B>,
    config: Arc<Config>,
) -> State<S, B, S::Future>
where
    S: Service<Request<B>> + Clone,
{
    let (mut service, mut request) = *call.0;
    insert_into_request(&config, &admission, request.extensions_mut());
    if !delay.is_zero() {
        // Dropping the ready service frees its capacity for other requests during the delay.
        let call = PendingCall::new(service.clone(), request);
        return State::delaying(delay, call, admission, config);
    }
    State::Calling {
        response: service.call(request),
        admission: Some(admission),
        config,
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Rejected { .. } => "ResponseFuture::Rejected",
            State::Resolving { .. } => "ResponseFuture::Resolving",
            State::Checking { .. } => "ResponseFuture::Checking",
            State::Delaying { .. } => "ResponseFuture::Delaying",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}
