//! Leaky bucket: a queue that drains at a steady rate.

use std::time::Duration;

use crate::algorithm::{bucket::Bucket, kind::Algorithm, period::InvalidLimit};

/// A queue that drains at a steady rate; a hit that finds a place passes with a delay.
///
/// - It admits the hits that a [`TokenBucket`](crate::TokenBucket) of the same numbers admits.
/// - An admitted hit gets `ceil(debt / outflow)` ticks of delay, where the debt is the queue before
///   it. The first hit of an idle queue has no delay. The longest delay is `(queue - 1) / outflow`
///   periods.
/// - The engine does not wait. The caller, or the middleware, waits for
///   [`Decision::delay`](crate::Decision::delay).
/// - A hit that finds the queue full is denied.
/// - [`without_delay`](LeakyBucket::without_delay) (`police` in a limit's text) admits the same
///   hits and delays none: policing instead of shaping.
///
/// ```
/// use ratelimit_core::{Key, Limiter, LeakyBucket, Policy};
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let limiter = Limiter::in_memory();
/// let printer = Policy::new("print", LeakyBucket::new(2, 1, Duration::from_secs(60))?)?;
/// let alice = Key::new("alice")?;
///
/// let first = limiter.check(&printer, &alice).await;
/// assert_eq!(first.decision().unwrap().delay(), Duration::ZERO);
/// let second = limiter.check(&printer, &alice).await;
/// assert!(second.decision().unwrap().delay() > Duration::from_secs(50));
/// assert!(!limiter.check(&printer, &alice).await.is_allowed());
/// # Ok(())
/// # }
/// ```
///
/// The page is `docs/algorithms/leaky_bucket.md`, the Lua twin `lua/token_bucket.lua`.
#[doc(alias = "queue")]
#[doc(alias = "shaping")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    /// The shared arithmetic, with `algorithm` set to `LeakyBucket`.
    pub(crate) bucket: Bucket,
}

impl LeakyBucket {
    /// A queue of `queue` places that lets `outflow` hits leave each `period`.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit::Zero`] when `queue` or `outflow` is 0
    /// - [`InvalidLimit::Refill`] when `outflow` is 2^53 or more
    /// - [`InvalidLimit::Period`] when `period` lies outside 1 ms to 366 days
    /// - [`InvalidLimit::TooLarge`] or [`InvalidLimit::Uneven`] when `queue` x `period` cannot be
    ///   counted exactly
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

    /// Admits the same hits and delays none of them.
    ///
    /// Stored states stay valid when a policy adds or removes this.
    #[doc(alias = "police")]
    #[must_use]
    pub const fn without_delay(mut self) -> LeakyBucket {
        self.bucket.shapes = false;
        self
    }

    /// Whether admitted hits are not delayed.
    pub const fn is_policing(&self) -> bool {
        !self.bucket.shapes
    }

    /// The places in the queue.
    pub const fn queue(&self) -> u64 {
        self.bucket.capacity
    }

    /// The hits that leave the queue in each period.
    pub const fn outflow(&self) -> u64 {
        self.bucket.refill
    }

    /// The time in which `outflow` hits leave.
    pub const fn period(&self) -> Duration {
        self.bucket.period.duration()
    }
}
