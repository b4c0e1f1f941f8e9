//! Hits that the store does not decide: the failure mode, and the local fallback.

use std::{sync::Arc, time::Instant};

use crate::limiter::{
    Limiter, UncheckedReason, Verdict,
    denial::with_slot_wait,
    fallback::Fallback,
    verdict::{Answer, ErrorChain},
};
use crate::{
    decision::{Charged, Decision, RefundMarks},
    policy::{FailureMode, Policy},
    store::{Hit, JointHit, OwnedHit, StoreError, StoreFuture},
};

/// The units of a hit in flight. Local decisions count them as spent until it is dropped.
pub(super) struct InFlight {
    fallback: Arc<Fallback>,
    hit: OwnedHit,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.fallback.answered(&self.hit.as_hit());
    }
}

impl Limiter {
    /// Whether the local fallback decides the hits of a policy while the store does not answer.
    pub(super) fn falls_back_locally(&self, policy: &Policy) -> bool {
        let mode = self.failure_mode_of(policy);
        self.shared.memory.is_none()
            && matches!(mode, FailureMode::Local | FailureMode::LocalShare { .. })
    }

    /// Remembers what the store replied at `received`, for local decisions. Replies to peeks and dry runs count too.
    pub(super) fn record_reply(&self, hit: &Hit<'_>, decision: &Decision, received: Instant) {
        if self.falls_back_locally(hit.policy) {
            self.shared.fallback.replied(hit, decision, received);
        }
    }

    /// Sends a hit to the store, after the uncharged units of its budgets.
    pub(super) fn send(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        let store = &self.shared.store;
        #[cfg(feature = "tokio")]
        if let Some(charge) = self.shared.fallback.charge_before(&hit, store) {
            return match charge.try_ready() {
                Ok(Ok(())) => store.hit(hit),
                Ok(Err(error)) => StoreFuture::ready(Err(error)),
                Err(charge) => {
                    let (store, hit) = (Arc::clone(store), OwnedHit::new(hit));
                    StoreFuture::pending(async move {
                        charge.await?;
                        store.hit(hit.as_hit()).await
                    })
                }
            };
        }
        store.hit(hit)
    }

    /// Sends a joint hit to the store, after the uncharged units of its members' budgets.
    pub(super) fn send_joint(&self, members: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        let store = &self.shared.store;
        #[cfg(feature = "tokio")]
        {
            let fallback = &self.shared.fallback;
            let mut charges = Vec::new();
            for member in members {
                match fallback
                    .charge_before(&member.hit, store)
                    .map(StoreFuture::try_ready)
                {
                    None | Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => return StoreFuture::ready(Err(error)),
                    Some(Err(charge)) => charges.push(charge),
                }
            }
            if !charges.is_empty() {
                let owned = |member: &JointHit<'_>| (OwnedHit::new(member.hit), member.role);
                let members: Vec<_> = members.iter().map(owned).collect();
                let store = Arc::clone(store);
                return StoreFuture::pending(async move {
                    for charge in charges {
                        charge.await?;
                    }
                    let members = members.iter();
                    let members =
                        members.map(|(hit, role)| JointHit::new(hit.as_hit()).role(*role));
                    let members: Vec<JointHit<'_>> = members.collect();
                    store.hit_joint(&members).await
                });
            }
        }
        store.hit_joint(members)
    }

    /// Counts a hit in flight until the returned guard is dropped, where local decisions need it.
    pub(super) fn count_in_flight(&self, hit: Hit<'_>) -> Option<InFlight> {
        (!hit.is_read_only() && self.falls_back_locally(hit.policy)).then(|| {
            self.shared.fallback.sent(&hit);
            InFlight {
                fallback: Arc::clone(&self.shared.fallback),
                hit: OwnedHit::new(hit),
            }
        })
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
    pub(super) fn unchecked(&self, hit: Hit<'_>, is_enforced: bool, error: &StoreError) -> Answer {
        let policy = hit.policy;
        tracing::debug!(policy = policy.name(), error = %ErrorChain(error), "not decided by the store");
        let mode = match self.failure_mode_of(policy) {
            FailureMode::Closed if !is_enforced => FailureMode::Open,
            mode => mode,
        };
        let fallback = &self.shared.fallback;
        let charged = match mode {
            FailureMode::Local => Some(fallback.decide(&hit, None, error)),
            FailureMode::LocalShare { instances } => {
                Some(fallback.decide(&hit, Some(instances), error))
            }
            FailureMode::Open | FailureMode::Closed => None,
        };
        // Budgets without further hits are charged too.
        #[cfg(feature = "tokio")]
        if charged.is_some() {
            fallback.start_task(&self.shared.store);
        }
        let (decision, marks) = match charged {
            Some(Charged { decision, marks }) => (Some(decision), marks),
            None => (None, RefundMarks::new()),
        };
        let verdict = Verdict::Unchecked {
            mode,
            reason: UncheckedReason::of(error),
            decision: decision
                .map(|decision| with_slot_wait(decision, &hit).with_enforcement(is_enforced)),
        };
        Answer { verdict, marks }
    }
}
