//! Properties of a policy that every request needs.

use crate::policy::{CostSource, HttpPolicy};
use ratelimit_core::Policy;

/// Properties of a policy, computed once per policy so that a request does not search for them.
#[expect(
    clippy::struct_excessive_bools,
    reason = "the properties are independent"
)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PolicyFlags {
    /// [`HttpPolicy::needs_reservation`].
    pub(crate) needs_reservation: bool,
    /// [`HttpPolicy::has_rules`].
    pub(crate) has_rules: bool,
    pub(crate) has_tiers: bool,
    /// Whether a limit in any tier counts by a named key.
    pub(crate) has_named_keys: bool,
    /// Whether a limit in any tier counts by the main key.
    pub(crate) counts_by_main_key: bool,
    /// Whether the cost of a request is the length of its body.
    pub(crate) counts_bodies: bool,
    /// The cost of every request, if it does not depend on the request.
    pub(crate) cost: Option<u64>,
}

impl PolicyFlags {
    /// Computes the properties of a policy.
    pub(crate) fn of(http: &HttpPolicy) -> PolicyFlags {
        let policy = http.policy();
        let is_fixed = *http.cost_source() == CostSource::Fixed;
        PolicyFlags {
            needs_reservation: http.needs_reservation(),
            has_rules: http.has_rules(),
            has_tiers: policy.tiers().next().is_some(),
            has_named_keys: counts_by_names(policy)
                || policy.tiers().any(|(_, tier)| counts_by_names(tier)),
            counts_by_main_key: counts_by_main(policy)
                || policy.tiers().any(|(_, tier)| counts_by_main(tier)),
            counts_bodies: *http.cost_source() == CostSource::ContentLength,
            cost: is_fixed.then(|| policy.cost().get()),
        }
    }
}

fn counts_by_names(policy: &Policy) -> bool {
    policy.key_names().next().is_some()
}

fn counts_by_main(policy: &Policy) -> bool {
    policy.limits_by_key().any(|(name, _)| name.is_none())
}
