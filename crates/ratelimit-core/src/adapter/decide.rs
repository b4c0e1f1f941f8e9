//! The rules by which settings decide a request, in the order of its way.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    framework::{Framework, RequestHead},
    no_key::NoKey,
    rejection::{Cause, Rejection},
    settings::{AnswerTo, Mode, Preflight, Settings},
};
use crate::{decision::Decision, key::Key, limiter::Verdict};

/// What a request's head alone says of its way.
#[derive(Debug)]
pub enum Start<A> {
    /// It goes on uncounted, and its response tells nothing.
    Pass,
    /// It goes no further.
    Refuse(A),
    /// The limiter is to be asked.
    Ask {
        /// Whose budget is spent.
        key: Key,
        /// How much of it.
        cost: u64,
    },
}

impl<F: Framework> Settings<F> {
    /// Whether a request passes or is refused by its head alone, and else what it spends.
    #[inline]
    pub fn start(&self, request: &F::Request) -> Start<F::Answer> {
        if self.passes(request) {
            return Start::Pass;
        }
        match (self.key)(request) {
            Ok(key) => {
                let cost = match &self.cost {
                    Some(cost) => cost(request),
                    None => self.policy.cost().get(),
                };
                Start::Ask { key, cost }
            }
            Err(why) => self.without_key(request, why),
        }
    }

    /// How long a request waits before it goes on, or the answer to one that does not pass.
    ///
    /// # Errors
    ///
    /// The answer.
    #[inline]
    pub fn judge(&self, request: &F::Request, verdict: &Verdict) -> Result<Duration, F::Answer> {
        if self.is_shadow() {
            return Ok(Duration::ZERO);
        }
        if !verdict.is_allowed() {
            return Err(self.deny(request, verdict));
        }
        Ok(verdict.decision().map_or(Duration::ZERO, Decision::delay))
    }

    /// Tells the verdict in the header fields of a response.
    #[inline]
    pub fn tell(&self, verdict: &Verdict, map: &mut F::Map) {
        if let Verdict::Checked(decision) = verdict
            && !self.is_shadow()
        {
            self.fields.write(&self.policy, decision, map);
        }
    }

    /// Whether nothing is denied, and nothing told.
    pub fn is_shadow(&self) -> bool {
        self.mode == Mode::Shadow
    }

    fn passes(&self, request: &F::Request) -> bool {
        self.is_preflight(request) || self.exempt.as_ref().is_some_and(|exempt| exempt(request))
    }

    #[inline]
    fn is_preflight(&self, request: &F::Request) -> bool {
        let head = F::head(request);
        self.preflight == Preflight::Passed
            && head.method() == "OPTIONS"
            && head.has_header("origin")
            && head.has_header("access-control-request-method")
    }

    fn without_key(&self, request: &F::Request, why: NoKey) -> Start<F::Answer> {
        if why == NoKey::NoClient {
            self.advise_once();
        }
        if self.is_shadow() {
            return Start::Pass;
        }
        Start::Refuse(self.answer(request, Cause::NoKey(why)))
    }

    fn advise_once(&self) {
        if self.told_no_client.swap(true, Ordering::Relaxed) {
            return;
        }
        let policy = self.policy.name();
        let advice = self.advice;
        F::error(
            policy,
            format_args!("no request has a client address: {advice}"),
        );
        // The one mistake that every newcomer makes, most of them without a subscriber.
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit {policy:?}: no request has a client address: {advice}");
        }
    }

    fn deny(&self, request: &F::Request, verdict: &Verdict) -> F::Answer {
        let Some(decision) = verdict.decision() else {
            return self.answer(request, Cause::Unavailable);
        };
        let mut answer = self.answer(request, Cause::Denied(decision));
        self.tell(verdict, F::fields(&mut answer));
        F::share(&self.own, decision, &mut answer);
        answer
    }

    fn answer(&self, request: &F::Request, cause: Cause<'_>) -> F::Answer {
        let rejection = Rejection {
            request,
            policy: &self.policy,
            cause,
        };
        let answer = match self.custom(cause) {
            Some(custom) => custom(&rejection),
            None => rejection.response(),
        };
        rejection.complete(answer)
    }

    fn custom(&self, cause: Cause<'_>) -> Option<&AnswerTo<F>> {
        match cause {
            Cause::Denied(_) => self.on_denied.as_deref(),
            Cause::Unavailable | Cause::NoKey(_) => self.on_failed.as_deref(),
        }
    }
}
