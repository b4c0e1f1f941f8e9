//! The outcome of a hit, as summaries and charts show it.

use ratelimit_core::{Decision, Outcome};

/// The outcome of a hit. Every hit has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
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

impl Fate {
    pub(crate) const ALL: [Fate; 5] = [
        Fate::Allowed,
        Fate::Delayed,
        Fate::Over,
        Fate::Denied,
        Fate::Impossible,
    ];

    pub(super) fn of(decision: &Decision) -> Fate {
        match decision.outcome {
            Outcome::Allowed { .. } if decision.is_over => Fate::Over,
            Outcome::Allowed { delay } if delay.is_zero() => Fate::Allowed,
            Outcome::Allowed { .. } => Fate::Delayed,
            Outcome::Impossible => Fate::Impossible,
            _ => Fate::Denied,
        }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Fate::Allowed => "allowed",
            Fate::Delayed => "delayed",
            Fate::Over => "over",
            Fate::Denied => "denied",
            Fate::Impossible => "impossible",
        }
    }

    pub(crate) const fn passes(self) -> bool {
        matches!(self, Fate::Allowed | Fate::Delayed | Fate::Over)
    }
}

/// A number for each fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FateCounts([u64; Fate::ALL.len()]);

impl FateCounts {
    pub(crate) const fn get(&self, fate: Fate) -> u64 {
        self.0[fate as usize]
    }

    pub(super) fn add(&mut self, fate: Fate, count: u64) {
        let sum = &mut self.0[fate as usize];
        *sum = sum.saturating_add(count);
    }

    /// The sum over all fates.
    pub(crate) fn total(&self) -> u64 {
        self.0
            .iter()
            .fold(0, |sum, count| u64::saturating_add(sum, *count))
    }
}
