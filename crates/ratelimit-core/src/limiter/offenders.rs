//! A limiter's most denied keys.

use std::sync::Arc;

use super::{Limiter, Shared};
use crate::offenders::{Offender, Offenders};

impl Limiter {
    /// Counts the most denied keys in `offenders`; [`Offenders::off`] counts none.
    #[must_use]
    pub fn count_offenders(self, offenders: Offenders) -> Limiter {
        let shared = Arc::unwrap_or_clone(self.shared);
        Limiter {
            shared: Arc::new(Shared {
                offenders,
                ..shared
            }),
        }
    }

    /// The keys that a policy denied most lately, at most `most` of them, the worst first.
    ///
    /// Every denied hit counts for one, whatever its cost, also when it was not enforced. One that was
    /// refused because no store decided does not count: that is not the key's doing.
    pub fn offenders(&self, policy: &str, most: usize) -> Vec<Offender> {
        self.shared.offenders.worst(policy, most)
    }

    /// The names of the policies that denied something lately, in order.
    pub fn offender_policies(&self) -> Vec<String> {
        self.shared.offenders.policies()
    }

    /// Forgets who was denied; budgets stay as they are.
    pub fn forget_offenders(&self) {
        self.shared.offenders.forget();
    }
}
