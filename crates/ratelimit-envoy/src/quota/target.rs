//! The budget of a bucket, and the calls of its store.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ratelimit_core::{
    KeySet, Limiter, Outcome, Policy, Reservation, Timestamp, UncheckedReason, Verdict,
    store::{Hit, Overdraft, StoreError},
};

use crate::quota::terms::GrantTerms;

/// The time of one call of the store: a pass over many buckets must end while its answers are fresh.
const CALL_TIMEOUT: Duration = Duration::from_millis(500);

/// The budget of a bucket: a policy, its keys, and the cost of a request.
///
/// Both policies have the failure mode `closed`, so that only the store charges.
#[derive(Clone, Debug)]
pub struct QuotaTarget {
    /// The policy of the key's tier.
    pub(crate) charge: Policy,
    /// The same with headroom, in which requests beyond the limit are recorded.
    pub(crate) reading: Policy,
    pub(crate) keys: KeySet,
    /// The cost of one request.
    pub(crate) cost: u64,
    /// The most units that are recorded at once.
    pub(crate) max_reading: u64,
    pub(crate) is_enforced: bool,
    /// The identity of the budget.
    pub(crate) budget: Arc<str>,
}

/// The answer of the store to a question.
pub(super) enum StoreAnswer<T> {
    Answer(T),
    Denied {
        retry_after: Duration,
        remaining: u64,
    },
    /// The store did not decide. The failure mode is not asked: only the store grants.
    Failed(StoreFailure),
}

/// Why the store did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreFailure {
    /// It cannot be reached, or does not answer: other calls fare alike.
    Away,
    /// It refused this call, or too many are under way.
    Refused,
}

impl StoreFailure {
    const fn of_reason(reason: UncheckedReason) -> StoreFailure {
        match reason {
            UncheckedReason::Unavailable | UncheckedReason::TimedOut => StoreFailure::Away,
            _ => StoreFailure::Refused,
        }
    }

    const fn of_error(error: &StoreError) -> StoreFailure {
        match error {
            StoreError::Overloaded | StoreError::Refused { .. } => StoreFailure::Refused,
            _ => StoreFailure::Away,
        }
    }
}

impl QuotaTarget {
    /// The name of the policy.
    pub fn policy_name(&self) -> &str {
        self.charge.name()
    }

    /// Whether the limits are enforced for the key. Otherwise requests are counted only.
    pub fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// The times at which its grants must end.
    pub fn terms(&self) -> GrantTerms {
        GrantTerms::new(&self.charge)
    }

    /// Whether the other target has the same limits, keys and cost, so that grants of this one stay valid.
    pub fn is_same(&self, other: &QuotaTarget) -> bool {
        self.charge == other.charge
            && self.budget == other.budget
            && self.cost == other.cost
            && self.is_enforced == other.is_enforced
    }

    /// How many requests the budget has left. At least 1 if it is not denied.
    pub(super) async fn look(&self, limiter: &Limiter) -> StoreAnswer<(Timestamp, u64)> {
        let hit = self.hit(&self.charge).cost(self.cost).dry_run();
        match limiter.check_hit(hit.overdraft(Overdraft::Refused)).await {
            Verdict::Checked(decision) => match decision.outcome {
                Outcome::Allowed { .. } => {
                    let remaining = decision.limits().map(|limit| limit.remaining).min();
                    let remaining = remaining.unwrap_or(decision.remaining) / self.cost;
                    StoreAnswer::Answer((decision.now, remaining.max(1)))
                }
                outcome => denied(outcome, decision.remaining / self.cost),
            },
            Verdict::Unchecked { reason, .. } => {
                StoreAnswer::Failed(StoreFailure::of_reason(reason))
            }
            _ => StoreAnswer::Failed(StoreFailure::Away),
        }
    }

    /// Charges requests before they are granted.
    pub(super) async fn reserve(
        &self,
        limiter: &Limiter,
        requests: u64,
    ) -> StoreAnswer<(Timestamp, Reservation)> {
        let hit = self.hit(&self.charge);
        let hit = hit.cost(requests.saturating_mul(self.cost));
        match limiter.reserve(hit.overdraft(Overdraft::Refused)).await {
            (Verdict::Checked(decision), Some(reservation)) if decision.is_allowed() => {
                StoreAnswer::Answer((decision.now, reservation))
            }
            (Verdict::Checked(decision), _) => {
                denied(decision.outcome, decision.remaining / self.cost)
            }
            (Verdict::Unchecked { reason, .. }, _) => {
                StoreAnswer::Failed(StoreFailure::of_reason(reason))
            }
            _ => StoreAnswer::Failed(StoreFailure::Away),
        }
    }

    /// Records requests that have passed, beyond the limit where needed.
    pub(super) async fn record(
        &self,
        limiter: &Limiter,
        requests: u64,
    ) -> Result<(), StoreFailure> {
        let units = requests.saturating_mul(self.cost).min(self.max_reading);
        match limiter.check_hit(self.hit(&self.reading).cost(units)).await {
            // A denial means that the headroom is full: the budget is exhausted for as long as can be counted.
            Verdict::Checked(_) => Ok(()),
            Verdict::Unchecked { reason, .. } => Err(StoreFailure::of_reason(reason)),
            _ => Err(StoreFailure::Away),
        }
    }

    fn hit<'a>(&'a self, policy: &'a Policy) -> Hit<'a> {
        Hit::for_keys(policy, &self.keys).deadline(Instant::now() + CALL_TIMEOUT)
    }
}

/// Replaces the charge of a grant by what was used of it.
pub(super) async fn settle(receipt: Reservation, units: u64) -> Result<(), StoreFailure> {
    match tokio::time::timeout(CALL_TIMEOUT, receipt.settle(units)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(StoreFailure::of_error(&error)),
        Err(_) => Err(StoreFailure::Away),
    }
}

fn denied<T>(outcome: Outcome, remaining: u64) -> StoreAnswer<T> {
    let retry_after = match outcome {
        Outcome::Denied { retry_after } => retry_after,
        // The cost of one request is checked when the policy is made, so this is a limit that a reload has lowered.
        _ => Duration::from_secs(5),
    };
    StoreAnswer::Denied {
        retry_after,
        remaining,
    }
}
