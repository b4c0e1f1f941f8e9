//! Leaky bucket: a queue that lets one out at a time.

use std::time::Duration;

use crate::algorithm::{bucket::Bucket, kind::Algorithm, period::InvalidLimit};

/// A queue that lets one out at a time, in step.
///
/// It admits what a [`TokenBucket`](crate::TokenBucket) of the same numbers admits, and tells each
/// admitted hit how long to wait for its turn; [`without_delay`](LeakyBucket::without_delay) leaves the wait out.
///
/// ```
/// use ratelimit_core::LeakyBucket;
/// use std::time::Duration;
///
/// let shaped = LeakyBucket::new(20, 10, Duration::from_secs(1))?;
/// assert_eq!(shaped.queue(), 20);
/// # Ok::<(), ratelimit_core::InvalidLimit>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    pub(crate) bucket: Bucket,
}

impl LeakyBucket {
    /// A queue of `queue` places that lets `outflow` out each `period`.
    ///
    /// # Errors
    ///
    /// When a number is zero, or too large to be counted exactly.
    pub const fn new(
        queue: u64,
        outflow: u64,
        period: Duration,
    ) -> Result<LeakyBucket, InvalidLimit> {
        match Bucket::new(queue, outflow, period, Algorithm::LeakyBucket) {
            Ok(bucket) => Ok(LeakyBucket { bucket }),
            Err(invalid) => Err(invalid),
        }
    }

    /// Admits the same and delays nothing.
    #[must_use]
    pub const fn without_delay(mut self) -> LeakyBucket {
        self.bucket.shapes = false;
        self
    }

    /// Whether it delays nothing.
    pub const fn is_policing(&self) -> bool {
        !self.bucket.shapes
    }

    /// The places in the queue.
    pub const fn queue(&self) -> u64 {
        self.bucket.capacity
    }

    /// How many leave the queue each period.
    pub const fn outflow(&self) -> u64 {
        self.bucket.refill
    }

    /// The time in which the outflow leaves.
    pub const fn period(&self) -> Duration {
        self.bucket.period.duration()
    }
}
