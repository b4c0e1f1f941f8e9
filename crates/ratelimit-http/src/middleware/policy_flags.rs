//! What a policy says of itself, read once for all requests.

use crate::policy::{CostSource, HttpPolicy};
use ratelimit_core::Policy;

/// What a policy says of itself, read once for all requests.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyFlags {
    pub(crate) needs_charge: bool,
    pub(crate) has_rules: bool,
    pub(crate) has_tiers: bool,
    /// Whether a limit, in any tier, counts by another key than the request's own.
    pub(crate) has_names: bool,
    /// What each request costs, where that is known ahead.
    pub(crate) cost: Option<u64>,
}

impl PolicyFlags {
    pub(crate) fn of(http: &HttpPolicy) -> PolicyFlags {
        let policy = http.policy();
        let is_fixed = *http.cost_source() == CostSource::Fixed;
        PolicyFlags {
            needs_charge: http.needs_reservation(),
            has_rules: http.has_rules(),
            has_tiers: policy.tiers().next().is_some(),
            has_names: counts_by_names(policy)
                || policy.tiers().any(|(_, tier)| counts_by_names(tier)),
            cost: is_fixed.then(|| policy.cost().get()),
        }
    }
}

fn counts_by_names(policy: &Policy) -> bool {
    policy.key_names().next().is_some()
}
