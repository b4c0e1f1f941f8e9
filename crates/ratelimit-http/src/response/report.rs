//! The report of a decision in the headers of a response.

use ratelimit_core::{Decision, Policy, Verdict};

/// A decision, with the policy under which it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitReport<'a> {
    pub(crate) decision: &'a Decision,
    /// Whether the store decided, and not the failure mode.
    is_from_store: bool,
    pub(crate) policy: &'a Policy,
    /// The policy of the request's tier, if it is not the base policy.
    pub(crate) tier: Option<&'a Policy>,
}

impl<'a> LimitReport<'a> {
    /// The report of a verdict, or `None` if it has no decision.
    #[inline]
    pub(crate) fn of(
        verdict: &'a Verdict,
        policy: &'a Policy,
        tier: Option<&'a Policy>,
    ) -> Option<LimitReport<'a>> {
        Some(LimitReport {
            decision: verdict.decision()?,
            is_from_store: matches!(verdict, Verdict::Checked(_)),
            policy,
            tier,
        })
    }

    /// Whether the numbers are written into the response.
    ///
    /// Those of a policy in shadow mode, or of a local decision while the store is unavailable, are not the
    /// budget that the client has left.
    #[inline]
    pub(crate) fn has_numbers(&self) -> bool {
        self.is_from_store && self.decision.is_enforced
    }
}
