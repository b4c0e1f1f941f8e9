//! What a policy says of itself, read once for all requests.

use crate::policy::{CostOf, Policy};

/// What a policy says of itself, read once for all requests.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each answers a question of its own"
)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) needs_charge: bool,
    pub(super) has_rules: bool,
    pub(super) has_tiers: bool,
    /// Whether a limit, in any tier, counts by another key than the request's own.
    pub(super) has_names: bool,
    /// What each request costs, where that is known ahead.
    pub(super) cost: Option<u64>,
}

impl Terms {
    pub(super) fn of(policy: &Policy) -> Terms {
        let is_fixed = *policy.cost_source() == CostOf::Fixed;
        Terms {
            needs_charge: policy.needs_charge(),
            has_rules: policy.has_rules(),
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
