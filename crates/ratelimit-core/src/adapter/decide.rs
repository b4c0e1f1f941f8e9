//! The rules by which settings decide a request, in the order of its way.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    ask::{Ask, Asked},
    framework::{Framework, RequestHead},
    no_key::NoKey,
    passage::Passage,
    rejection::{Cause, Rejection},
    settings::{AnswerTo, Preflight, Settings},
};
use crate::{
    decision::Decision,
    key::Key,
    limiter::Verdict,
    policy::Policy,
    rules::{Facts, Judged},
};

/// What a request's head alone says of its way.
#[derive(Debug)]
pub enum Start<A> {
    /// It goes on uncounted, and its response tells nothing.
    Pass,
    /// It goes no further.
    Refuse(A),
    /// The limiter is to be asked.
    Ask(Ask),
}

impl<F: Framework> Settings<F> {
    /// Whether a request passes or is refused by its head alone, and else what it spends.
    #[inline]
    pub fn start(&self, request: &F::Request) -> Start<F::Answer> {
        if self.passes(request) {
            return Start::Pass;
        }
        let key = (self.key)(request);
        if self.policy.has_rules()
            && let Some(start) = self.ruled(request, key.as_ref().ok())
        {
            return start;
        }
        match key.and_then(|key| self.question(request, key)) {
            Ok(ask) => Start::Ask(ask),
            Err(why) => self.without_key(request, why),
        }
    }

    #[inline]
    fn question(&self, request: &F::Request, key: Key) -> Result<Ask, NoKey> {
        let named = self.tier.as_ref().and_then(|tier| tier(request));
        let policy = match named {
            Some(tier) => self.policy.in_tier(&tier),
            None => self.policy.for_key(&key),
        };
        let cost = match &self.cost {
            Some(cost) => cost(request),
            None => policy.cost_told(&F::head(request)).get(),
        };
        Ok(Ask {
            keys: self.keys(request, key, policy)?,
            cost,
            tier: (!std::ptr::eq(policy, &raw const self.policy)).then(|| policy.clone()),
        })
    }

    /// How long a request waits before it goes on, or the answer to one that does not pass.
    ///
    /// # Errors
    ///
    /// The answer.
    #[inline]
    pub fn judge(
        &self,
        request: &F::Request,
        asked: Asked,
    ) -> Result<(Duration, Passage), F::Answer> {
        let verdict = &asked.verdict;
        if !verdict.is_allowed() {
            return Err(self.deny(request, verdict, asked.tier.as_ref()));
        }
        let enforced = verdict.decision().filter(|decision| decision.is_enforced);
        let delay = enforced.map_or(Duration::ZERO, Decision::delay);
        Ok((delay, self.passage(request, asked)))
    }

    /// Tells a verdict in the header fields of a response; of what only watches, no more than a mark.
    #[inline]
    pub(super) fn tell_verdict(&self, verdict: &Verdict, tier: Option<&Policy>, map: &mut F::Map) {
        if let Some(decision) = verdict.decision() {
            self.fields.mark(decision, map);
        }
        if let Verdict::Checked(decision) = verdict
            && decision.is_enforced
        {
            self.fields.write(&self.policy, tier, decision, map);
        }
    }

    /// Whether nothing is denied, and nothing told.
    pub fn is_shadow(&self) -> bool {
        self.policy.enforced_percent() == 0
    }

    /// What the rules of the policy say, where they decide.
    fn ruled(&self, request: &F::Request, key: Option<&Key>) -> Option<Start<F::Answer>> {
        // Rules about other things than keys hold for requests without one as well.
        let nobody;
        let key = if let Some(key) = key {
            key
        } else {
            nobody = Key::tagged("no-key", "none").ok()?;
            &nobody
        };
        let head = F::head(request);
        let mut facts = Facts::new(key, head.path(), &head);
        facts.address = (self.whereabouts)(request)
            .ok()
            .map(|client| client.address);
        match self.policy.judged(&facts) {
            Judged::Limited => None,
            Judged::Exempt => Some(Start::Pass),
            Judged::Blocked(blocked) => {
                let is_enforced = self.policy.enforces(key);
                self.policy.meters().blocked(is_enforced);
                is_enforced.then(|| Start::Refuse(self.answer(request, Cause::Blocked(blocked))))
            }
        }
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

    /// Logs once that a limit counts by a name that nobody gave a key.
    pub(super) fn tell_unknown_once(&self, name: &str) {
        if self.told_unknown_key.swap(true, Ordering::Relaxed) {
            return;
        }
        let unknown = self.unknown(name);
        F::error(self.policy.name(), format_args!("{unknown}"));
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit: {unknown}");
        }
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

    fn deny(&self, request: &F::Request, verdict: &Verdict, tier: Option<&Policy>) -> F::Answer {
        let Some(decision) = verdict.decision() else {
            return self.answer(request, Cause::Unavailable);
        };
        let mut answer = self.answer(request, Cause::Denied(decision));
        self.tell_verdict(verdict, tier, F::fields(&mut answer));
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
            Cause::Denied(_) | Cause::Blocked(_) => self.on_denied.as_deref(),
            Cause::Unavailable | Cause::NoKey(_) => self.on_failed.as_deref(),
        }
    }
}
