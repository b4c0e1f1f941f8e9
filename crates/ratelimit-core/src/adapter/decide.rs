//! The rules by which settings decide a request, in the order of its way.

use std::{ptr, sync::atomic::Ordering, time::Duration};

use crate::adapter::{
    ask::{Asked, Asking},
    framework::{Framework, RequestHead},
    no_key::NoKey,
    passage::Passage,
    rejection::{Cause, Rejection},
    settings::{AnswerTo, Preflight, Settings},
    telling::Telling,
};
use crate::{
    decision::Decision,
    key::Key,
    limiter::{Limiter, Verdict},
    policy::Policy,
    rules::{Facts, Judged},
    store::Hit,
};

/// The way of a request, as far as it is known at once.
#[derive(Debug)]
pub enum Way<F: Framework> {
    /// It goes on uncounted, and its response tells nothing.
    Pass,
    /// It goes no further.
    Refuse(F::Answer),
    /// It goes on after this long.
    Go(Duration, Passage<F>),
    /// The limiter has yet to answer, and [`Settings::judge`] to say what follows.
    Ask(Asking),
}

impl<F: Framework> Settings<F> {
    /// Decides a request with the budgets of `limiter`.
    #[inline]
    pub fn decide(&self, limiter: &Limiter, request: &F::Request) -> Way<F> {
        if self.passes(request) {
            return Way::Pass;
        }
        let key = (self.key)(request);
        if self.terms.has_rules
            && let Some(way) = self.ruled(request, key.as_ref().ok())
        {
            return way;
        }
        let key = match key {
            Ok(key) => key,
            Err(why) => return self.without_key(request, why),
        };
        let policy = self.policy_for(request, &key);
        let cost = self.cost_of(request, policy);
        let keys;
        let hit = if self.terms.has_names {
            keys = match self.keys(request, key, policy) {
                Ok(keys) => keys,
                Err(why) => return self.without_key(request, why),
            };
            Hit::for_keys(policy, &keys)
        } else {
            Hit::new(policy, &key)
        };
        let tier = (!ptr::eq(policy, &raw const self.policy)).then(|| policy.clone());
        let hit = hit.cost(cost);
        if self.terms.needs_charge {
            return Way::Ask(Asking::charging(limiter.reserve(hit), tier));
        }
        let mut check = limiter.check_hit(hit);
        let ready = check.take_ready();
        let Some(verdict) = &ready else {
            return Way::Ask(Asking::checking(check, tier));
        };
        if !verdict.is_allowed() {
            return Way::Refuse(self.deny(request, verdict, tier.as_ref()));
        }
        Way::Go(delay(verdict), self.passage(request, ready, tier))
    }

    /// How long a request waits before it goes on, or the answer to one that does not pass.
    ///
    /// # Errors
    ///
    /// The answer.
    pub fn judge(
        &self,
        request: &F::Request,
        asked: Asked,
    ) -> Result<(Duration, Passage<F>), F::Answer> {
        let verdict = asked.verdict;
        if !verdict.is_allowed() {
            return Err(self.deny(request, &verdict, asked.tier.as_ref()));
        }
        let delay = delay(&verdict);
        let mut passage = self.passage(request, Some(verdict), asked.tier);
        if let Some(charge) = asked.charge {
            passage.hold(request, charge);
        }
        Ok((delay, passage))
    }

    /// The policy of the request's tier.
    #[inline]
    fn policy_for(&self, request: &F::Request, key: &Key) -> &Policy {
        if !self.terms.has_tiers {
            return &self.policy;
        }
        let named = self.tier.as_ref().and_then(|tier| tier(request));
        match named {
            Some(tier) => self.policy.tier(&tier),
            None => self.policy.for_key(key),
        }
    }

    #[inline]
    fn cost_of(&self, request: &F::Request, policy: &Policy) -> u64 {
        match (&self.cost, self.terms.cost) {
            (Some(cost), _) => cost(request),
            (None, Some(cost)) if !self.terms.has_tiers => cost,
            _ => policy.cost_told(&F::head(request)).get(),
        }
    }

    /// Whether nothing is denied, and nothing told.
    pub fn is_shadow(&self) -> bool {
        self.policy.enforcement_percent() == 0
    }

    /// What the rules of the policy say, where they decide.
    fn ruled(&self, request: &F::Request, key: Option<&Key>) -> Option<Way<F>> {
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
            Judged::Exempt => Some(Way::Pass),
            Judged::Blocked(blocked) => {
                let is_enforced = self.policy.enforces(key);
                self.policy.metrics().count_blocked(is_enforced);
                is_enforced.then(|| Way::Refuse(self.answer(request, Cause::Blocked(blocked))))
            }
        }
    }

    #[inline]
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

    fn without_key(&self, request: &F::Request, why: NoKey) -> Way<F> {
        if why == NoKey::NoClient {
            self.advise_once();
        }
        if self.is_shadow() {
            return Way::Pass;
        }
        Way::Refuse(self.answer(request, Cause::NoKey(why)))
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
        let Some(telling) = Telling::of(verdict, &self.policy, tier) else {
            return self.answer(request, Cause::Unavailable);
        };
        let mut answer = self.answer(request, Cause::Denied(telling.decision));
        self.fields.tell(&telling, F::fields(&mut answer));
        F::share(&self.own, telling.decision, &mut answer);
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

/// How long a shaping limit that is in force asks to wait.
#[inline]
fn delay(verdict: &Verdict) -> Duration {
    let enforced = verdict.decision().filter(|decision| decision.is_enforced);
    enforced.map_or(Duration::ZERO, Decision::delay)
}
