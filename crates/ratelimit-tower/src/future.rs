//! The way of one request: checking, waiting, calling.

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
use ratelimit_core::adapter::{Asked, Asking};
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use crate::{body::ResponseBody, check::Passed, framework::Settings};

pin_project! {
    /// The answer of a [`RateLimit`](crate::RateLimit).
    #[must_use = "a request is made when its future is polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, F> {
        Refused { response: Option<Response<Bytes>> },
        Checking { asking: Asking, parked: Option<Parked<S, B>>, settings: Arc<Settings> },
        Waiting { sleep: Pin<Box<Sleep>>, parked: Option<Parked<S, B>>, passed: Option<Passed> },
        Calling { #[pin] response: F, passed: Option<Passed> },
    }
}

/// A service and the request it is going to get; in a box, so that futures which need neither
/// stay small.
pub(crate) struct Parked<S, B>(Box<(S, Request<B>)>);

impl<S, B> Parked<S, B> {
    pub(crate) fn new(service: S, request: Request<B>) -> Parked<S, B> {
        Parked(Box::new((service, request)))
    }
}

impl<S: Service<Request<B>>, B> ResponseFuture<S, B> {
    pub(crate) const fn refused(response: Response<Bytes>) -> Self {
        let response = Some(response);
        let state = State::Refused { response };
        ResponseFuture { state }
    }

    #[inline]
    pub(crate) const fn calling(response: S::Future, passed: Option<Passed>) -> Self {
        let state = State::Calling { response, passed };
        ResponseFuture { state }
    }

    pub(crate) const fn asking(
        asking: Asking,
        parked: Parked<S, B>,
        settings: Arc<Settings>,
    ) -> Self {
        let state = State::Checking {
            asking,
            parked: Some(parked),
            settings,
        };
        ResponseFuture { state }
    }

    pub(crate) fn waiting(delay: Duration, parked: Parked<S, B>, passed: Passed) -> Self {
        let state = State::waiting(delay, parked, passed);
        ResponseFuture { state }
    }
}

impl<S, B, F> State<S, B, F> {
    fn waiting(delay: Duration, parked: Parked<S, B>, passed: Passed) -> State<S, B, F> {
        State::Waiting {
            sleep: Box::pin(sleep(delay)),
            parked: Some(parked),
            passed: Some(passed),
        }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Calling { response, passed } => {
                    let lent = passed.as_mut().and_then(Passed::lend);
                    let polled = response.poll(cx);
                    drop(lent);
                    let response = ready!(polled)?;
                    return Poll::Ready(Ok(match passed {
                        Some(passed) => passed.end(response),
                        None => response.map(|body| ResponseBody::inner(body, None)),
                    }));
                }
                StateProj::Refused { response } => {
                    let response = response.take().expect("polled after completion");
                    return Poll::Ready(Ok(response.map(ResponseBody::ours)));
                }
                StateProj::Checking {
                    asking,
                    parked,
                    settings,
                } => {
                    let asked = ready!(Pin::new(asking).poll(cx));
                    let parked = parked.take().expect("taken once, when the check is done");
                    decided(asked, parked, settings)
                }
                StateProj::Waiting {
                    sleep,
                    parked,
                    passed,
                } => {
                    ready!(sleep.as_mut().poll(cx));
                    let (service, _) = &mut *parked.as_mut().expect("taken once, when ready").0;
                    ready!(service.poll_ready(cx))?;
                    let parked = parked.take().expect("taken once, when ready");
                    let (mut service, request) = *parked.0;
                    State::Calling {
                        response: service.call(request),
                        passed: passed.take(),
                    }
                }
            };
            state.set(next);
        }
    }
}

/// What follows from an answer of the limiter.
fn decided<S, B>(
    asked: Asked,
    parked: Parked<S, B>,
    settings: &Arc<Settings>,
) -> State<S, B, S::Future>
where
    S: Service<Request<B>> + Clone,
{
    let (mut service, request) = *parked.0;
    let (mut parts, body) = request.into_parts();
    let (delay, passage) = match settings.judge(&parts, asked) {
        Ok(passed) => passed,
        Err(answer) => {
            let response = Some(answer);
            return State::Refused { response };
        }
    };
    settings.own.share_inwards(&passage, &mut parts.extensions);
    let passed = Passed::new(passage, Arc::clone(settings));
    let request = Request::from_parts(parts, body);
    if !delay.is_zero() {
        // The ready service goes, and with it a place that others can use meanwhile.
        let parked = Parked::new(service.clone(), request);
        return State::waiting(delay, parked, passed);
    }
    State::Calling {
        response: service.call(request),
        passed: Some(passed),
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for ResponseFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Refused { .. } => "ResponseFuture::Refused",
            State::Checking { .. } => "ResponseFuture::Checking",
            State::Waiting { .. } => "ResponseFuture::Waiting",
            State::Calling { .. } => "ResponseFuture::Calling",
        })
    }
}
