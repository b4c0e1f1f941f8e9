//! The names of the algorithms: in configuration, on the REST wire and in stored states.

use std::fmt;

/// A counting algorithm, without its numbers; a [`Limit`](crate::Limit) has both.
///
/// | algorithm | most in any span of one period | state |
/// |---|---|---|
/// | [`TokenBucket`](crate::TokenBucket) | capacity + refill | one debt |
/// | [`LeakyBucket`](crate::LeakyBucket) | places + outflow | one debt |
/// | [`FixedWindow`](crate::FixedWindow) | twice the limit, at the edge of two windows | one count |
/// | [`SlidingWindowLog`](crate::SlidingWindowLog) | the limit | one tick per unit |
/// | [`SlidingWindowCounter`](crate::SlidingWindowCounter) | below twice the limit | two counts |
///
/// [`Concurrency`](crate::Concurrency) bounds the requests in progress and
/// [`PenaltyBox`](crate::PenaltyBox) blocks keys that other limits denied too often; neither is a
/// rate.
///
/// ```
/// use ratelimit_core::{Algorithm, Limit};
///
/// let limit: Limit = "fixed_window 100/min".parse()?;
/// assert_eq!(limit.algorithm(), Algorithm::FixedWindow);
/// assert_eq!(limit.algorithm().to_string(), "fixed_window");
/// # Ok::<(), ratelimit_core::ParseLimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Tokens refill at a steady rate; a burst passes until the bucket is empty.
    TokenBucket,
    /// A queue that drains at a steady rate; an admitted hit gets a delay, a hit that finds the
    /// queue full is denied.
    LeakyBucket,
    /// One count for each window of the clock, reset when the window ends.
    FixedWindow,
    /// A timestamp for each unit spent; exact over any span of one period.
    SlidingWindowLog,
    /// The counts of the present and the previous window, the previous one weighted by its overlap.
    SlidingWindowCounter,
    /// Slots for requests in progress, each held on a lease.
    Concurrency,
    /// Blocks a key after too many denials by the other limits of its policy.
    PenaltyBox,
}

impl Algorithm {
    /// Every algorithm, in the order of its stored code.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::Concurrency,
        Algorithm::PenaltyBox,
    ];

    /// The algorithms that limit a rate. `N/PERIOD` is a complete limit for each of them, and each
    /// can be the only limit of a policy.
    pub const RATES: [Algorithm; 5] = [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
    ];

    /// The name in configuration, limit texts, metrics and log lines: `token_bucket`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::LeakyBucket => "leaky_bucket",
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingWindowLog => "sliding_window_log",
            Algorithm::SlidingWindowCounter => "sliding_window_counter",
            Algorithm::Concurrency => "concurrency",
            Algorithm::PenaltyBox => "penalty_box",
        }
    }

    /// The name in the REST API: `TOKEN_BUCKET`. The log is `SLIDING_WINDOW` there; all others are
    /// the upper-case name.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Algorithm::TokenBucket => "TOKEN_BUCKET",
            Algorithm::LeakyBucket => "LEAKY_BUCKET",
            Algorithm::FixedWindow => "FIXED_WINDOW",
            Algorithm::SlidingWindowLog => "SLIDING_WINDOW",
            Algorithm::SlidingWindowCounter => "SLIDING_WINDOW_COUNTER",
            Algorithm::Concurrency => "CONCURRENCY",
            Algorithm::PenaltyBox => "PENALTY_BOX",
        }
    }

    /// Finds an algorithm by either of its names, in any case; `None` for an unknown name.
    ///
    /// An unknown name is never replaced by a default: a spelling mistake must not become another
    /// limit.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        let named = |a: &Algorithm| {
            name.eq_ignore_ascii_case(a.as_str()) || name.eq_ignore_ascii_case(a.wire_name())
        };
        Algorithm::ALL.into_iter().find(named)
    }

    /// The number that marks a state of this algorithm in a stored value and in the arguments of a
    /// script.
    ///
    /// The codes are part of the stored format (`lua/README.md`). A code is never reused or
    /// renumbered, because values written by an earlier release are read by the next one.
    #[cfg(feature = "redis")]
    pub(crate) const fn code(self) -> u8 {
        match self {
            Algorithm::TokenBucket => 1,
            Algorithm::LeakyBucket => 2,
            Algorithm::FixedWindow => 3,
            Algorithm::SlidingWindowLog => 4,
            Algorithm::SlidingWindowCounter => 5,
            Algorithm::Concurrency => 6,
            Algorithm::PenaltyBox => 7,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
