//! What is asked of a policy, and how far a throttle mode stretches its limits.

use super::spec::Spec;

/// What is asked of a policy in one hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelHit {
    /// How much; 0 looks.
    pub cost: u64,
    /// How much more than the limit may pass, in percent of it; 0 is a hard limit.
    pub percent: u64,
    /// Whether the signal of an elastic policy says that there is room; of a soft one, always.
    pub room: bool,
    /// Who holds the slot of a concurrency limit.
    pub slot: u64,
}

impl ModelHit {
    /// A cost that is asked of hard limits.
    pub const fn hard(cost: u64) -> Self {
        Self {
            cost,
            percent: 0,
            room: true,
            slot: 0,
        }
    }

    /// What must fit for the hit to pass: its cost, and what is held in reserve beside it.
    pub(super) fn needs(&self, spec: &Spec) -> u128 {
        let reserve = if self.room {
            0
        } else {
            spec.stretch(self.percent)
        };
        match spec {
            Spec::Concurrency { .. } => 1 + reserve,
            _ => u128::from(self.cost) + reserve,
        }
    }

    /// Whether the hit can never pass.
    pub(super) fn is_impossible(&self, spec: &Spec) -> bool {
        let bounds_cost = !matches!(spec, Spec::Concurrency { .. } | Spec::PenaltyBox { .. });
        bounds_cost && self.cost > 0 && self.needs(spec) > spec.ceiling(self.percent)
    }
}
