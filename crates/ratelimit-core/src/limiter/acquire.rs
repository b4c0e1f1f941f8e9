//! Waiting until a hit is allowed (feature `acquire`).

use std::{error, fmt, ops::ControlFlow, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::limiter::{Limiter, LimiterInner, Verdict, WaitQueues, denial::is_slot_limit};
use crate::{decision::Decision, key::Key, limit::Limit, policy::Policy};

/// Minimum sleep between two attempts: the resolution of tokio's timers.
const MIN_WAIT: Duration = Duration::from_millis(1);
/// Maximum of `within`, about 30 years: `Instant::now() + Duration::MAX` would overflow.
const MAX_WAIT: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

impl Limiter {
    /// Waits until one unit of the budget of `key` is free and spends it, for at most `within`.
    ///
    /// It is [`acquire_cost`](Limiter::acquire_cost) with a cost of 1, whatever [`Policy::cost`] is.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] when the hit is not allowed within that time.
    #[doc(alias = "wait")]
    #[doc(alias = "until_ready")]
    #[doc(alias = "throttle")]
    pub async fn acquire(
        &self,
        policy: &Policy,
        key: &Key,
        within: Duration,
    ) -> Result<Verdict, AcquireError> {
        self.acquire_cost(policy, key, 1, within).await
    }

    /// Waits until `cost` units of the budget of `key` are free and spends them, for at most `within`.
    ///
    /// - It checks. When the hit is denied, it sleeps for `retry_after` and checks again. A denied hit spends nothing,
    ///   unless a limit counts denied hits.
    /// - The delay of a leaky bucket is slept as well, within the same time.
    /// - Waiters of one process for one policy and key form a FIFO queue. Only the first of them calls the store, so
    ///   waiting does not load it. Between processes there is no order.
    /// - Each queue is bounded by [`max_waiters`](Limiter::max_waiters).
    /// - Under a policy that is not [enforced](Policy::enforces) for `key`, such as one in shadow mode, the hit is checked
    ///   once and returned without waiting.
    /// - A concurrency slot that it takes is held until its lease ends; nothing is reserved. While all slots are taken, it
    ///   checks once a second, and a last time at the deadline.
    /// - Dropping the future leaves the queue, and the next waiter moves up. A call to Redis in flight at that moment may
    ///   be counted.
    ///
    /// It needs a tokio runtime with a timer.
    ///
    /// ```
    /// use ratelimit_core::{Key, Limiter, Policy};
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let limiter = Limiter::in_memory();
    /// let mails = Policy::parse("mails", "50/s burst 1")?;
    /// let alice = Key::new("alice")?;
    ///
    /// for _ in 0..3 {
    ///     let turn = limiter.acquire(&mails, &alice, Duration::from_secs(1)).await?;
    ///     assert!(turn.is_allowed());
    /// }
    /// let late = limiter.acquire(&mails, &alice, Duration::ZERO).await.unwrap_err();
    /// assert!(late.retry_after.unwrap() <= Duration::from_millis(20));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`AcquireError`] when the hit is not allowed within the time. It is returned early where that is certain:
    ///
    /// - `retry_after` of a denial, or the delay of a leaky bucket, is longer than the time that is left;
    /// - the cost can never pass, or [`FailureMode::Closed`](crate::FailureMode::Closed) denied the hit;
    /// - the queue is full;
    /// - the first waiter checks again after that time.
    ///
    /// A waiter further back in the queue gets the error when its time is over.
    pub async fn acquire_cost(
        &self,
        policy: &Policy,
        key: &Key,
        cost: u64,
        within: Duration,
    ) -> Result<Verdict, AcquireError> {
        let tier = policy.for_key(key);
        if !tier.enforces(key) {
            return Ok(self.check_cost(policy, key, cost).await);
        }
        let wait = Attempt {
            limiter: self,
            policy,
            shapes: tier.limits().iter().any(shapes),
            key,
            cost,
            until: Instant::now() + within.min(MAX_WAIT),
        };
        let verdict = wait.until_allowed().await?;
        wait.wait_delay(verdict).await
    }

    /// Sets the maximum number of waiters for one policy and key in this process; the default is 10,000.
    ///
    /// Beyond it [`acquire`](Limiter::acquire) fails immediately. Call it before the first `acquire`: the limiter gets new,
    /// empty queues.
    #[must_use]
    pub fn max_waiters(self, most: usize) -> Limiter {
        let shared = LimiterInner {
            wait_queues: Arc::new(WaitQueues::new(most)),
            ..Arc::unwrap_or_clone(self.shared)
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// Returns the number of waiters for one policy and key in this process, including the first of the queue.
    pub fn waiting(&self, policy: &Policy, key: &Key) -> usize {
        self.shared.wait_queues.waiting(policy, key)
    }
}

/// One call of [`Limiter::acquire_cost`]: the hit, and its deadline.
struct Attempt<'a> {
    limiter: &'a Limiter,
    /// With its tiers: the tier of the key is resolved by each check.
    policy: &'a Policy,
    /// Whether a limit of the key's tier delays allowed hits (shaping).
    shapes: bool,
    key: &'a Key,
    cost: u64,
    /// The deadline.
    until: Instant,
}

impl Attempt<'_> {
    /// Waits until the hit is allowed: one attempt without the queue if the queue is empty, then in the queue.
    ///
    /// # Errors
    ///
    /// As [`Limiter::acquire_cost`].
    async fn until_allowed(&self) -> Result<Verdict, AcquireError> {
        let wait_queues = &self.limiter.shared.wait_queues;
        let mut not_before = Instant::now();
        if wait_queues.waiting(self.policy, self.key) == 0 {
            match self.try_once().await? {
                ControlFlow::Break(verdict) => return Ok(verdict),
                ControlFlow::Continue(moment) => not_before = moment,
            }
        }
        let Some(mut ticket) = wait_queues.enqueue(self.policy, self.key) else {
            return Err(AcquireError::default());
        };
        // No waiter behind the first can be allowed before its next attempt.
        if ticket.next_attempt().is_some_and(|next| next > self.until) {
            return Err(AcquireError::until(ticket.next_attempt()));
        }
        if ticket.wait_turn(self.until).await.is_err() {
            return Err(AcquireError::until(ticket.next_attempt()));
        }
        loop {
            ticket.set_next_attempt(not_before);
            sleep_until(not_before).await;
            match self.try_once().await? {
                ControlFlow::Break(verdict) => return Ok(verdict),
                ControlFlow::Continue(moment) => not_before = moment,
            }
        }
    }

    /// Sleeps for the delay of a leaky bucket.
    ///
    /// # Errors
    ///
    /// When the delay is longer than the time that is left. The hit stays charged; [`Attempt::try_once`] makes this rare
    /// by a peek.
    async fn wait_delay(&self, verdict: Verdict) -> Result<Verdict, AcquireError> {
        let delay = verdict.decision().map_or(Duration::ZERO, Decision::delay);
        if delay > Duration::ZERO {
            self.ensure_in_time(delay, &verdict)?;
            sleep_until(Instant::now() + delay).await;
        }
        Ok(verdict)
    }

    /// Checks once. Breaks with the verdict of an allowed hit, or continues with the time of the next attempt.
    ///
    /// # Errors
    ///
    /// When the hit can never pass, or not in time.
    async fn try_once(&self) -> Result<ControlFlow<Verdict, Instant>, AcquireError> {
        if self.shapes {
            // An allowed hit has taken its place in the bucket's queue, even if its delay turns out too long. A peek
            // reports that delay without charging.
            let peeked = self.limiter.peek(self.policy, self.key).await;
            let delay = peeked.decision().map_or(Duration::ZERO, Decision::delay);
            self.ensure_in_time(delay, &peeked)?;
        }
        let check = self.limiter.check_cost(self.policy, self.key, self.cost);
        let verdict = check.await;
        if verdict.is_allowed() {
            return Ok(ControlFlow::Break(verdict));
        }
        let Some(retry_after) = verdict.decision().and_then(Decision::retry_after) else {
            return Err(AcquireError::with_retry_after(None, &verdict));
        };
        let wait = self.wait_for_slot(retry_after, &verdict);
        self.ensure_in_time(wait, &verdict)?;
        let moment = Instant::now() + wait.max(MIN_WAIT);
        Ok(ControlFlow::Continue(moment))
    }

    /// The wait before the next attempt. For a slot it ends at the deadline at the latest, because slots are released at
    /// any time.
    fn wait_for_slot(&self, wait: Duration, verdict: &Verdict) -> Duration {
        let policy = self.policy.for_key(self.key);
        let binding = verdict.decision().map(|decision| decision.binding);
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() || !binding.is_some_and(|binding| is_slot_limit(policy, binding)) {
            return wait;
        }
        wait.min(left)
    }

    /// Fails if `wait` from now ends after the deadline.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] with `wait` and the verdict.
    fn ensure_in_time(&self, wait: Duration, verdict: &Verdict) -> Result<(), AcquireError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if wait > left {
            return Err(AcquireError::with_retry_after(Some(wait), verdict));
        }
        Ok(())
    }
}

/// Whether the limit delays allowed hits: a leaky bucket without `police`.
fn shapes(limit: &Limit) -> bool {
    matches!(limit, Limit::LeakyBucket(bucket) if !bucket.is_policing())
}

/// The hit was not allowed in time.
///
/// Nothing was spent, except when a leaky bucket's delay grew between its peek and its check.
///
/// | `retry_after` | meaning |
/// |---|---|
/// | `Some` | the hit could be allowed then, and that is later than the caller waits |
/// | `None` with a verdict | waiting does not help: the cost is above a limit, or the store did not decide |
/// | `None` without a verdict | the queue of waiters is full, or other waiters take all that comes back in time |
///
/// ```
/// use std::time::Duration;
/// use ratelimit_core::AcquireError;
///
/// /// The time after which a job is tried again.
/// fn retry_in(error: &AcquireError) -> Duration {
///     error.retry_after.unwrap_or(Duration::from_secs(60))
/// }
/// assert_eq!(retry_in(&AcquireError::default()).as_secs(), 60);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireError {
    /// The earliest time from now at which the hit could be allowed.
    ///
    /// `None` when waiting does not help, when the queue is full, or when it is unknown.
    pub retry_after: Option<Duration>,
    /// The last verdict; `None` when other waiters were first, so that no check was made.
    pub verdict: Option<Box<Verdict>>,
}

impl AcquireError {
    /// The error of a check.
    fn with_retry_after(retry_after: Option<Duration>, verdict: &Verdict) -> AcquireError {
        AcquireError {
            retry_after,
            verdict: Some(Box::new(verdict.clone())),
        }
    }

    /// The error of a waiter behind another one, whose next attempt is at `moment`.
    fn until(moment: Option<Instant>) -> AcquireError {
        let wait = |moment: Instant| moment.saturating_duration_since(Instant::now());
        AcquireError {
            retry_after: moment.map(wait),
            verdict: None,
        }
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the turn does not come in time")
    }
}

impl error::Error for AcquireError {}

#[cfg(test)]
mod tests;
