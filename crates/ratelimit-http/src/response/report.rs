//! What a response is to tell.

use ratelimit_core::{Decision, Policy, Verdict};

/// What a response is to tell of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitReport<'a> {
    pub(crate) decision: &'a Decision,
    decider: ReportedBy,
    pub(crate) policy: &'a Policy,
    /// The tier of the policy, where that has several.
    pub(crate) tier: Option<&'a Policy>,
}

impl<'a> LimitReport<'a> {
    /// Nothing where no store decided.
    #[inline]
    pub(crate) fn of(
        verdict: &'a Verdict,
        policy: &'a Policy,
        tier: Option<&'a Policy>,
    ) -> Option<LimitReport<'a>> {
        Some(LimitReport {
            decision: verdict.decision()?,
            decider: match verdict {
                Verdict::Checked(_) => ReportedBy::Store,
                Verdict::Unchecked { .. } => ReportedBy::FailureMode,
            },
            policy,
            tier,
        })
    }

    /// Whether its numbers are told: those of a policy that only watches, or of this process alone, are
    /// not what the client has left.
    #[inline]
    pub(crate) fn has_numbers(&self) -> bool {
        self.decider == ReportedBy::Store && self.decision.is_enforced
    }
}

/// Who made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedBy {
    Store,
    FailureMode,
}
