//! What every store promises.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use super::{receipt::Receipt, slot};
use crate::{
    decision::Decision,
    key::Key,
    keys::{Keys, NamedKey, find},
    policy::{Asked, Change, Group, Overdraft, Policy, Purpose},
};

/// Where budgets live.
///
/// A store decides a hit atomically: among all that share the store, no two spend the same unit.
/// Being denied is an answer; an error means that the store could not decide.
///
/// ```
/// use ratelimit_core::{Hit, Key, MemoryStore, Policy, Store};
/// # fn block_on<F: std::future::Future>(f: F) -> F::Output {
/// #     let mut f = std::pin::pin!(f);
/// #     let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
/// #     loop { if let std::task::Poll::Ready(out) = f.as_mut().poll(&mut cx) { return out } }
/// # }
///
/// let store = MemoryStore::new();
/// let policy = Policy::parse("api", "2/min")?;
/// let key = Key::explicit("alice")?;
///
/// let decision = block_on(store.hit(Hit::new(&policy, &key)))?;
/// assert_eq!(decision.remaining, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Spends a hit's cost, or nothing; a cost of 0 looks without spending.
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision>;

    /// Changes a charge that was made earlier: gives it back, raises it, releases or renews its slot.
    ///
    /// Giving back never credits what time has given back already, and never another charge. A store
    /// that cannot do this refuses, and what was charged stays charged.
    fn settle(&self, receipt: &Receipt, change: Change) -> StoreFuture<Settled> {
        let _ = (receipt, change);
        StoreFuture::ready(Err(StoreError::refused(CannotSettle)))
    }

    /// Forgets what `keys` have spent under `policy`.
    fn reset(&self, policy: &Policy, keys: &Keys) -> StoreFuture<()>;
}

#[derive(Debug)]
struct CannotSettle;

impl fmt::Display for CannotSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this store changes no charges")
    }
}

impl Error for CannotSettle {}

/// What became of a change to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// It was made, at least in part.
    Changed,
    /// There was nothing to change.
    Unchanged,
    /// The slot that was to be renewed is not held any more.
    Lost,
}

/// What is asked of a store.
///
/// ```
/// use ratelimit_core::{Hit, Key, Policy};
///
/// let policy = Policy::parse("upload", "1000000/min")?;
/// let key = Key::explicit("alice")?;
/// let hit = Hit::new(&policy, &key).cost(4096);
/// assert_eq!(hit.cost, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Hit<'a> {
    /// Under which limits.
    pub policy: &'a Policy,
    /// Whose budget.
    pub key: &'a Key,
    /// How much; 0 only looks.
    pub cost: u64,
    /// Under which number a concurrency limit knows the hit: one of its own for each that may hold a
    /// slot.
    pub slot: u64,
    /// Whether it may go beyond a limit, as far as the policy has it.
    pub overdraft: Overdraft,
    /// Whether it is meant, or only tried.
    pub purpose: Purpose,
    others: &'a [NamedKey],
}

impl<'a> Hit<'a> {
    /// A hit of cost 1.
    pub fn new(policy: &'a Policy, key: &'a Key) -> Hit<'a> {
        Hit {
            policy,
            key,
            cost: 1,
            slot: 0,
            overdraft: policy.throttle_mode().overdraft(),
            purpose: Purpose::Spend,
            others: &[],
        }
    }

    /// A hit of cost 1 on the budgets of several keys.
    pub fn by(policy: &'a Policy, keys: &'a Keys) -> Hit<'a> {
        Hit {
            others: keys.others(),
            ..Hit::new(policy, keys.own())
        }
    }

    /// The same hit at another cost.
    #[must_use]
    pub const fn cost(mut self, cost: u64) -> Hit<'a> {
        self.cost = cost;
        self
    }

    /// The same hit, known to concurrency limits by `slot`.
    #[must_use]
    pub const fn slot(mut self, slot: u64) -> Hit<'a> {
        self.slot = slot;
        self
    }

    /// The same hit, which may or may not go beyond a limit.
    #[must_use]
    pub const fn overdraft(mut self, overdraft: Overdraft) -> Hit<'a> {
        self.overdraft = overdraft;
        self
    }

    /// The same hit, which only tells whether it would pass, and when.
    #[must_use]
    pub const fn foresee(mut self) -> Hit<'a> {
        self.purpose = Purpose::Foresee;
        self
    }

    /// Whether it spends nothing, whatever is answered.
    pub(crate) const fn is_look(&self) -> bool {
        self.cost == 0 || matches!(self.purpose, Purpose::Foresee)
    }

    /// The same hit with a slot of its own, where it needs one and has none.
    #[must_use]
    pub fn fresh_slot(mut self) -> Hit<'a> {
        if self.slot == 0 && self.policy.holds_slots() {
            self.slot = slot::unused();
        }
        self
    }

    /// The same hit with a number of its own, which tells its charge from all others.
    pub(crate) fn numbered(mut self) -> Hit<'a> {
        if self.slot == 0 {
            self.slot = slot::unused();
        }
        self
    }

    /// The same hit under other limits.
    pub(crate) const fn under<'b>(self, policy: &'b Policy) -> Hit<'b>
    where
        'a: 'b,
    {
        Hit { policy, ..self }
    }

    /// All its keys.
    pub fn keys(&self) -> Keys {
        Keys::of(self.key, self.others)
    }

    /// The key that a group of limits counts by.
    pub(crate) fn key_of(&self, group: &Group) -> &'a Key {
        let by = group.by.as_deref();
        by.and_then(|by| find(self.others, by)).unwrap_or(self.key)
    }

    pub(crate) const fn asked(&self) -> Asked {
        Asked {
            cost: self.cost,
            slot: self.slot,
            overdraft: self.overdraft,
            purpose: self.purpose,
        }
    }
}

/// A store's answer, now or later; it takes no allocation when it is there already.
///
/// ```
/// use ratelimit_core::{StoreError, StoreFuture};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let known: StoreFuture<u64> = StoreFuture::ready(Ok(7));
/// let asked: StoreFuture<u64> = StoreFuture::later(async { Err(StoreError::TimedOut) });
///
/// assert_eq!(known.await?, 7);
/// assert!(asked.await.is_err());
/// # Ok(())
/// # }
/// ```
#[must_use = "a store does its work when its future is polled"]
pub struct StoreFuture<T>(Answer<T>);

enum Answer<T> {
    Ready(Option<Result<T, StoreError>>),
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> StoreFuture<T> {
    /// An answer that is there already.
    pub const fn ready(answer: Result<T, StoreError>) -> StoreFuture<T> {
        StoreFuture(Answer::Ready(Some(answer)))
    }

    /// An answer that `future` will give.
    pub fn later(
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<T> {
        StoreFuture(Answer::Later(Box::pin(future)))
    }

    /// The answer, if it is there already.
    pub(crate) fn into_ready(self) -> Result<Result<T, StoreError>, StoreFuture<T>> {
        match self.0 {
            Answer::Ready(answer) => Ok(answer.expect("not polled yet")),
            later @ Answer::Later(_) => Err(StoreFuture(later)),
        }
    }
}

impl<T: Unpin> Future for StoreFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Answer::Ready(answer) => Poll::Ready(answer.take().expect("polled after completion")),
            Answer::Later(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Answer::Ready(_) => "StoreFuture::Ready",
            Answer::Later(_) => "StoreFuture::Later",
        })
    }
}

/// Why a store could not decide.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached.
    Unavailable {
        /// What happened, where that is known to this call.
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// The store did not answer within the time budget.
    TimedOut,
    /// More calls are under way than the store takes.
    Overloaded,
    /// The store answered, but not with a decision: this call fails, the next may not.
    Refused {
        /// What it said.
        source: Arc<dyn Error + Send + Sync>,
    },
}

impl StoreError {
    /// The store cannot be reached.
    pub fn unavailable(source: impl Error + Send + Sync + 'static) -> StoreError {
        StoreError::Unavailable {
            source: Some(Arc::new(source)),
        }
    }

    /// The store answered with something that is no decision.
    pub fn refused(source: impl Error + Send + Sync + 'static) -> StoreError {
        StoreError::Refused {
            source: Arc::new(source),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreError::Unavailable { .. } => "the rate limit store cannot be reached",
            StoreError::TimedOut => "the rate limit store did not answer in time",
            StoreError::Overloaded => "too many calls to the rate limit store are under way",
            StoreError::Refused { .. } => "the rate limit store could not decide this hit",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            StoreError::Unavailable { source } => {
                source.as_deref().map(|s| s as &(dyn Error + 'static))
            }
            StoreError::Refused { source } => Some(&**source),
            StoreError::TimedOut | StoreError::Overloaded => None,
        }
    }
}
