//! What the model answers.

use super::spec::Spec;

/// Whether a hit passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It passes.
    Allowed {
        /// How long a shaped hit waits for its turn.
        delay_us: u64,
    },
    /// It does not pass now.
    Denied {
        /// After exactly this long the same hit passes, alone.
        retry_after_us: u64,
    },
    /// It can never pass.
    Impossible,
}

/// The numbers of one limit, or of a policy, after a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Whether the hit passes here.
    pub answer: Answer,
    /// The limit, or the capacity of a bucket.
    pub limit: u64,
    /// What is left.
    pub remaining: u64,
    /// How long until the design calls the limit reset; 0 when nothing is spent.
    pub reset_after_us: u64,
}

/// What a policy answers to a hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelDecision {
    /// The position of the limit that speaks for the policy.
    pub binding: usize,
    /// The numbers of the policy.
    pub overall: Numbers,
    /// The numbers of each limit, by position.
    pub limits: Vec<Numbers>,
    /// Whether the value was written.
    pub wrote: bool,
    /// Whether the hit passed beyond a limit that a throttle mode stretches.
    pub over: bool,
    /// What each limit notes on a receipt, by position; empty when nothing was charged.
    pub marks: Vec<ModelMark>,
}

/// What one limit notes on a receipt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelMark {
    /// A bucket's debt with the charge, 1 for other limits; 0 when it cannot be given back.
    pub debt: u64,
    /// The tokens that a bucket had refunded by then.
    pub refunded: u64,
}

impl ModelDecision {
    /// Lets one limit speak: of a denied hit the longest wait, of an allowed one the least remaining.
    ///
    /// A penalty box has nothing to say when it lets a hit through.
    pub(super) fn of(specs: &[Spec], limits: Vec<Numbers>) -> Self {
        let impossible = limits
            .iter()
            .position(|limit| limit.answer == Answer::Impossible);
        let denied = first_greatest(&limits, |_, limit| match limit.answer {
            Answer::Denied { retry_after_us } => Some(retry_after_us),
            _ => None,
        });
        let least = first_greatest(&limits, |position, limit| {
            let is_box = matches!(specs[position], Spec::PenaltyBox { .. });
            (!is_box).then_some((u64::MAX - limit.remaining, limit.reset_after_us))
        });
        let binding = impossible
            .or(denied)
            .or(least)
            .expect("a policy has a limit that is no penalty box");

        let mut overall = limits[binding];
        if let Answer::Allowed { delay_us } = &mut overall.answer {
            *delay_us = limits.iter().map(Numbers::delay_us).max().unwrap_or(0);
        }
        Self {
            binding,
            overall,
            limits,
            wrote: false,
            over: false,
            marks: Vec::new(),
        }
    }
}

impl Answer {
    /// Whether the hit passes.
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed { .. })
    }
}

impl Numbers {
    fn delay_us(&self) -> u64 {
        match self.answer {
            Answer::Allowed { delay_us } => delay_us,
            _ => 0,
        }
    }

    /// Shortens the waits to the life that the value has left.
    pub(super) fn cap(&mut self, life_us: u64) {
        self.reset_after_us = self.reset_after_us.min(life_us);
        if let Answer::Denied { retry_after_us } = &mut self.answer {
            *retry_after_us = life_us.min(*retry_after_us);
        }
    }
}

/// The first position whose rank is the greatest, of those that have one.
fn first_greatest<R: Ord>(
    limits: &[Numbers],
    rank: impl Fn(usize, &Numbers) -> Option<R>,
) -> Option<usize> {
    let mut best: Option<(usize, R)> = None;
    for (position, limit) in limits.iter().enumerate() {
        let Some(rank) = rank(position, limit) else {
            continue;
        };
        if best.as_ref().is_none_or(|(_, greatest)| rank > *greatest) {
            best = Some((position, rank));
        }
    }
    best.map(|(position, _)| position)
}
