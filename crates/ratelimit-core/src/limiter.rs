//! Decides hits, and what happens when the store does not answer.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use crate::{
    decision::Decision,
    key::Key,
    meter,
    policy::{FailureMode, Policy},
    store::{Hit, MemoryStore, Store, StoreError, StoreFuture},
};

/// Decides hits against a store, and without it when it does not answer.
///
/// Clones share everything and are cheap.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let limiter = Limiter::in_memory();
/// let policy = Policy::parse("api", "2/min")?;
/// let alice = Key::explicit("alice")?;
///
/// assert!(limiter.check(&policy, &alice).await.is_allowed());
/// assert!(limiter.check(&policy, &alice).await.is_allowed());
/// assert!(!limiter.check(&policy, &alice).await.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    failure_mode: FailureMode,
    local: MemoryStore,
}

impl Limiter {
    /// A limiter over any store.
    pub fn new(store: impl Store) -> Limiter {
        Limiter::over(Arc::new(store), FailureMode::default())
    }

    /// A limiter whose budgets live in this process.
    pub fn in_memory() -> Limiter {
        Limiter::new(MemoryStore::new())
    }

    /// What happens to a hit that the store did not decide; [`FailureMode::Local`] unless set.
    #[must_use]
    pub fn on_failure(self, mode: FailureMode) -> Limiter {
        Limiter::over(Arc::clone(&self.shared.store), mode)
    }

    fn over(store: Arc<dyn Store>, failure_mode: FailureMode) -> Limiter {
        let shared = Shared {
            store,
            failure_mode,
            local: MemoryStore::new(),
        };
        Limiter {
            shared: Arc::new(shared),
        }
    }

    /// Spends one unit of `key`'s budget, or nothing.
    pub fn check(&self, policy: &Policy, key: &Key) -> Check {
        self.check_cost(policy, key, 1)
    }

    /// Spends `cost` units of `key`'s budget, or none of them.
    pub fn check_cost(&self, policy: &Policy, key: &Key, cost: u64) -> Check {
        let hit = Hit::new(policy, key).cost(cost);
        let started = meter::sampled_now();
        match self.shared.store.hit(hit).into_ready() {
            Ok(answer) => {
                let verdict = self.verdict(hit, answer);
                if let Some(started) = started {
                    took(hit, started);
                }
                Check(Progress::Decided(Some(verdict)))
            }
            Err(answer) => Check(Progress::Asking(Box::new(Asking {
                answer,
                started: Instant::now(),
                limiter: self.clone(),
                policy: policy.clone(),
                key: key.clone(),
                cost,
            }))),
        }
    }

    /// Looks at `key`'s budget without spending; metrics count no look.
    pub fn look(&self, policy: &Policy, key: &Key) -> Check {
        self.check_cost(policy, key, 0)
    }

    /// Forgets what `key` has spent under `policy`.
    ///
    /// # Errors
    ///
    /// When the store does not answer.
    pub async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), StoreError> {
        let forgotten = self.shared.store.reset(policy, key);
        self.shared.local.reset(policy, key).await?;
        forgotten.await
    }

    fn verdict(&self, hit: Hit<'_>, answer: Result<Decision, StoreError>) -> Verdict {
        let verdict = match answer {
            Ok(decision) => Verdict::Checked(decision),
            Err(error) => self.unchecked(hit, &error),
        };
        if hit.is_look() {
            return verdict;
        }
        let speaker = verdict.decision().map_or(0, |decision| decision.speaker);
        let meters = hit.policy.meters();
        meters.checked(speaker, verdict.is_allowed());
        if let Verdict::Unchecked { mode, reason, .. } = &verdict {
            meters.unchecked(mode.as_str(), reason.as_str());
        }
        verdict
    }

    /// The one place where a store's failure becomes an answer.
    fn unchecked(&self, hit: Hit<'_>, error: &StoreError) -> Verdict {
        let policy = hit.policy;
        tracing::debug!(policy = policy.name(), error = %Causes(error), "not decided by the store");
        let mode = policy.failure_mode().unwrap_or(self.shared.failure_mode);
        let local = &self.shared.local;
        let decision = match mode {
            FailureMode::Local => Some(local.decide(hit)),
            FailureMode::LocalShare { instances } => {
                let share = policy.shared_by(instances);
                Some(local.decide(Hit::new(&share, hit.key).cost(hit.cost)))
            }
            FailureMode::Open | FailureMode::Closed => None,
        };
        Verdict::Unchecked {
            mode,
            reason: Reason::of(error),
            decision,
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("store", &self.shared.store)
            .field("failure_mode", &self.shared.failure_mode)
            .finish_non_exhaustive()
    }
}

/// A check under way; awaiting it gives the [`Verdict`].
#[must_use = "a check is made when it is awaited"]
pub struct Check(Progress);

#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each answer from memory"
)]
enum Progress {
    Decided(Option<Verdict>),
    Asking(Box<Asking>),
}

/// An answer that is still to come, and what is needed should it not.
struct Asking {
    answer: StoreFuture<Decision>,
    started: Instant,
    limiter: Limiter,
    policy: Policy,
    key: Key,
    cost: u64,
}

impl Check {
    /// Takes the verdict, if it is there already: a memory store needs no waiting.
    ///
    /// A check whose verdict was taken is complete, and is not to be awaited.
    pub fn take_ready(&mut self) -> Option<Verdict> {
        match &mut self.0 {
            Progress::Decided(verdict) => verdict.take(),
            Progress::Asking(_) => None,
        }
    }
}

impl Future for Check {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        match &mut self.0 {
            Progress::Decided(verdict) => {
                Poll::Ready(verdict.take().expect("polled after completion"))
            }
            Progress::Asking(asking) => {
                let answer = ready!(Pin::new(&mut asking.answer).poll(cx));
                let hit = Hit::new(&asking.policy, &asking.key).cost(asking.cost);
                took(hit, asking.started);
                Poll::Ready(asking.limiter.verdict(hit, answer))
            }
        }
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Progress::Decided(_) => "Check::Decided",
            Progress::Asking(_) => "Check::Asking",
        })
    }
}

/// Tells operators how long a check took; a look is none.
fn took(hit: Hit<'_>, started: Instant) {
    if !hit.is_look() {
        hit.policy.meters().took(started.elapsed());
    }
}

/// What a limiter answers.
///
/// ```
/// use ratelimit_core::{Key, Limiter, Policy, Verdict};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let policy = Policy::parse("api", "1/min")?;
/// let verdict = Limiter::in_memory().check(&policy, &Key::explicit("alice")?).await;
///
/// match &verdict {
///     Verdict::Checked(decision) => assert_eq!(decision.remaining, 0),
///     Verdict::Unchecked { reason, .. } => eprintln!("without the store: {}", reason.as_str()),
/// }
/// assert!(verdict.is_allowed());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a verdict says whether to go on"]
pub enum Verdict {
    /// The store decided.
    Checked(Decision),
    /// The store did not decide, and the failure mode did.
    Unchecked {
        /// Which mode that was.
        mode: FailureMode,
        /// Why the store did not decide.
        reason: Reason,
        /// What the process's own store said, in the local modes.
        decision: Option<Decision>,
    },
}

impl Verdict {
    /// Whether to go on.
    pub const fn is_allowed(&self) -> bool {
        match self {
            Verdict::Checked(decision) => decision.is_allowed(),
            Verdict::Unchecked { mode, decision, .. } => match (mode, decision) {
                (FailureMode::Closed, _) => false,
                (_, Some(decision)) => decision.is_allowed(),
                (_, None) => true,
            },
        }
    }

    /// The decision, whoever made it; nothing when no store did.
    pub const fn decision(&self) -> Option<&Decision> {
        match self {
            Verdict::Checked(decision) => Some(decision),
            Verdict::Unchecked { decision, .. } => decision.as_ref(),
        }
    }
}

/// Why the store did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// There is no connection to it.
    Unavailable,
    /// It did not answer within the time budget.
    TimedOut,
    /// More calls were under way than it takes.
    Overloaded,
    /// It answered with an error about this one call.
    Refused,
}

impl Reason {
    const fn of(error: &StoreError) -> Reason {
        match error {
            StoreError::Unavailable { .. } => Reason::Unavailable,
            StoreError::TimedOut => Reason::TimedOut,
            StoreError::Overloaded => Reason::Overloaded,
            StoreError::Refused { .. } => Reason::Refused,
        }
    }

    /// The name in metrics and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Unavailable => "unavailable",
            Reason::TimedOut => "timed_out",
            Reason::Overloaded => "overloaded",
            Reason::Refused => "refused",
        }
    }
}

/// An error with all its causes, on one line.
struct Causes<'a>(&'a dyn std::error::Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
