//! The contract of a store: the trait, its future, its errors, and the result of a settlement.

use std::{
    error::Error,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use crate::store::{
    hit::Hit,
    joint::{CannotJoin, JointHit},
    receipt::Receipt,
};
use crate::{budget::Adjustment, decision::Charged, key_set::KeySet, policy::Policy, time::Clock};

/// Decides hits, and keeps the budgets.
///
/// - **Atomic**: a store decides a hit in one step. Among all callers that share the store, no two spend the same
///   unit. Several limits of one hit are charged all or nothing.
/// - **A denial is an answer**. An error means that the store could not decide; the failure mode of the policy then
///   decides ([`Limiter`](crate::Limiter)).
/// - **Bounded**: a future ends within the store's time budget. It never waits for a connection.
/// - **Dropping a future** before it is ready may leave the hit counted or not counted. The store releases a
///   concurrency slot that such a hit has taken.
///
/// [`MemoryStore`](crate::MemoryStore) and `RedisStore` (feature `redis`) are the stores of this crate. Implement the
/// trait to wrap one of them, for example to inject faults in a test, or for a store of your own:
/// [`Decision::from_limits`](crate::Decision::from_limits) makes its decisions, and `decision.into()` its answers.
///
/// ```
/// use ratelimit_core::{Key, MemoryStore, Policy, store::{Hit, Store}};
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
/// let charged = block_on(store.hit(Hit::new(&policy, &key)))?;
/// assert_eq!(charged.decision.remaining, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Spends the cost of a hit if all limits allow it, and nothing otherwise.
    ///
    /// A hit of cost 0 (a peek) and a dry run spend nothing. The future fails with the variants of [`StoreError`].
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged>;

    /// Decides the members of a joint hit in one step, and charges all that fit if the joint hit passes.
    ///
    /// - The decisions are in the order of `members`. Where the joint hit does not pass, a member that fits has the
    ///   decision of a dry run.
    /// - The joint hit passes if every `Must` and one of the `Any`, if there are any, is allowed by its decision. The
    ///   limiter derives it in the same way, so the decisions are the whole answer.
    /// - The default implementation fails with [`StoreError::Refused`], and the failure modes decide.
    ///
    /// ```
    /// use ratelimit_core::{Key, MemoryStore, Policy, store::{Hit, JointHit, Store}};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let store = MemoryStore::new();
    /// let (few, many) = (Policy::parse("few", "1/min")?, Policy::parse("many", "9/min")?);
    /// let key = Key::new("alice")?;
    /// let members = [&few, &many].map(|policy| JointHit::new(Hit::new(policy, &key)));
    ///
    /// let first = store.hit_joint(&members).await?;
    /// assert_eq!((first[0].decision.remaining, first[1].decision.remaining), (0, 8));
    /// let second = store.hit_joint(&members).await?;
    /// assert!(!second[0].decision.is_allowed() && second[1].decision.is_allowed());
    /// assert_eq!(second[1].decision.remaining, 8);
    /// # Ok(())
    /// # }
    /// ```
    fn hit_joint(&self, members: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        let _ = members;
        StoreFuture::ready(Err(StoreError::refused(CannotJoin)))
    }

    /// Changes a charge that was made earlier: refunds it, charges more, releases or renews its slot.
    ///
    /// - A refund never credits units that time has restored already, nor units of another charge.
    /// - The call is not idempotent, except for release and renewal. [`Limiter::settle`](crate::Limiter::settle)
    ///   makes it happen once for each receipt.
    /// - The default implementation fails with [`StoreError::Refused`], and the charge stays.
    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        // Refusing is safe: the charge stays, and a refund that is lost never weakens a limit.
        let _ = (receipt, change);
        StoreFuture::ready(Err(StoreError::refused(CannotSettle)))
    }

    /// Clears what `keys` have spent in the budgets of `policy`.
    ///
    /// Tiers with budgets under other names need calls of their own; [`Limiter::reset`](crate::Limiter::reset) makes them.
    /// Receipts from before the reset give nothing back.
    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()>;

    /// Releases the slot of a charge whose holder was dropped. It returns immediately and reports no result.
    ///
    /// The default implementation spawns the call on the current tokio runtime (feature `tokio`). Without a runtime,
    /// a slot in a store that is not synchronous is held until its lease ends.
    fn release_in_background(&self, receipt: &Receipt) {
        // A synchronous store has released the slot by now; only a pending call needs a runtime.
        let released = self.settle(receipt, Adjustment::Release).try_ready();
        #[cfg(feature = "tokio")]
        if let (Err(released), Ok(runtime)) = (released, tokio::runtime::Handle::try_current()) {
            runtime.spawn(released);
        }
        #[cfg(not(feature = "tokio"))]
        drop(released);
    }

    /// Returns the clock that the store decides on if it is a [manual](Clock::manual) one, for tests.
    ///
    /// The deny cache measures the age of denials by it. A store that wraps another one returns the clock of that.
    fn manual_clock(&self) -> Option<Clock> {
        None
    }

    /// Whether all budgets of a hit are charged at the same moment, by one clock. Hits on several nodes are not.
    #[doc(hidden)]
    fn decides_in_one_step(&self, _hit: &Hit<'_>) -> bool {
        true
    }

    /// Returns a timer on the clock of a simulation, which replaces tokio's timers.
    #[doc(hidden)]
    fn virtual_timer(&self, _span: Duration) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        None
    }
}

/// Forwards every method, so that the defaults do not replace those of the inner store.
impl<S: Store + ?Sized> Store for Arc<S> {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        (**self).hit(hit)
    }

    fn hit_joint(&self, members: &[JointHit<'_>]) -> StoreFuture<Vec<Charged>> {
        (**self).hit_joint(members)
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

    fn decides_in_one_step(&self, hit: &Hit<'_>) -> bool {
        (**self).decides_in_one_step(hit)
    }

    fn virtual_timer(&self, span: Duration) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        (**self).virtual_timer(span)
    }
}

/// The source of the error of a store without [`Store::settle`].
#[derive(Debug)]
struct CannotSettle;

impl fmt::Display for CannotSettle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this store changes no charges")
    }
}

impl Error for CannotSettle {}

/// Result of a change to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// The change was made, at least in part.
    Applied,
    /// Nothing was changed: time had restored the units already, the budget had no room for a further charge, or the slot
    /// was free.
    Unchanged,
    /// The slot to be renewed is no longer held: its lease has ended, or it was released.
    LeaseLost,
}

/// The future of a store's answer. It needs no allocation when the answer is ready.
///
/// A ready future saves a box, a waker and a second poll: [`MemoryStore`](crate::MemoryStore) returns only such
/// futures. `pending` boxes its future.
///
/// ```
/// use ratelimit_core::store::{StoreError, StoreFuture};
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

/// The two kinds of futures, without a dynamic call for the ready one.
enum Repr<T> {
    /// `None` once it was polled.
    Ready(Option<Result<T, StoreError>>),
    Later(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> StoreFuture<T> {
    /// A future that is ready with `answer`.
    #[inline]
    pub const fn ready(answer: Result<T, StoreError>) -> StoreFuture<T> {
        StoreFuture(Repr::Ready(Some(answer)))
    }

    /// A future that runs `future`, in a box.
    pub fn pending(
        future: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<T> {
        StoreFuture(Repr::Later(Box::pin(future)))
    }

    /// Returns the answer if it is ready, and the future otherwise.
    ///
    /// # Errors
    ///
    /// The unchanged future, if the answer is still pending.
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

/// Why a store could not decide a hit.
///
/// Only [`Limiter`](crate::Limiter) turns an error into a verdict, by the failure mode of the policy. Errors are cheap
/// to clone, because one failed batch fails many hits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached: there is no connection, or it broke during this call.
    Unavailable {
        /// The cause, if this call may have been executed. `None`: there was no connection, or the server refuses all
        /// calls, so nothing was executed.
        source: Option<Arc<dyn Error + Send + Sync>>,
    },
    /// The store did not answer within the time budget. The hit was counted once or not at all.
    TimedOut,
    /// The time budget ended before the store executed the call: nothing was charged.
    TooLate,
    /// Too many calls are in flight; nothing was sent.
    Overloaded,
    /// The store answered with an error about this call, such as a corrupt value. Other calls may succeed.
    Refused {
        /// The store's error.
        source: Arc<dyn Error + Send + Sync>,
    },
}

impl StoreError {
    /// Makes an [`Unavailable`](StoreError::Unavailable) error with its cause.
    pub fn unavailable(source: impl Error + Send + Sync + 'static) -> StoreError {
        StoreError::Unavailable {
            source: Some(Arc::new(source)),
        }
    }

    /// Makes a [`Refused`](StoreError::Refused) error with the store's error.
    pub fn refused(source: impl Error + Send + Sync + 'static) -> StoreError {
        StoreError::Refused {
            source: Arc::new(source),
        }
    }
}

impl StoreError {
    /// Whether the store certainly did not charge the hit.
    pub(crate) const fn charged_nothing(&self) -> bool {
        match self {
            StoreError::TooLate | StoreError::Overloaded | StoreError::Refused { .. } => true,
            StoreError::Unavailable { source } => source.is_none(),
            StoreError::TimedOut => false,
        }
    }

    /// Whether a call that failed may have been executed. Without a source nothing was.
    #[cfg(feature = "redis")]
    pub(crate) const fn may_have_run(&self) -> bool {
        matches!(
            self,
            StoreError::TimedOut | StoreError::Unavailable { source: Some(_) }
        )
    }

    /// Whether nothing was executed and time is left, so that the same call may be made again.
    #[cfg(feature = "tokio")]
    pub(crate) const fn may_be_repeated(&self) -> bool {
        matches!(
            self,
            StoreError::Overloaded | StoreError::Unavailable { source: None }
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreError::Unavailable { .. } => "the rate limit store cannot be reached",
            StoreError::TimedOut | StoreError::TooLate => {
                "the rate limit store did not answer in time"
            }
            StoreError::Overloaded => "too many calls to the rate limit store are under way",
            StoreError::Refused { .. } => "the rate limit store could not decide this hit",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The cause is shared by all hits of a failed batch, so it is behind an `Arc`.
            StoreError::Unavailable { source } => {
                source.as_deref().map(|s| s as &(dyn Error + 'static))
            }
            StoreError::Refused { source } => Some(&**source),
            StoreError::TimedOut | StoreError::TooLate | StoreError::Overloaded => None,
        }
    }
}
