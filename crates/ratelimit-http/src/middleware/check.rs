//! The rules by which settings decide a request, in the order of its way.

use std::{ptr, sync::atomic::Ordering, time::Duration};

use crate::policy::{RuleOutcome, RuleRequest};
use crate::{
    key::KeyError,
    metrics,
    middleware::{
        admission::Admission,
        config::{Config, DecisionSharing, ResponseTo},
        framework::{Framework, RequestHead},
        pending::{CompletedCheck, PendingCheck},
        rejection::{Rejection, RejectionReason},
    },
    response::LimitReport,
};
use ratelimit_core::{Decision, Hit, Key, Limiter, Policy, Verdict};

/// The way of a request, as far as it is known at once.
#[derive(Debug)]
pub enum CheckOutcome<F: Framework> {
    /// It goes on uncounted, and its response tells nothing.
    Bypassed,
    /// It goes no further.
    Rejected(F::Response),
    /// It goes on after this long.
    Admitted(Duration, Admission<F>),
    /// The limiter has yet to answer, and [`Config::complete`] to say what follows.
    Pending(PendingCheck),
}

impl<F: Framework> Config<F> {
    /// Decides a request with the budgets of `limiter`.
    #[inline]
    pub fn check(&self, limiter: &Limiter, request: &F::Request) -> CheckOutcome<F> {
        if self.is_bypassed(request) {
            return CheckOutcome::Bypassed;
        }
        let key = (self.key)(request);
        if self.flags.has_rules
            && let Some(outcome) = self.apply_rules(request, key.as_ref().ok())
        {
            return outcome;
        }
        let key = match key {
            Ok(key) => key,
            Err(why) => return self.reject_without_key(request, why),
        };
        let policy = self.policy_for(request, &key);
        let cost = self.cost_of(request);
        let keys;
        let hit = if self.flags.has_names {
            keys = match self.keys(request, key, policy) {
                Ok(keys) => keys,
                Err(why) => return self.reject_without_key(request, why),
            };
            Hit::for_keys(policy, &keys)
        } else {
            Hit::new(policy, &key)
        };
        let tier = (!ptr::eq(policy, self.policy.policy())).then(|| policy.clone());
        let hit = hit.cost(cost);
        if self.flags.needs_charge {
            return CheckOutcome::Pending(PendingCheck::charging(limiter.reserve(hit), tier));
        }
        let mut check = limiter.check_hit(hit);
        let ready = check.take_ready();
        let Some(verdict) = &ready else {
            return CheckOutcome::Pending(PendingCheck::checking(check, tier));
        };
        if !verdict.is_allowed() {
            return CheckOutcome::Rejected(self.deny(request, verdict, tier.as_ref()));
        }
        CheckOutcome::Admitted(delay(verdict), self.admission(request, ready, tier))
    }

    /// How long a request waits before it goes on, or the answer to one that does not pass.
    ///
    /// # Errors
    ///
    /// The answer.
    pub fn complete(
        &self,
        request: &F::Request,
        completed: CompletedCheck,
    ) -> Result<(Duration, Admission<F>), F::Response> {
        let verdict = completed.verdict;
        if !verdict.is_allowed() {
            return Err(self.deny(request, &verdict, completed.tier.as_ref()));
        }
        let delay = delay(&verdict);
        let mut admission = self.admission(request, Some(verdict), completed.tier);
        if let Some(charge) = completed.charge {
            admission.hold(request, charge);
        }
        Ok((delay, admission))
    }

    /// The policy of the request's tier.
    #[inline]
    fn policy_for(&self, request: &F::Request, key: &Key) -> &Policy {
        if !self.flags.has_tiers {
            return self.policy.policy();
        }
        let named = self.tier.as_ref().and_then(|tier| tier(request));
        match named {
            Some(tier) => self.policy.policy().tier(&tier),
            None => self.policy.policy().for_key(key),
        }
    }

    #[inline]
    fn cost_of(&self, request: &F::Request) -> u64 {
        match (&self.cost, self.flags.cost) {
            (Some(cost), _) => cost(request),
            (None, Some(cost)) => cost,
            (None, None) => self.policy.cost_of_request(&F::head(request)).get(),
        }
    }

    /// Whether nothing is denied, and nothing told.
    pub fn is_shadow(&self) -> bool {
        self.policy.policy().enforcement_percent() == 0
    }

    /// What the rules of the policy say, where they decide.
    fn apply_rules(&self, request: &F::Request, key: Option<&Key>) -> Option<CheckOutcome<F>> {
        // Rules about other things than keys hold for requests without one as well.
        let nobody;
        let key = if let Some(key) = key {
            key
        } else {
            nobody = Key::tagged("no-key", "none").ok()?;
            &nobody
        };
        let head = F::head(request);
        let mut facts = RuleRequest::new(key, head.path(), &head);
        facts.address = (self.client_address)(request)
            .ok()
            .map(|client| client.address);
        match self.policy.evaluate(&facts) {
            RuleOutcome::Limited => None,
            RuleOutcome::Exempt => Some(CheckOutcome::Bypassed),
            RuleOutcome::Blocked(blocked) => {
                let is_enforced = self.policy.policy().enforces(key);
                metrics::count_blocked(self.policy.name(), is_enforced);
                is_enforced.then(|| {
                    CheckOutcome::Rejected(self.reject(request, RejectionReason::Blocked(blocked)))
                })
            }
        }
    }

    #[inline]
    fn is_bypassed(&self, request: &F::Request) -> bool {
        self.is_preflight(request) || self.exempt.as_ref().is_some_and(|exempt| exempt(request))
    }

    #[inline]
    fn is_preflight(&self, request: &F::Request) -> bool {
        let head = F::head(request);
        !self.counts_preflight
            && head.method() == "OPTIONS"
            && head.has_header("origin")
            && head.has_header("access-control-request-method")
    }

    fn reject_without_key(&self, request: &F::Request, why: KeyError) -> CheckOutcome<F> {
        if why == KeyError::NoClientAddress {
            self.log_missing_client_once();
        }
        if self.is_shadow() {
            return CheckOutcome::Bypassed;
        }
        CheckOutcome::Rejected(self.reject(request, RejectionReason::NoKey(why)))
    }

    /// Logs once that a limit counts by a name that nobody gave a key.
    pub(crate) fn log_unknown_key_once(&self, name: &str) {
        if self.logged_unknown_key.swap(true, Ordering::Relaxed) {
            return;
        }
        let unknown = self.unknown(name);
        F::error(self.policy.name(), format_args!("{unknown}"));
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit: {unknown}");
        }
    }

    fn log_missing_client_once(&self) {
        if self.logged_no_client.swap(true, Ordering::Relaxed) {
            return;
        }
        let policy = self.policy.name();
        let help = self.missing_client_help;
        F::error(
            policy,
            format_args!("no request has a client address: {help}"),
        );
        // The one mistake that every newcomer makes, most of them without a subscriber.
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit {policy:?}: no request has a client address: {help}");
        }
    }

    fn deny(&self, request: &F::Request, verdict: &Verdict, tier: Option<&Policy>) -> F::Response {
        let Some(report) = LimitReport::of(verdict, self.policy.policy(), tier) else {
            return self.reject(request, RejectionReason::Unavailable);
        };
        let mut response = self.reject(request, RejectionReason::Denied(report.decision));
        self.headers
            .write_report(&report, F::headers_mut(&mut response));
        if self.sharing == DecisionSharing::RequestAndResponse {
            F::insert_into_response(report.decision, &mut response);
        }
        response
    }

    fn reject(&self, request: &F::Request, cause: RejectionReason<'_>) -> F::Response {
        let rejection = Rejection {
            request,
            policy: self.policy.policy(),
            cause,
        };
        let response = match self.custom_response(cause) {
            Some(custom) => custom(&rejection),
            None => rejection.response(),
        };
        rejection.complete(response)
    }

    fn custom_response(&self, cause: RejectionReason<'_>) -> Option<&ResponseTo<F>> {
        match cause {
            RejectionReason::Denied(_) | RejectionReason::Blocked(_) => self.on_denied.as_deref(),
            RejectionReason::Unavailable | RejectionReason::NoKey(_) => self.on_error.as_deref(),
        }
    }
}

/// How long a shaping limit that is in force asks to wait.
#[inline]
fn delay(verdict: &Verdict) -> Duration {
    let enforced = verdict.decision().filter(|decision| decision.is_enforced);
    enforced.map_or(Duration::ZERO, Decision::delay)
}
