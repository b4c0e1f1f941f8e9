//! The way of one outgoing request: checking, waiting, calling.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::Request;
use pin_project_lite::pin_project;
use ratelimit_core::{Check, Decision, Key, Outcome, Verdict};
use tokio::time::{Instant, Sleep, sleep};
use tower_service::Service;

use super::{OutgoingError, Settings};

pin_project! {
    /// The answer of an [`OutgoingLimit`](super::OutgoingLimit).
    #[must_use = "a request is made when its future is polled"]
    pub struct OutgoingFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S::Future, S::Error>,
        held: Option<Box<Held<S, B>>>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, E> {
        Failed { error: Option<OutgoingError<E>> },
        Checking { check: Check },
        Waiting { sleep: Pin<Box<Sleep>>, then: Then },
        Readying,
        Calling { #[pin] response: F },
    }
}

#[derive(Clone, Copy)]
enum Then {
    CheckAgain,
    Call,
}

struct Held<S, B> {
    service: S,
    request: Request<B>,
    key: Key,
    settings: Arc<Settings>,
    deadline: Option<Instant>,
}

impl<S: Service<Request<B>> + Clone, B> OutgoingFuture<S, B> {
    pub(super) fn failed(error: OutgoingError<S::Error>) -> Self {
        let error = Some(error);
        OutgoingFuture {
            state: State::Failed { error },
            held: None,
        }
    }

    pub(super) fn checking(
        service: S,
        request: Request<B>,
        key: Key,
        settings: &Arc<Settings>,
    ) -> Self {
        let held = Held {
            service,
            request,
            key,
            settings: Arc::clone(settings),
            deadline: None,
        };
        OutgoingFuture {
            state: State::Checking {
                check: held.check(),
            },
            held: Some(Box::new(held)),
        }
    }
}

impl<S: Clone, B> Held<S, B> {
    fn check(&self) -> Check {
        let settings = &self.settings;
        settings.limiter.check(&settings.policy, &self.key)
    }

    /// What follows from a verdict.
    fn decided<F, E>(&mut self, verdict: Verdict) -> Result<State<F, E>, OutgoingError<E>> {
        let is_allowed = verdict.is_allowed();
        let decision = match verdict {
            Verdict::Checked(decision) => decision,
            Verdict::Unchecked { decision, .. } => match decision {
                Some(decision) => decision,
                None if is_allowed => return Ok(State::Readying),
                None => return Err(OutgoingError::Unavailable),
            },
        };
        match decision.outcome {
            Outcome::Allowed { delay } if delay.is_zero() => Ok(State::Readying),
            Outcome::Allowed { delay } => self.wait(delay, Then::Call, decision),
            Outcome::Denied { retry_after } => self.wait(retry_after, Then::CheckAgain, decision),
            Outcome::Impossible => Err(OutgoingError::Denied(Box::new(decision))),
        }
    }

    fn wait<F, E>(
        &mut self,
        span: Duration,
        then: Then,
        decision: Decision,
    ) -> Result<State<F, E>, OutgoingError<E>> {
        let now = Instant::now();
        let deadline = self
            .deadline
            .or_else(|| now.checked_add(self.settings.longest_wait));
        self.deadline = deadline;
        // A wait beyond what the clock can tell has no deadline.
        if deadline.is_some_and(|deadline| span > deadline.saturating_duration_since(now)) {
            return Err(OutgoingError::Denied(Box::new(decision)));
        }
        // The ready service goes, and with it a place that others can use meanwhile.
        self.service = self.service.clone();
        Ok(State::Waiting {
            sleep: Box::pin(sleep(span)),
            then,
        })
    }
}

impl<S, B> Future for OutgoingFuture<S, B>
where
    S: Service<Request<B>> + Clone,
{
    type Output = Result<S::Response, OutgoingError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const HELD: &str = "held until the call";
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Failed { error } => {
                    return Poll::Ready(Err(error.take().expect("polled after completion")));
                }
                StateProj::Checking { check } => {
                    let verdict = ready!(Pin::new(check).poll(cx));
                    this.held.as_mut().expect(HELD).decided(verdict)?
                }
                StateProj::Waiting { sleep, then } => {
                    ready!(sleep.as_mut().poll(cx));
                    match then {
                        Then::Call => State::Readying,
                        Then::CheckAgain => State::Checking {
                            check: this.held.as_ref().expect(HELD).check(),
                        },
                    }
                }
                StateProj::Readying => {
                    let held = this.held.as_mut().expect(HELD);
                    ready!(held.service.poll_ready(cx)).map_err(OutgoingError::Inner)?;
                    let mut held = this.held.take().expect(HELD);
                    State::Calling {
                        response: held.service.call(held.request),
                    }
                }
                StateProj::Calling { response } => {
                    return response.poll(cx).map_err(OutgoingError::Inner);
                }
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Request<B>>, B> fmt::Debug for OutgoingFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Failed { .. } => "OutgoingFuture::Failed",
            State::Checking { .. } => "OutgoingFuture::Checking",
            State::Waiting { .. } => "OutgoingFuture::Waiting",
            State::Readying => "OutgoingFuture::Readying",
            State::Calling { .. } => "OutgoingFuture::Calling",
        })
    }
}
