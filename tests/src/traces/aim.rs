//! What a trace may contain.

/// Which algorithm: the places of [`Spec`](crate::model::Spec)'s variants.
pub const ALGORITHMS: [&str; 6] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
    "concurrency",
];

/// What a trace may contain.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a thing that a trace has or lacks, whatever the others say"
)]
pub struct Aim {
    /// The fewest and the most limits of a policy, without penalty boxes.
    pub limits: (u64, u64),
    /// Only this algorithm.
    pub only: Option<usize>,
    /// Whether limits change under way.
    pub changes: bool,
    /// Whether the clock steps back.
    pub steps_back: bool,
    /// Whether there are concurrency limits.
    pub concurrency: bool,
    /// Whether a throttle mode stretches the limits, and its signal comes and goes.
    pub throttles: bool,
    /// Whether a penalty box joins some policies.
    pub boxes: bool,
    /// Whether hits are settled, released and renewed afterwards.
    pub settles: bool,
    /// Whether the key is reset.
    pub resets: bool,
}

impl Aim {
    /// Policies of one to four hard limits that are spent and never given back.
    pub const ANYTHING: Aim = Aim {
        limits: (1, 4),
        only: None,
        changes: true,
        steps_back: true,
        concurrency: false,
        throttles: false,
        boxes: false,
        settles: false,
        resets: false,
    };

    /// The same with all that a policy can have beside its limits, and all that follows a hit.
    pub const EVERYTHING: Aim = Aim {
        concurrency: true,
        throttles: true,
        boxes: true,
        settles: true,
        resets: true,
        ..Aim::ANYTHING
    };

    /// One limit of one algorithm.
    pub const fn at(algorithm: usize) -> Aim {
        Aim::ANYTHING.only(algorithm)
    }

    /// The same for one limit of one algorithm.
    #[must_use]
    pub const fn only(self, algorithm: usize) -> Aim {
        Aim {
            limits: (1, 1),
            only: Some(algorithm),
            ..self
        }
    }
}
