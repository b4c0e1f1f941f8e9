//! Hits that the store does not decide: the failure mode, and the local fallback.

use std::time::Instant;

use crate::limiter::{
    Limiter, LimiterInner, UncheckedReason, Verdict, denial::with_slot_wait, verdict::ErrorChain,
};
use crate::{
    decision::Decision,
    policy::{FailureMode, Policy},
    store::{Hit, StoreError},
};

impl Limiter {
    /// Whether the local fallback decides the hits of a policy while the store does not answer.
    pub(super) fn falls_back_locally(&self, policy: &Policy) -> bool {
        let mode = self.failure_mode_of(policy);
        self.shared.memory.is_none()
            && matches!(mode, FailureMode::Local | FailureMode::LocalShare { .. })
    }

    /// Sets the local budgets of a hit to those of the store, which replied at `received`.
    ///
    /// Replies of peeks and dry runs count too: they carry the same levels.
    pub(super) fn mirror(&self, hit: &Hit<'_>, decision: &Decision, received: Instant) {
        if self.falls_back_locally(hit.policy) {
            self.shared.fallback.mirror(hit, decision, received);
        }
    }

    /// Denies a hit on a budget that is spent by hits which the store has not been charged for yet.
    #[inline]
    pub(super) fn deny_while_owed(&self, hit: &Hit<'_>) -> Option<Verdict> {
        let LimiterInner {
            fallback, store, ..
        } = &*self.shared;
        let decision = fallback.deny_while_owed(hit, store)?;
        let decision = with_slot_wait(decision, hit);
        if hit.is_read_only() || !self.falls_back_locally(hit.policy) {
            return None;
        }
        let verdict = Verdict::Unchecked {
            mode: self.failure_mode_of(hit.policy),
            reason: UncheckedReason::CatchingUp,
            decision: Some(decision.with_enforcement(hit.policy.enforces(hit.key))),
        };
        self.record_verdict(hit, &verdict);
        Some(verdict)
    }

    /// The failure mode of a policy: its own, the limiter's, or the default.
    ///
    /// ```
    /// use ratelimit_core::{FailureMode, Limiter, Policy};
    ///
    /// let limiter = Limiter::in_memory().failure_mode(FailureMode::Open);
    /// let api = Policy::parse("api", "10/s")?;
    /// assert_eq!(limiter.failure_mode_of(&api), FailureMode::Open);
    /// assert_eq!(limiter.failure_mode_of(&api.with_failure_mode(FailureMode::Closed)), FailureMode::Closed);
    /// # Ok::<(), ratelimit_core::InvalidPolicy>(())
    /// ```
    pub fn failure_mode_of(&self, policy: &Policy) -> FailureMode {
        let own = policy.failure_mode().or(self.shared.failure_mode);
        own.unwrap_or_default()
    }

    /// Decides a hit by the failure mode. No other code turns an error of the store into a verdict.
    ///
    /// A policy in shadow mode never denies, so [`FailureMode::Closed`] becomes `Open` for keys that are not enforced.
    pub(super) fn unchecked(&self, hit: Hit<'_>, is_enforced: bool, error: &StoreError) -> Verdict {
        let policy = hit.policy;
        tracing::debug!(policy = policy.name(), error = %ErrorChain(error), "not decided by the store");
        let mode = match self.failure_mode_of(policy) {
            FailureMode::Closed if !is_enforced => FailureMode::Open,
            mode => mode,
        };
        let LimiterInner {
            fallback, store, ..
        } = &*self.shared;
        let decision = match mode {
            FailureMode::Local => Some(fallback.decide(&hit, None, error, store)),
            FailureMode::LocalShare { instances } => {
                Some(fallback.decide(&hit, Some(instances), error, store))
            }
            FailureMode::Open | FailureMode::Closed => None,
        };
        Verdict::Unchecked {
            mode,
            reason: UncheckedReason::of(error),
            decision: decision
                .map(|decision| with_slot_wait(decision, &hit).with_enforcement(is_enforced)),
        }
    }
}
