//! Token bucket: refills at a steady rate and lets bursts pass until it is empty.

use std::time::Duration;

use crate::algorithm::{bucket::Bucket, kind::Algorithm, period::InvalidLimit};

/// A bucket of tokens that refills at a steady rate; a hit takes as many tokens as it costs, or
/// none.
///
/// - A burst of up to `capacity` passes at once; afterwards hits pass at the refill rate.
/// - In any span of time `t` at most `capacity + refill x t / period` pass.
/// - A key that was idle has a full bucket.
/// - A cost above the capacity is [`Outcome::Impossible`](crate::Outcome::Impossible).
///
/// It decides as GCRA does. GCRA stores the moment at which the bucket is full again; this stores
/// the debt that is left until then, in whole ticks, so that no division rounds before the report:
///
/// ```text
/// debt'       = max(0, debt - elapsed x refill)        a token is worth `period` of debt
/// passes when   debt' + cost x period <= capacity x period
/// remaining   = floor((capacity x period - debt) / period)
/// retry_after = ceil((debt' + cost x period - capacity x period) / refill)
/// reset_after = ceil(debt / refill)                    the bucket is full again
/// ```
///
/// ```
/// use ratelimit_core::{Limit, TokenBucket};
/// use std::time::Duration;
///
/// const API: TokenBucket = TokenBucket::per_second(10);
/// assert_eq!((API.capacity(), API.refill()), (10, 10));
///
/// let bursty = TokenBucket::new(100, 10, Duration::from_secs(1))?;
/// assert_eq!(Limit::from(bursty).to_string(), "token_bucket 10/s burst 100");
/// # Ok::<(), ratelimit_core::InvalidLimit>(())
/// ```
///
/// The page is `docs/algorithms/token_bucket.md`, the Lua twin `lua/token_bucket.lua`.
#[doc(alias = "GCRA")]
#[doc(alias = "burst")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// The shared arithmetic, with `algorithm` set to `TokenBucket` and without delays.
    pub(crate) bucket: Bucket,
}

impl TokenBucket {
    /// A bucket that holds `capacity` tokens and gains `refill` of them each `period`.
    ///
    /// `capacity` is the largest burst, `refill / period` the sustained rate. The two are
    /// independent.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit::Zero`] when `capacity` or `refill` is 0
    /// - [`InvalidLimit::Refill`] when `refill` is 2^53 or more
    /// - [`InvalidLimit::Period`] when `period` lies outside 1 ms to 366 days
    /// - [`InvalidLimit::TooLarge`] or [`InvalidLimit::Uneven`] when `capacity` x `period` cannot
    ///   be counted exactly
    pub const fn new(
        capacity: u64,
        refill: u64,
        period: Duration,
    ) -> Result<TokenBucket, InvalidLimit> {
        match Bucket::new(capacity, refill, period, Algorithm::TokenBucket) {
            Ok(bucket) => Ok(TokenBucket { bucket }),
            Err(invalid) => Err(invalid),
        }
    }

    /// `limit` each second, and as many in a burst.
    ///
    /// # Panics
    ///
    /// When `limit` is zero or too large to be counted exactly. In a `const` this is a compile
    /// error.
    pub const fn per_second(limit: u64) -> TokenBucket {
        TokenBucket::every(limit, 1)
    }

    /// `limit` each minute, and as many in a burst.
    ///
    /// # Panics
    ///
    /// When `limit` is zero or too large to be counted exactly. In a `const` this is a compile
    /// error.
    pub const fn per_minute(limit: u64) -> TokenBucket {
        TokenBucket::every(limit, 60)
    }

    /// `limit` each hour, and as many in a burst.
    ///
    /// # Panics
    ///
    /// When `limit` is zero or too large to be counted exactly. In a `const` this is a compile
    /// error.
    pub const fn per_hour(limit: u64) -> TokenBucket {
        TokenBucket::every(limit, 3_600)
    }

    /// A bucket whose capacity is its refill.
    const fn every(limit: u64, secs: u64) -> TokenBucket {
        match TokenBucket::new(limit, limit, Duration::from_secs(secs)) {
            Ok(bucket) => bucket,
            Err(_) => panic!("the limit must be at least 1 and countable exactly"),
        }
    }

    /// The most tokens it holds: the largest burst.
    pub const fn capacity(&self) -> u64 {
        self.bucket.capacity
    }

    /// The tokens gained in each period.
    pub const fn refill(&self) -> u64 {
        self.bucket.refill
    }

    /// The time in which `refill` tokens are gained.
    pub const fn period(&self) -> Duration {
        self.bucket.period.duration()
    }
}
