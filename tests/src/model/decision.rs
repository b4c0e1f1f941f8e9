//! What the model answers.

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
    pub speaker: usize,
    /// The numbers of the policy.
    pub overall: Numbers,
    /// The numbers of each limit, by position.
    pub limits: Vec<Numbers>,
    /// Whether the value was written.
    pub wrote: bool,
}

impl ModelDecision {
    /// Lets one limit speak: of a denied hit the longest wait, of an allowed one the least remaining.
    pub(super) fn of(limits: Vec<Numbers>, wrote: bool) -> Self {
        let impossible = limits
            .iter()
            .position(|limit| limit.answer == Answer::Impossible);
        let denied = first_greatest(&limits, |limit| match limit.answer {
            Answer::Denied { retry_after_us } => Some(retry_after_us),
            _ => None,
        });
        let least = first_greatest(&limits, |limit| {
            Some((u64::MAX - limit.remaining, limit.reset_after_us))
        });
        let speaker = impossible
            .or(denied)
            .or(least)
            .expect("a policy has a limit");

        let mut overall = limits[speaker];
        if let Answer::Allowed { delay_us } = &mut overall.answer {
            *delay_us = limits.iter().map(Numbers::delay_us).max().unwrap_or(0);
        }
        Self {
            speaker,
            overall,
            limits,
            wrote,
        }
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
    rank: impl Fn(&Numbers) -> Option<R>,
) -> Option<usize> {
    let mut best: Option<(usize, R)> = None;
    for (position, limit) in limits.iter().enumerate() {
        let Some(rank) = rank(limit) else { continue };
        if best.as_ref().is_none_or(|(_, greatest)| rank > *greatest) {
            best = Some((position, rank));
        }
    }
    best.map(|(position, _)| position)
}
