//! Decides hits, and what happens when the store does not answer.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use crate::{
    decision::Decision,
    key::Key,
    policy::Policy,
    store::{Hit, MemoryStore, Store, StoreError, StoreFuture},
};

/// What happens to a hit that the store did not decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureMode {
    /// A memory store of this process decides with the same limits.
    ///
    /// It refuses nothing that a healthy store would have allowed, and bounds an outage: at most
    /// the number of instances times the limit passes.
    #[default]
    Local,
    /// Everything passes.
    Open,
    /// Nothing passes.
    Closed,
}

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
        match self.shared.store.hit(hit).into_ready() {
            Ok(answer) => Check(Progress::Decided(Some(self.verdict(hit, answer)))),
            Err(answer) => Check(Progress::Asking(Box::new(Asking {
                answer,
                limiter: self.clone(),
                policy: policy.clone(),
                key: key.clone(),
                cost,
            }))),
        }
    }

    /// Looks at `key`'s budget without spending.
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

    /// The one place where a store's failure becomes an answer.
    fn verdict(&self, hit: Hit<'_>, answer: Result<Decision, StoreError>) -> Verdict {
        let error = match answer {
            Ok(decision) => return Verdict::Checked(decision),
            Err(error) => error,
        };
        let policy = hit.policy.name();
        tracing::debug!(policy, error = %Causes(&error), "not decided by the store");
        let mode = self.shared.failure_mode;
        Verdict::Unchecked {
            mode,
            reason: match error {
                StoreError::Unavailable { .. } => Reason::Unavailable,
                StoreError::Refused { .. } => Reason::Refused,
            },
            decision: (mode == FailureMode::Local).then(|| self.shared.local.decide(hit)),
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

enum Progress {
    Decided(Option<Verdict>),
    Asking(Box<Asking>),
}

/// An answer that is still to come, and what is needed should it not.
struct Asking {
    answer: StoreFuture<Decision>,
    limiter: Limiter,
    policy: Policy,
    key: Key,
    cost: u64,
}

impl Check {
    /// The verdict, if it is there already: a memory store needs no waiting.
    ///
    /// # Errors
    ///
    /// The check itself, when the verdict is still to come.
    pub fn into_ready(self) -> Result<Verdict, Check> {
        match self.0 {
            Progress::Decided(verdict) => Ok(verdict.expect("polled after completion")),
            asking @ Progress::Asking(_) => Err(Check(asking)),
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

/// What a limiter answers.
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
        /// What the process's own store said, in [`FailureMode::Local`].
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
    /// It could not be reached, or did not answer in time.
    Unavailable,
    /// It answered with an error about this one call.
    Refused,
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
