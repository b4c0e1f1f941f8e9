//! The algorithms' names.

use std::fmt;

/// How counting works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Refills steadily, lets bursts through until it is empty.
    TokenBucket,
    /// A queue that lets one out at a time.
    LeakyBucket,
    /// So many in each window of the clock.
    FixedWindow,
    /// So many in any window, remembered one by one.
    SlidingWindowLog,
    /// So many in any window, estimated from two counts.
    SlidingWindowCounter,
    /// So many at once, each on a lease.
    Concurrency,
    /// Who is denied too often is refused for a while.
    PenaltyBox,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
        Algorithm::Concurrency,
        Algorithm::PenaltyBox,
    ];

    /// Those that limit a rate: each alone can be a policy without any more numbers being named.
    pub const RATES: [Algorithm; 5] = [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
    ];

    /// The name in configuration, limit texts and metrics.
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

    /// The name on the REST wire.
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

    /// The algorithm of that name, either form, in any case.
    ///
    /// ```
    /// use ratelimit_core::Algorithm;
    ///
    /// assert_eq!(Algorithm::from_name("SLIDING_WINDOW"), Some(Algorithm::SlidingWindowLog));
    /// assert_eq!(Algorithm::from_name("leaky_bucket"), Some(Algorithm::LeakyBucket));
    /// assert_eq!(Algorithm::from_name("best_effort"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Algorithm> {
        let named = |a: &Algorithm| {
            name.eq_ignore_ascii_case(a.as_str()) || name.eq_ignore_ascii_case(a.wire_name())
        };
        Algorithm::ALL.into_iter().find(named)
    }

    /// The number that marks this algorithm's state in a store.
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
