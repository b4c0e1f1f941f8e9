//! What a response is to tell.

use crate::{decision::Decision, limiter::Verdict, policy::Policy};

/// What a response is to tell of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) struct Telling<'a> {
    pub(super) decision: &'a Decision,
    decider: Decider,
    pub(super) policy: &'a Policy,
    /// The tier of the policy, where that has several.
    pub(super) tier: Option<&'a Policy>,
}

impl<'a> Telling<'a> {
    /// Nothing where no store decided.
    #[inline]
    pub(super) fn of(
        verdict: &'a Verdict,
        policy: &'a Policy,
        tier: Option<&'a Policy>,
    ) -> Option<Telling<'a>> {
        Some(Telling {
            decision: verdict.decision()?,
            decider: match verdict {
                Verdict::Checked(_) => Decider::Store,
                Verdict::Unchecked { .. } => Decider::FailureMode,
            },
            policy,
            tier,
        })
    }

    /// Whether its numbers are told: those of a policy that only watches, or of this process alone, are
    /// not what the client has left.
    #[inline]
    pub(super) fn has_numbers(&self) -> bool {
        self.decider == Decider::Store && self.decision.is_enforced
    }
}

/// Who made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decider {
    Store,
    FailureMode,
}
