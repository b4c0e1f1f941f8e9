//! What every store promises.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use crate::store::{hit::Hit, receipt::Receipt};
use crate::{budget::Adjustment, decision::Decision, key_set::KeySet, policy::Policy, time::Clock};

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
/// let key = Key::new("alice")?;
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
    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let _ = (receipt, change);
        StoreFuture::ready(Err(StoreError::refused(CannotSettle)))
    }

    /// Forgets what `keys` have spent under `policy`.
    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()>;

    /// Releases the slot of a charge whose holder was dropped; nobody waits for it.
    ///
    /// It runs on the current tokio runtime (feature `tokio`) unless a store knows better. Where there is none, and
    /// the store does not answer at once, the slot is held until its lease ends.
    fn release_in_background(&self, receipt: &Receipt) {
        let released = self.settle(receipt, Adjustment::Release).try_ready();
        #[cfg(feature = "tokio")]
        if let (Err(released), Ok(runtime)) = (released, tokio::runtime::Handle::try_current()) {
            runtime.spawn(released);
        }
        #[cfg(not(feature = "tokio"))]
        drop(released);
    }

    /// The clock that it decides on, where that is a [manual](Clock::manual) one.
    ///
    /// A limiter tells the age of answers by it. A store around another passes on what that says.
    fn manual_clock(&self) -> Option<Clock> {
        None
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Decision> {
        (**self).hit(hit)
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        (**self).settle(receipt, change)
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        (**self).reset(policy, keys)
    }

    fn release_in_background(&self, receipt: &Receipt) {
        (**self).release_in_background(receipt);
    }

    fn manual_clock(&self) -> Option<Clock> {
        (**self).manual_clock()
    }
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
pub enum Settlement {
    /// It was made, at least in part.
    Applied,
    /// There was nothing to change.
    Unchanged,
    /// The slot that was to be renewed is not held any more.
    LeaseLost,
}

/// A store's answer, now or later; it takes no allocation when it is there already.
///
/// ```
/// use ratelimit_core::{StoreError, StoreFuture};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let known: StoreFuture<u64> = StoreFuture::ready(Ok(7));
/// let asked: StoreFuture<u64> = StoreFuture::pending(async { Err(StoreError::TimedOut) });
///
/// assert_eq!(known.await?, 7);
/// assert!(asked.await.is_err());
/// # Ok(())
/// # }
/// ```
#[must_use = "a store does its work when its future is polled"]
pub struct StoreFuture<T>(Repr<T>);

enum Repr<T> {
    Ready(Option<Result<T, StoreError>>),
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> StoreFuture<T> {
    /// An answer that is there already.
    #[inline]
    pub const fn ready(answer: Result<T, StoreError>) -> StoreFuture<T> {
        StoreFuture(Repr::Ready(Some(answer)))
    }

    /// An answer that `future` will give.
    pub fn pending(
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<T> {
        StoreFuture(Repr::Later(Box::pin(future)))
    }

    /// The answer, if it is there already.
    #[inline]
    pub(crate) fn try_ready(self) -> Result<Result<T, StoreError>, StoreFuture<T>> {
        match self.0 {
            Repr::Ready(answer) => Ok(answer.expect("not polled yet")),
            later @ Repr::Later(_) => Err(StoreFuture(later)),
        }
    }
}

impl<T: Unpin> Future for StoreFuture<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Repr::Ready(answer) => Poll::Ready(answer.take().expect("polled after completion")),
            Repr::Later(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Repr::Ready(_) => "StoreFuture::Ready",
            Repr::Later(_) => "StoreFuture::Later",
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
