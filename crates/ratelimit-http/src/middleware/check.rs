//! The decision about a request, step by step.

use std::{
    ptr,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

#[cfg(feature = "tokio")]
use crate::middleware::tier_resolver::{PendingTier, ResolvedTier, TierLookup};
use crate::policy::{RuleOutcome, RuleRequest};
use crate::{
    framework::{Framework, RequestHead},
    key::KeyError,
    metrics,
    middleware::{
        admitted_request::AdmittedRequest,
        config::{Config, DecisionSharing, ResponseTo},
        pending::{CompletedCheck, PendingCheck},
        rejection::{Rejection, RejectionReason},
    },
    response::LimitReport,
};
use ratelimit_core::{Decision, Key, Limiter, Policy, Verdict, store::Hit};

/// The outcome of [`Config::check`], as far as it is known without waiting.
///
/// It is exhaustive on purpose: an adapter that ignores an outcome would serve a request that is not limited, so a new
/// variant must fail to compile.
#[derive(Debug)]
pub enum CheckOutcome<F: Framework> {
    /// The request is served uncounted: it is exempt, or a preflight request of CORS. Its response
    /// gets no rate limit headers.
    Bypassed,
    /// The request is not served; this is its response.
    Rejected(F::Response),
    /// The request is served after this delay, which is zero unless a shaping limit asks for it.
    Admitted(Duration, AdmittedRequest<F>),
    /// The tier is being looked up. Await it and pass it to [`Config::check_resolved`].
    #[cfg(feature = "tokio")]
    Resolving(PendingTier),
    /// The limiter's answer is pending. Await it and pass it to [`Config::complete`].
    Pending(PendingCheck),
}

impl<F: Framework> Config<F> {
    /// Decides a request with the budgets of `limiter`. It charges the request.
    ///
    /// The steps, in this order:
    ///
    /// 1. Preflight requests of CORS and requests that `exempt_when` selects bypass the limit.
    /// 2. The key is extracted. Rules about other things than keys apply even if it is missing.
    /// 3. Block rules reject, exempt rules bypass.
    /// 4. A request without a key is rejected, unless every limit counts by another key, as `by global`. In
    ///    shadow mode it bypasses the limit.
    /// 5. The tier and the cost are determined, and the limiter is asked. The request is reserved
    ///    rather than charged if its body or its response can change the charge.
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
        let (key, key_error) = match key {
            Ok(key) => (key, None),
            Err(error) => match self.stand_in_key(error) {
                Some(key) => (key, Some(error)),
                None => return self.reject_without_key(request, error),
            },
        };
        let mut policy = self.policy.policy();
        if self.flags.has_tiers {
            let tier = self.tier.as_ref().and_then(|tier| tier(request));
            #[cfg(feature = "tokio")]
            let tier = match (tier, &self.tier_resolver) {
                (None, Some(resolver)) => match resolver.resolve(&key) {
                    TierLookup::Known(tier) => tier,
                    TierLookup::Pending(found) => {
                        return CheckOutcome::Resolving(PendingTier::new(found, key, key_error));
                    }
                },
                (named, _) => named,
            };
            policy = self.policy_in_tier(&key, tier.as_deref());
        }
        self.check_policy(limiter, request, key, key_error, policy)
    }

    /// Continues with the tier that was looked up, as [`check`](Self::check) does from step 5 on.
    ///
    /// Nothing was spent before. The key that `check` found is used, so that the request is not read twice.
    #[cfg(feature = "tokio")]
    pub fn check_resolved(
        &self,
        limiter: &Limiter,
        request: &F::Request,
        resolved: ResolvedTier,
    ) -> CheckOutcome<F> {
        let ResolvedTier {
            tier,
            key,
            key_error,
        } = resolved;
        let policy = self.policy_in_tier(&key, tier.as_deref());
        self.check_policy(limiter, request, key, key_error, policy)
    }

    /// Decides a request and waits for everything that the decision needs: its tier and the limiter's answer.
    ///
    /// It is [`check`](Self::check), [`check_resolved`](Self::check_resolved) and
    /// [`complete`](Self::complete) for adapters whose checks are asynchronous functions. It returns the delay
    /// before the request is served and its admission, or `None` if the request bypasses the limit.
    ///
    /// # Errors
    ///
    /// The response to a request that is not served.
    #[cfg(feature = "tokio")]
    pub async fn decide(
        &self,
        limiter: &Limiter,
        request: &F::Request,
    ) -> Result<Option<(Duration, AdmittedRequest<F>)>, F::Response> {
        let mut outcome = self.check(limiter, request);
        loop {
            return match outcome {
                CheckOutcome::Bypassed => Ok(None),
                CheckOutcome::Rejected(response) => Err(response),
                CheckOutcome::Admitted(delay, admission) => Ok(Some((delay, admission))),
                CheckOutcome::Pending(check) => self.complete(request, check.await).map(Some),
                CheckOutcome::Resolving(tier) => {
                    outcome = self.check_resolved(limiter, request, tier.await);
                    continue;
                }
            };
        }
    }

    /// Determines the cost, and asks the limiter. `policy` is that of the request's tier.
    #[inline]
    fn check_policy(
        &self,
        limiter: &Limiter,
        request: &F::Request,
        key: Key,
        key_error: Option<KeyError>,
        policy: &Policy,
    ) -> CheckOutcome<F> {
        let cost = self.cost_of(request);
        let keys;
        let hit = if self.flags.has_named_keys {
            keys = match self.keys(request, key, policy) {
                Ok(keys) => keys,
                Err(error) => return self.reject_without_key(request, error),
            };
            let counts_by_primary = |name| keys.get(name) == keys.primary();
            if let Some(error) = key_error
                && policy.key_names().any(counts_by_primary)
            {
                return self.reject_without_key(request, error);
            }
            Hit::for_keys(policy, &keys)
        } else {
            Hit::new(policy, &key)
        };
        let tier = (!ptr::eq(policy, self.policy.policy())).then(|| policy.clone());
        let hit = hit.cost(cost);
        if self.flags.needs_reservation || self.body_count(request).is_some() {
            return CheckOutcome::Pending(PendingCheck::reserving(limiter.reserve(hit), tier));
        }
        let mut check = limiter.check_hit(hit);
        let ready = check.take_ready();
        let Some(verdict) = &ready else {
            return CheckOutcome::Pending(PendingCheck::checking(check, tier));
        };
        if !verdict.is_allowed() {
            return CheckOutcome::Rejected(self.deny(request, verdict, tier.as_ref()));
        }
        let (delay, guard) = (delay(verdict), self.enter(request));
        CheckOutcome::Admitted(delay, AdmittedRequest::new(ready, tier, guard))
    }

    /// The main key of a request that has none, if no limit counts by the main key, as in `10/s by global`.
    fn stand_in_key(&self, error: KeyError) -> Option<Key> {
        let is_absent = matches!(error, KeyError::Missing | KeyError::NoClientAddress);
        let is_unused = is_absent && !self.flags.counts_by_main_key;
        is_unused
            .then(|| Key::tagged("no-key", "none").ok())
            .flatten()
    }

    /// Continues with the limiter's answer: returns the delay before the request is served, and its
    /// admission.
    ///
    /// # Errors
    ///
    /// The response to a request that is denied, or that cannot be decided while the failure mode is
    /// closed.
    pub fn complete(
        &self,
        request: &F::Request,
        completed: CompletedCheck,
    ) -> Result<(Duration, AdmittedRequest<F>), F::Response> {
        let verdict = completed.verdict;
        if !verdict.is_allowed() {
            return Err(self.deny(request, &verdict, completed.tier.as_ref()));
        }
        let delay = delay(&verdict);
        let guard = self.enter(request);
        let mut admission = AdmittedRequest::new(Some(verdict), completed.tier, guard);
        if let Some(reservation) = completed.reservation {
            admission.hold(request, reservation);
            if let Some(count) = self.body_count(request) {
                admission.count_body(&count);
            }
        }
        Ok((delay, admission))
    }

    /// The policy of a tier. Without one the policy chooses by the key.
    fn policy_in_tier(&self, key: &Key, tier: Option<&str>) -> &Policy {
        let policy = self.policy.policy();
        match tier {
            Some(tier) => policy.tier(tier),
            None => policy.for_key(key),
        }
    }

    /// Whether the policy is in shadow mode: it denies nothing and writes no headers.
    fn is_shadow(&self) -> bool {
        self.policy.policy().enforcement_percent() == 0
    }

    /// The outcome of the policy's rules, or `None` if the limits decide.
    fn apply_rules(&self, request: &F::Request, key: Option<&Key>) -> Option<CheckOutcome<F>> {
        // Rules about addresses, headers and paths apply to requests without a key as well.
        let no_key;
        let key = if let Some(key) = key {
            key
        } else {
            no_key = Key::tagged("no-key", "none").ok()?;
            &no_key
        };
        let head = F::head(request);
        let mut rule_request = RuleRequest::new(key, head.path(), &head);
        rule_request.address = (self.client_address)(request)
            .ok()
            .map(|client| client.address);
        match self.policy.evaluate(&rule_request) {
            RuleOutcome::Limited => None,
            RuleOutcome::Exempt => Some(CheckOutcome::Bypassed),
            RuleOutcome::Blocked(status) => {
                let is_enforced = self.policy.policy().enforces(key);
                metrics::count_blocked(self.policy.name(), is_enforced);
                is_enforced.then(|| {
                    CheckOutcome::Rejected(self.reject(request, RejectionReason::Blocked(status)))
                })
            }
        }
    }

    /// Whether the request bypasses the limit before its key is extracted.
    #[inline]
    fn is_bypassed(&self, request: &F::Request) -> bool {
        self.is_preflight(request) || self.exempt.as_ref().is_some_and(|exempt| exempt(request))
    }

    /// Whether this is a preflight request of CORS that is not counted.
    #[inline]
    fn is_preflight(&self, request: &F::Request) -> bool {
        let head = F::head(request);
        !self.counts_preflight
            && head.method() == "OPTIONS"
            && head.has_header("origin")
            && head.has_header("access-control-request-method")
    }

    /// The outcome for a request without a key.
    ///
    /// A policy in shadow mode rejects nothing, so the request bypasses it.
    fn reject_without_key(&self, request: &F::Request, error: KeyError) -> CheckOutcome<F> {
        let is_rejected = !self.is_shadow();
        metrics::count_without_key(self.policy.name(), error, is_rejected);
        match error {
            KeyError::NoClientAddress => self.log_missing_client_once(),
            KeyError::UnknownName => {}
            _ => self.log_without_key(error, is_rejected),
        }
        if !is_rejected {
            return CheckOutcome::Bypassed;
        }
        CheckOutcome::Rejected(self.reject(request, RejectionReason::NoKey(error)))
    }

    /// Logs requests without a usable key: the first, then one line a minute.
    fn log_without_key(&self, error: KeyError, is_rejected: bool) {
        let Some(requests) = self.key_error_log.record(Instant::now()) else {
            return;
        };
        let effect = if is_rejected {
            "they got 400"
        } else {
            "they were not counted, and get 400 when the policy is enforced"
        };
        tracing::warn!(
            policy = self.policy.name(),
            reason = error.as_str(),
            requests,
            "requests without a usable key, {error}: {effect}; if such requests are legitimate, give them another key \
             with or(...), or one budget with or_shared(...)"
        );
    }

    /// Logs once that a limit counts by a name for which the layer has no key.
    ///
    /// A policy that an attribute names in a registry can contain such a limit.
    pub(crate) fn log_unknown_key_once(&self, name: &str) {
        if self.logged_unknown_key.swap(true, Ordering::Relaxed) {
            return;
        }
        self.log_error(format_args!("{}", self.unknown(name)));
    }

    /// Logs once that the peer's address is unknown, and how to configure it.
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
        // This is the most common mistake of new users, who often have no subscriber yet.
        if !tracing::dispatcher::has_been_set() {
            eprintln!("rate limit {policy:?}: no request has a client address: {help}");
        }
    }

    /// The response to a request that the limiter does not admit.
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

    /// The response to a request that is not served: the user's own, or the usual one.
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

    /// The user's function for this reason, if there is one.
    fn custom_response(&self, cause: RejectionReason<'_>) -> Option<&ResponseTo<F>> {
        match cause {
            RejectionReason::Denied(_) | RejectionReason::Blocked(_) => self.on_denied.as_deref(),
            RejectionReason::Unavailable | RejectionReason::NoKey(_) => self.on_error.as_deref(),
        }
    }
}

/// The delay of a shaping limit. A policy in shadow mode delays nothing.
#[inline]
fn delay(verdict: &Verdict) -> Duration {
    let enforced = verdict.decision().filter(|decision| decision.is_enforced);
    enforced.map_or(Duration::ZERO, Decision::delay)
}
