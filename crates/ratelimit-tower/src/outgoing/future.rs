//! The future of an outgoing request: checking, waiting, calling.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response};
use pin_project_lite::pin_project;
use ratelimit_core::{Check, Decision, Key, Outcome, Reservation, Reserve, Verdict, store::Hit};
use tokio::time::{Instant, Sleep, sleep};
use tower_service::Service;

use super::{OutgoingBody, OutgoingConfig, OutgoingError};

pin_project! {
    /// The response future of an [`OutgoingLimit`](super::OutgoingLimit).
    ///
    /// Dropping it releases the slot of the request. The charge stays if the request was checked.
    #[must_use = "a request is made when its future is polled"]
    pub struct OutgoingFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S::Future, S::Error>,
        pending: Option<Box<PendingRequest<S, B>>>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, E> {
        Failed { error: Option<OutgoingError<E>> },
        Checking { checking: Checking },
        Waiting { sleep: Pin<Box<Sleep>>, then: AfterWait },
        Readying,
        Calling { #[pin] response: F, slot: Option<Box<Reservation>> },
    }
}

/// A check of the budget. Under a concurrency limit it reserves, because the slot has to be released.
enum Checking {
    Check(Check),
    Reserve(Box<Reserve>),
}

impl Checking {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Verdict, Option<Reservation>)> {
        match self {
            Checking::Check(check) => Pin::new(check).poll(cx).map(|verdict| (verdict, None)),
            Checking::Reserve(reserve) => Pin::new(&mut **reserve).poll(cx),
        }
    }
}

/// The step after a wait.
#[derive(Clone, Copy)]
enum AfterWait {
    CheckAgain,
    Call,
}

/// A request that is not sent yet, and its client.
struct PendingRequest<S, B> {
    service: S,
    request: Request<B>,
    key: Key,
    config: Arc<OutgoingConfig>,
    deadline: Option<Instant>,
    /// The slot of a request that passed and is not sent yet.
    slot: Option<Box<Reservation>>,
}

impl<S: Service<Request<B>> + Clone, B> OutgoingFuture<S, B> {
    pub(super) fn failed(error: OutgoingError<S::Error>) -> Self {
        let error = Some(error);
        OutgoingFuture {
            state: State::Failed { error },
            pending: None,
        }
    }

    pub(super) fn checking(
        service: S,
        request: Request<B>,
        key: Key,
        config: &Arc<OutgoingConfig>,
    ) -> Self {
        let pending = PendingRequest {
            service,
            request,
            key,
            config: Arc::clone(config),
            deadline: None,
            slot: None,
        };
        OutgoingFuture {
            state: State::Checking {
                checking: pending.check(),
            },
            pending: Some(Box::new(pending)),
        }
    }
}

impl<S: Clone, B> PendingRequest<S, B> {
    fn check(&self) -> Checking {
        let OutgoingConfig {
            limiter, policy, ..
        } = &*self.config;
        let tier = policy.for_key(&self.key);
        let hit = Hit::new(tier, &self.key).cost(policy.cost().get());
        if tier.has_concurrency_limit() {
            return Checking::Reserve(Box::new(limiter.reserve(hit)));
        }
        Checking::Check(limiter.check_hit(hit))
    }

    /// The next state after a verdict.
    fn after_check<F, E>(&mut self, verdict: Verdict) -> Result<State<F, E>, OutgoingError<E>> {
        let is_allowed = verdict.is_allowed();
        let decision = match verdict {
            Verdict::Checked(decision) => decision,
            Verdict::Unchecked { decision, .. } => match decision {
                Some(decision) => decision,
                None if is_allowed => return Ok(State::Readying),
                None => return Err(OutgoingError::Unavailable),
            },
            // A verdict of a later release, without a decision that this one can read.
            _ if is_allowed => return Ok(State::Readying),
            _ => return Err(OutgoingError::Unavailable),
        };
        if !decision.is_enforced {
            return Ok(State::Readying);
        }
        match decision.outcome {
            Outcome::Allowed { delay } if delay.is_zero() => Ok(State::Readying),
            Outcome::Allowed { delay } => self.wait(delay, AfterWait::Call, decision),
            Outcome::Denied { retry_after } => {
                self.wait(retry_after, AfterWait::CheckAgain, decision)
            }
            // Impossible, or an outcome of a later release.
            _ => Err(OutgoingError::Denied(Box::new(decision))),
        }
    }

    /// Waits for `span`, or fails if that exceeds the maximum wait.
    fn wait<F, E>(
        &mut self,
        span: Duration,
        then: AfterWait,
        decision: Decision,
    ) -> Result<State<F, E>, OutgoingError<E>> {
        let now = Instant::now();
        let deadline = self
            .deadline
            .or_else(|| now.checked_add(self.config.max_wait));
        self.deadline = deadline;
        // A maximum wait beyond the range of the clock sets no deadline.
        if deadline.is_some_and(|deadline| span > deadline.saturating_duration_since(now)) {
            return Err(OutgoingError::Denied(Box::new(decision)));
        }
        // Dropping the ready service frees its capacity for other requests during the wait.
        self.service = self.service.clone();
        Ok(State::Waiting {
            sleep: Box::pin(sleep(span)),
            then,
        })
    }
}

impl<S, B, R> Future for OutgoingFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Output = Result<Response<OutgoingBody<R>>, OutgoingError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const KEPT: &str = "kept until the call";
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Failed { error } => {
                    return Poll::Ready(Err(error.take().expect("polled after completion")));
                }
                StateProj::Checking { checking } => {
                    let (verdict, reservation) = ready!(checking.poll(cx));
                    let pending = this.pending.as_mut().expect(KEPT);
                    pending.slot = reservation.map(Box::new);
                    match pending.after_check(verdict) {
                        Ok(next) => next,
                        Err(error) => {
                            *this.pending = None;
                            return Poll::Ready(Err(error));
                        }
                    }
                }
                StateProj::Waiting { sleep, then } => {
                    ready!(sleep.as_mut().poll(cx));
                    match then {
                        AfterWait::Call => State::Readying,
                        AfterWait::CheckAgain => State::Checking {
                            checking: this.pending.as_ref().expect(KEPT).check(),
                        },
                    }
                }
                StateProj::Readying => {
                    let pending = this.pending.as_mut().expect(KEPT);
                    let ready = ready!(pending.service.poll_ready(cx));
                    let mut pending = this.pending.take().expect(KEPT);
                    ready.map_err(OutgoingError::Inner)?;
                    State::Calling {
                        response: pending.service.call(pending.request),
                        slot: pending.slot,
                    }
                }
                StateProj::Calling { response, slot } => {
                    let response = ready!(response.poll(cx));
                    let slot = slot.take();
                    let response = response.map_err(OutgoingError::Inner)?;
                    return Poll::Ready(Ok(response.map(|body| OutgoingBody::new(body, slot))));
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
