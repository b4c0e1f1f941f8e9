//! Waiting for one's turn.

use std::{error, fmt, ops::ControlFlow, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use crate::limiter::{Limiter, LimiterInner, Verdict, WaitQueues};
use crate::{decision::Decision, key::Key, limit::Limit, policy::Policy};

/// What tokio's timers can tell apart; asking more often would be asking in vain.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// For those who would wait for ever.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

impl Limiter {
    /// Spends one unit of `key`'s budget as soon as there is one, if that is `within` so long.
    ///
    /// As [`acquire_cost`](Limiter::acquire_cost) at a cost of 1.
    ///
    /// # Errors
    ///
    /// When the turn does not come in time.
    pub async fn acquire(
        &self,
        policy: &Policy,
        key: &Key,
        within: Duration,
    ) -> Result<Verdict, AcquireError> {
        self.acquire_cost(policy, key, 1, within).await
    }

    /// Spends `cost` units of `key`'s budget as soon as they are there, if that is `within` so long.
    ///
    /// It asks; when it is denied, it sleeps for as long as the answer says, and asks again. A
    /// denied hit spends nothing, so waiting costs nothing, unless a limit counts denied hits. The delay
    /// of a limit that shapes is waited out as well. It runs on a tokio runtime with a timer.
    ///
    /// Those who wait in this process for one policy and key are served in the order in which they came:
    /// only the first of them asks. Between processes there is no order. Each queue is bounded, by
    /// [`max_waiters`](Limiter::max_waiters).
    ///
    /// Under a policy that is not [enforced](Policy::enforces) for `key`, such as one in shadow mode, the
    /// hit is checked once, so that metrics count it, and the answer comes at once whatever it says.
    ///
    /// Dropping the future gives up the place; the next in the queue moves up at once. A question
    /// that is on its way to Redis at that moment may be counted, as that of any dropped request.
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
    ///     limiter.acquire(&mails, &alice, Duration::from_secs(1)).await?;
    /// }
    /// let late = limiter.acquire(&mails, &alice, Duration::ZERO).await.unwrap_err();
    /// assert!(late.retry_after.unwrap() <= Duration::from_millis(20));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the turn does not come in time. Where that is certain it is said at once: the answer names
    /// a longer wait than is left, a cost can never pass, the queue is full, or the first in
    /// the queue asks again later than that. One who stands further back learns it when the time is over.
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
            until: Instant::now() + within.min(LONGEST_WAIT),
        };
        let verdict = wait.until_allowed().await?;
        wait.wait_delay(verdict).await
    }

    /// How many may wait for one policy and key in this process; 10,000 unless set.
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

    /// How many wait for one policy and key in this process.
    pub fn waiting(&self, policy: &Policy, key: &Key) -> usize {
        self.shared.wait_queues.waiting(policy, key)
    }
}

struct Attempt<'a> {
    limiter: &'a Limiter,
    policy: &'a Policy,
    /// Whether the policy of the key's tier delays hits that pass.
    shapes: bool,
    key: &'a Key,
    cost: u64,
    until: Instant,
}

impl Attempt<'_> {
    /// Waits until the hit passes.
    async fn until_allowed(&self) -> Result<Verdict, AcquireError> {
        let wait_queues = &self.limiter.shared.wait_queues;
        let mut not_before = Instant::now();
        if wait_queues.waiting(self.policy, self.key) == 0 {
            match self.try_once().await? {
                ControlFlow::Break(verdict) => return Ok(verdict),
                ControlFlow::Continue(moment) => not_before = moment,
            }
        }
        let Some(mut index) = wait_queues.enqueue(self.policy, self.key) else {
            return Err(AcquireError::default());
        };
        if index.next_attempt().is_some_and(|next| next > self.until) {
            return Err(AcquireError::until(index.next_attempt()));
        }
        if index.wait_turn(self.until).await.is_err() {
            return Err(AcquireError::until(index.next_attempt()));
        }
        loop {
            index.set_next_attempt(not_before);
            sleep_until(not_before).await;
            match self.try_once().await? {
                ControlFlow::Break(verdict) => return Ok(verdict),
                ControlFlow::Continue(moment) => not_before = moment,
            }
        }
    }

    /// Waits out the delay of a limit that shapes.
    async fn wait_delay(&self, verdict: Verdict) -> Result<Verdict, AcquireError> {
        let delay = verdict.decision().map_or(Duration::ZERO, Decision::delay);
        if delay > Duration::ZERO {
            self.ensure_in_time(delay, &verdict)?;
            sleep_until(Instant::now() + delay).await;
        }
        Ok(verdict)
    }

    /// Asks once: the hit passed, or it is in vain to ask again before some moment.
    async fn try_once(&self) -> Result<ControlFlow<Verdict, Instant>, AcquireError> {
        if self.shapes {
            // A hit that passes has taken its place in the line, also when that turns out too far
            // back; a look finds it out for nothing.
            let looked = self.limiter.peek(self.policy, self.key).await;
            let delay = looked.decision().map_or(Duration::ZERO, Decision::delay);
            self.ensure_in_time(delay, &looked)?;
        }
        let check = self.limiter.check_cost(self.policy, self.key, self.cost);
        let verdict = check.await;
        if verdict.is_allowed() {
            return Ok(ControlFlow::Break(verdict));
        }
        let Some(retry_after) = verdict.decision().and_then(Decision::retry_after) else {
            return Err(AcquireError::with_retry_after(None, &verdict));
        };
        self.ensure_in_time(retry_after, &verdict)?;
        let moment = Instant::now() + retry_after.max(SHORTEST_WAIT);
        Ok(ControlFlow::Continue(moment))
    }

    /// Whether a wait ends in time.
    fn ensure_in_time(&self, wait: Duration, verdict: &Verdict) -> Result<(), AcquireError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if wait > left {
            return Err(AcquireError::with_retry_after(Some(wait), verdict));
        }
        Ok(())
    }
}

/// Whether it asks those that it admits to wait.
fn shapes(limit: &Limit) -> bool {
    matches!(limit, Limit::LeakyBucket(bucket) if !bucket.is_policing())
}

/// The turn does not come in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AcquireError {
    /// After how long the turn would come at the earliest; nothing when waiting does not help, or
    /// nobody knows.
    pub retry_after: Option<Duration>,
    /// What the limiter said last; nothing when it was not asked, because others wait already.
    pub verdict: Option<Box<Verdict>>,
}

impl AcquireError {
    fn with_retry_after(retry_after: Option<Duration>, verdict: &Verdict) -> AcquireError {
        AcquireError {
            retry_after,
            verdict: Some(Box::new(verdict.clone())),
        }
    }

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
