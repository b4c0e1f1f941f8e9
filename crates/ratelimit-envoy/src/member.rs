//! A budget of a request.

use ratelimit_core::{
    KeySet, Policy, Verdict,
    store::{Hit, Overdraft},
};

use crate::{charge::Charge, rule::Role};

/// A budget that takes part in the decision about a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Member {
    /// The limits.
    pub policy: Policy,
    /// The keys whose budgets are spent.
    pub keys: KeySet,
    /// The cost.
    pub charge: Charge,
    /// The part in the decision.
    pub role: Role,
    /// Whether the policy is that of a window, whose headroom is for readings only.
    pub(crate) is_window: bool,
}

impl Member {
    /// The hit of the engine that charges the member. Of a credit it only reads what is left.
    pub fn hit(&self) -> Hit<'_> {
        let mut hit = Hit::for_keys(self.tier(), &self.keys);
        if self.is_window && !matches!(self.charge, Charge::Reading(_)) {
            hit = hit.overdraft(Overdraft::Refused);
        }
        match self.charge {
            Charge::Request(cost) | Charge::Reading(cost) => hit.cost(cost),
            Charge::Look => hit.dry_run(),
            Charge::Credit(_) => hit.cost(0),
        }
    }

    /// The policy of the key's tier.
    pub(crate) fn tier(&self) -> &Policy {
        self.policy.for_key(self.keys.primary())
    }

    /// Whether the verdict means that the limit is exceeded. A credit exceeds nothing.
    pub fn is_over(&self, verdict: &Verdict) -> bool {
        let is_recorded_beyond =
            self.is_reading() && verdict.decision().is_some_and(|decision| decision.is_over);
        is_recorded_beyond || (!self.is_credit() && !verdict.is_allowed())
    }

    /// Whether units are given back. A credit neither denies nor lets anything pass.
    pub(crate) const fn is_credit(&self) -> bool {
        matches!(self.charge, Charge::Credit(_))
    }

    /// Whether the units are recorded also beyond the limit.
    pub(crate) fn is_reading(&self) -> bool {
        matches!(self.charge, Charge::Reading(_))
    }
}
