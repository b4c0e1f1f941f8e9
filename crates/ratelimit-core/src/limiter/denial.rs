//! Verdicts: their metrics, and the wait and the log line of a denial.

use std::time::Duration;

use crate::limiter::{Limiter, Verdict};
use crate::{decision::Decision, limit::Limit, offenders::Offenders, policy::Policy, store::Hit};

impl Limiter {
    /// Counts a verdict in the metrics of the policy, and a denial among the offenders.
    pub(super) fn record_verdict(&self, hit: &Hit<'_>, verdict: &Verdict) {
        let metrics = hit.policy.metrics();
        if let Some(decision) = verdict.decision() {
            self.record_decision(hit, decision);
        } else {
            let allowed = verdict.is_allowed();
            tracing::debug!(
                policy = hit.policy.name(),
                key = %self.shared.offenders.logged_key(hit.key),
                cost = hit.cost,
                allowed,
                "decided by the failure mode"
            );
            metrics.count_without_decision(allowed);
        }
        if let Verdict::Unchecked { mode, reason, .. } = verdict {
            metrics.count_unchecked(mode.as_str(), reason.as_str());
        }
    }
}

/// The longest wait that is reported for a slot of a concurrency limit.
///
/// The earliest end of a lease says nothing about the next free slot: holders renew their leases, and
/// release their slots before they end.
const MAX_SLOT_WAIT: Duration = Duration::from_secs(1);

/// The decision with the wait for slots that is reported.
///
/// A dry run reports the earliest end of a lease, for those who look into a limit.
pub(super) fn with_slot_wait(decision: Decision, hit: &Hit<'_>) -> Decision {
    if decision.is_allowed() || hit.is_read_only() || !hit.policy.has_concurrency_limit() {
        return decision;
    }
    let counts_slots = |index: usize| is_slot_limit(hit.policy, index);
    decision.with_waits_up_to(MAX_SLOT_WAIT, counts_slots)
}

/// Whether the limit at `index` counts slots, which are released at any time.
pub(super) fn is_slot_limit(policy: &Policy, index: usize) -> bool {
    matches!(policy.limits().get(index), Some(Limit::Concurrency(_)))
}

/// Logs a denial in one line with all its fields. The key is a fingerprint unless the limiter shows keys.
#[inline(never)]
pub(super) fn log_denial(hit: &Hit<'_>, decision: &Decision, offenders: &Offenders) {
    let key = hit.key_of_limit(decision.binding);
    tracing::debug!(
        policy = hit.policy.name(),
        limit = hit.policy.limits().get(decision.binding).map(tracing::field::display),
        key = %offenders.logged_key(key),
        key_kind = %key.kind(),
        cost = hit.cost,
        retry_after = decision.retry_after().map(tracing::field::debug),
        enforced = decision.is_enforced,
        "denied"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    async fn wait_of_second(limits: &str) -> Duration {
        let policy = Policy::parse("api", limits).unwrap();
        let key = Key::new("alice").unwrap();
        let limiter = Limiter::in_memory();
        assert!(limiter.check(&policy, &key).await.is_allowed());
        let denied = limiter.check(&policy, &key).await;
        denied.decision().unwrap().retry_after().unwrap()
    }

    #[tokio::test]
    async fn a_denial_by_a_concurrency_limit_reports_a_second_at_most() {
        let second = Duration::from_secs(1);

        assert_eq!(wait_of_second("concurrency 1 lease 30s").await, second);
        assert_eq!(
            wait_of_second("100/s; concurrency 1 lease 30s").await,
            second
        );
        assert!(wait_of_second("concurrency 1 lease 300ms").await < second);
        let longer = wait_of_second("1/h; concurrency 1 lease 30s").await;
        assert!(longer > 1000 * second, "{longer:?}");
    }
}
