//! What an attribute adds to the policy of its handler.

use crate::policy::HttpPolicy;

/// The terms of an attribute, as texts that were parsed when it was expanded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerTerms {
    /// Where the cost comes from: `body` or `header:NAME`.
    pub cost: Option<&'static str>,
    /// The statuses of responses whose requests stay charged: `401, 4xx`.
    pub charge_on: Option<&'static str>,
    /// Where the actual cost comes from: `response-bytes` or `header:NAME`.
    pub settle: Option<&'static str>,
}

impl HandlerTerms {
    /// Nothing beside the policy.
    pub const NONE: HandlerTerms = HandlerTerms {
        cost: None,
        charge_on: None,
        settle: None,
    };

    /// The same policy on these terms.
    ///
    /// # Panics
    ///
    /// When a text is not what it should be.
    #[must_use]
    pub fn apply_to(self, mut policy: HttpPolicy) -> HttpPolicy {
        const PARSED: &str = "the text was parsed when it was expanded";
        if let Some(cost) = self.cost {
            policy = policy.with_cost_source(cost.parse().expect(PARSED));
        }
        if let Some(statuses) = self.charge_on {
            policy = policy.with_charge_on(statuses.parse().expect(PARSED));
        }
        if let Some(actual) = self.settle {
            policy = policy.with_settle_source(actual.parse().expect(PARSED));
        }
        policy
    }
}
