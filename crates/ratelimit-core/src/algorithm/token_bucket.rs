//! Token bucket: refills steadily, lets bursts through until it is empty.

use std::time::Duration;

use crate::algorithm::{bucket::Bucket, kind::Algorithm, period::InvalidLimit};

/// A bucket of tokens that refills steadily and lets bursts through until it is empty.
///
/// ```
/// use ratelimit_core::TokenBucket;
/// use std::time::Duration;
///
/// const API: TokenBucket = TokenBucket::per_second(10);
/// let bursty = TokenBucket::new(100, 10, Duration::from_secs(1))?;
/// assert_eq!(bursty.capacity(), 100);
/// # Ok::<(), ratelimit_core::InvalidLimit>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    pub(crate) bucket: Bucket,
}

impl TokenBucket {
    /// A bucket that holds `capacity` tokens and gains `refill` of them each `period`.
    ///
    /// # Errors
    ///
    /// When a number is zero, or too large to be counted exactly.
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

    /// `limit` each second, and as many at once.
    ///
    /// # Panics
    ///
    /// When `limit` is zero or too large. In a `const` this is a compile error.
    pub const fn per_second(limit: u64) -> TokenBucket {
        TokenBucket::every(limit, 1)
    }

    /// `limit` each minute, and as many at once.
    ///
    /// # Panics
    ///
    /// When `limit` is zero or too large. In a `const` this is a compile error.
    pub const fn per_minute(limit: u64) -> TokenBucket {
        TokenBucket::every(limit, 60)
    }

    /// `limit` each hour, and as many at once.
    ///
    /// # Panics
    ///
    /// When `limit` is zero or too large. In a `const` this is a compile error.
    pub const fn per_hour(limit: u64) -> TokenBucket {
        TokenBucket::every(limit, 3_600)
    }

    const fn every(limit: u64, secs: u64) -> TokenBucket {
        match TokenBucket::new(limit, limit, Duration::from_secs(secs)) {
            Ok(bucket) => bucket,
            Err(_) => panic!("the limit must be at least 1 and countable exactly"),
        }
    }

    /// The most tokens it holds.
    pub const fn capacity(&self) -> u64 {
        self.bucket.capacity
    }

    /// The tokens gained each period.
    pub const fn refill(&self) -> u64 {
        self.bucket.refill
    }

    /// The time in which the refill is gained.
    pub const fn period(&self) -> Duration {
        self.bucket.period.duration()
    }
}
