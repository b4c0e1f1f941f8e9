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
use ratelimit_core::adapter::{Asked, Asking, Passage};
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use crate::{
    body::ResponseBody,
    framework::{Settings, finish},
};

pin_project! {
    /// The answer of a [`RateLimit`](crate::RateLimit).
    #[must_use = "a request is made when its future is polled"]
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future>,
        settings: Arc<Settings>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B, F> {
        Refused { response: Option<Response<Bytes>> },
        Checking { asking: Asking, held: Option<Parked<S, B>> },
        Waiting { sleep: Pin<Box<Sleep>>, held: Option<Parked<S, B>>, passage: Option<Passage> },
        Calling { #[pin] response: F, passage: Option<Passage> },
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
    pub(crate) fn refused(response: Response<Bytes>, settings: &Arc<Settings>) -> Self {
        let response = Some(response);
        Self::of(State::Refused { response }, settings)
    }

    pub(crate) fn passing(response: S::Future, settings: &Arc<Settings>) -> Self {
        let passage = None;
        Self::of(State::Calling { response, passage }, settings)
    }

    pub(crate) fn calling(response: S::Future, passage: Passage, settings: &Arc<Settings>) -> Self {
        let passage = Some(passage);
        Self::of(State::Calling { response, passage }, settings)
    }

    pub(crate) fn asking(asking: Asking, held: Parked<S, B>, settings: &Arc<Settings>) -> Self {
        let held = Some(held);
        Self::of(State::Checking { asking, held }, settings)
    }

    pub(crate) fn waiting(
        delay: Duration,
        held: Parked<S, B>,
        passage: Passage,
        settings: &Arc<Settings>,
    ) -> Self {
        Self::of(State::waiting(delay, held, passage), settings)
    }

    fn of(state: State<S, B, S::Future>, settings: &Arc<Settings>) -> Self {
        ResponseFuture {
            state,
            settings: Arc::clone(settings),
        }
    }
}

impl<S, B, F> State<S, B, F> {
    fn waiting(delay: Duration, held: Parked<S, B>, passage: Passage) -> State<S, B, F> {
        State::Waiting {
            sleep: Box::pin(sleep(delay)),
            held: Some(held),
            passage: Some(passage),
        }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Refused { response } => {
                    let response = response.take().expect("polled after completion");
                    return Poll::Ready(Ok(response.map(ResponseBody::ours)));
                }
                StateProj::Checking { asking, held } => {
                    let asked = ready!(Pin::new(asking).poll(cx));
                    let held = held.take().expect("taken once, when the check is done");
                    decided(asked, held, this.settings)
                }
                StateProj::Waiting {
                    sleep,
                    held,
                    passage,
                } => {
                    ready!(sleep.as_mut().poll(cx));
                    let (service, _) = &mut *held.as_mut().expect("taken once, when ready").0;
                    ready!(service.poll_ready(cx))?;
                    let held = held.take().expect("taken once, when ready");
                    let (mut service, request) = *held.0;
                    State::Calling {
                        response: service.call(request),
                        passage: passage.take(),
                    }
                }
                StateProj::Calling { response, passage } => {
                    let response = ready!(response.poll(cx))?;
                    return Poll::Ready(Ok(match passage.take() {
                        Some(passage) => finish(this.settings, passage, response),
                        None => response.map(|body| ResponseBody::inner(body, None)),
                    }));
                }
            };
            this.state.set(next);
        }
    }
}

/// What follows from an answer of the limiter.
fn decided<S, B>(asked: Asked, held: Parked<S, B>, settings: &Settings) -> State<S, B, S::Future>
where
    S: Service<Request<B>> + Clone,
{
    let (mut service, request) = *held.0;
    let (mut parts, body) = request.into_parts();
    let (delay, passage) = match settings.judge(&parts, asked) {
        Ok(passed) => passed,
        Err(answer) => {
            let response = Some(answer);
            return State::Refused { response };
        }
    };
    settings.own.share_inwards(&passage, &mut parts.extensions);
    let request = Request::from_parts(parts, body);
    if !delay.is_zero() {
        // The ready service goes, and with it a place that others can use meanwhile.
        let held = Parked::new(service.clone(), request);
        return State::waiting(delay, held, passage);
    }
    State::Calling {
        response: service.call(request),
        passage: Some(passage),
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
