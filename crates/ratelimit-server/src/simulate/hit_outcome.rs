//! The outcome of a hit, as summaries and charts show it.

use ratelimit_core::{Decision, Outcome};

/// The outcome of a hit. Every hit has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HitOutcome {
    /// It passed at once.
    Allowed,
    /// It passed after a delay.
    Delayed,
    /// It passed beyond a soft limit, with or without a delay.
    Over,
    /// It was denied, and passes later.
    Denied,
    /// It costs more than a limit, so it never passes.
    Impossible,
}

impl HitOutcome {
    pub(crate) const ALL: [HitOutcome; 5] = [
        HitOutcome::Allowed,
        HitOutcome::Delayed,
        HitOutcome::Over,
        HitOutcome::Denied,
        HitOutcome::Impossible,
    ];

    pub(super) fn of(decision: &Decision) -> HitOutcome {
        match decision.outcome {
            Outcome::Allowed { .. } if decision.is_over => HitOutcome::Over,
            Outcome::Allowed { delay } if delay.is_zero() => HitOutcome::Allowed,
            Outcome::Allowed { .. } => HitOutcome::Delayed,
            Outcome::Impossible => HitOutcome::Impossible,
            _ => HitOutcome::Denied,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            HitOutcome::Allowed => "allowed",
            HitOutcome::Delayed => "delayed",
            HitOutcome::Over => "over",
            HitOutcome::Denied => "denied",
            HitOutcome::Impossible => "impossible",
        }
    }

    pub(crate) const fn passes(self) -> bool {
        matches!(
            self,
            HitOutcome::Allowed | HitOutcome::Delayed | HitOutcome::Over
        )
    }
}

/// A number for each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutcomeCounts([u64; HitOutcome::ALL.len()]);

impl OutcomeCounts {
    pub(crate) const fn get(&self, outcome: HitOutcome) -> u64 {
        self.0[outcome as usize]
    }

    pub(super) fn add(&mut self, outcome: HitOutcome, count: u64) {
        let sum = &mut self.0[outcome as usize];
        *sum = sum.saturating_add(count);
    }

    /// The sum over all outcomes.
    pub(crate) fn total(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, count| u64::saturating_add(sum, *count))
    }
}
