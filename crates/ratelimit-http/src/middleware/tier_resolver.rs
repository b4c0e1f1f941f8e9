//! Tiers that an asynchronous function looks up, such as in a database.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use ratelimit_core::Key;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, timeout},
};

use crate::key::KeyError;

/// The longest time to live and the longest timeout. Longer ones would overflow a point in time.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Lookups at the same time. Beyond it the policy chooses the tier: clients that invent keys must not open as many
/// calls to a database as they like.
const MAX_LOOKUPS: usize = 1_000;
/// The time beyond the timeout of a lookup after which a request stops waiting for it: the task may be on a runtime that
/// is blocked.
const WAIT_SLACK: Duration = Duration::from_millis(250);
/// How long a failed lookup is not repeated.
const FAILURE_TTL: Duration = Duration::from_secs(1);

/// Looks the tier of a key up with an asynchronous function, and caches it.
///
/// - `Ok(None)` leaves the choice to the policy, as its members or resolver make it.
/// - A lookup that fails, panics or takes longer than [`timeout`](Self::timeout) leaves it to the policy too.
///   The first such lookup logs a warning, and the key is looked up again after one second. So does a lookup beyond
///   1,000 at the same time.
/// - Requests of one key at the same time share one lookup. It runs in a task of its own, so a request that
///   is dropped does not end it for the others.
/// - The lookup runs between the key and the check: a request that waits for it has spent nothing, and one that
///   is exempt or blocked by a rule is not looked up.
/// - A policy without tiers is not looked up either; the layer logs a warning.
/// - A tier is cached for [`ttl`](Self::ttl), for at most [`capacity`](Self::capacity) keys; beyond it the
///   oldest is dropped. Clones share the cache.
///
/// ```
/// use ratelimit_core::Key;
/// use ratelimit_http::middleware::TierResolver;
/// use std::{io, time::Duration};
///
/// let tiers = TierResolver::new(async |key: Key| {
///     // let plan = database.plan_of(&key).await?;
///     Ok::<_, io::Error>((key.as_str() == "customer:acme").then(|| "pro".to_owned()))
/// });
/// let tiers = tiers.ttl(Duration::from_secs(300)).capacity(50_000);
/// # let _ = tiers;
/// ```
#[derive(Clone)]
pub struct TierResolver {
    lookup: Arc<Lookup>,
    ttl: Duration,
    timeout: Duration,
    capacity: usize,
    cache: Arc<Mutex<TierCache>>,
    lookups: Arc<Semaphore>,
    warned: Arc<AtomicBool>,
}

type Lookup = dyn Fn(Key) -> LookupFuture + Send + Sync;
type LookupFuture = Pin<Box<dyn Future<Output = Result<Option<String>, String>> + Send>>;
/// The tier of a key, or `None` while it is looked up.
type TierResult = Option<Option<String>>;

/// The tiers that were looked up, and those that are.
#[derive(Default)]
struct TierCache {
    entries: HashMap<Key, CachedTier>,
    /// Keys in the order in which they were entered. An entry that was replaced has another number.
    order: VecDeque<(u64, Key)>,
    next: u64,
}

struct CachedTier {
    number: u64,
    expires: Instant,
    found: watch::Receiver<TierResult>,
}

/// A tier that is known, or is being looked up.
pub(crate) enum TierLookup {
    Known(Option<String>),
    Pending(PendingLookup),
}

/// A lookup under way, and the longest wait for it.
pub(crate) struct PendingLookup {
    found: watch::Receiver<TierResult>,
    max_wait: Duration,
}

impl TierResolver {
    /// Looks tiers up with `lookup`.
    ///
    /// | setting | default |
    /// |---|---|
    /// | [`ttl`](Self::ttl) | one minute |
    /// | [`capacity`](Self::capacity) | 10,000 keys |
    /// | [`timeout`](Self::timeout) | one second |
    ///
    /// The function gets the key by which the request is counted, as its extractor makes it: `customer:acme` of
    /// [`Key::tagged`], `header:x-tenant:acme` of a `HeaderKey`, a digest of an `ApiKey`. It is called once for each key until
    /// the cached tier expires. A tier that the request itself shows is simpler to name with `.tier(closure)` of the layer.
    pub fn new<E, R>(lookup: impl Fn(Key) -> R + Send + Sync + 'static) -> TierResolver
    where
        E: fmt::Display,
        R: Future<Output = Result<Option<String>, E>> + Send + 'static,
    {
        TierResolver {
            lookup: Arc::new(move |key| {
                let looking = lookup(key);
                Box::pin(async move { looking.await.map_err(|error| error.to_string()) })
            }),
            ttl: Duration::from_secs(60),
            timeout: Duration::from_secs(1),
            capacity: 10_000,
            cache: Arc::default(),
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            warned: Arc::default(),
        }
    }

    /// Sets how long a tier is cached. A changed tier applies after at most this long.
    ///
    /// A key that changes tiers keeps what it has spent, as
    /// [`Policy::with_tier`](ratelimit_core::Policy::with_tier) describes.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> TierResolver {
        self.ttl = ttl.min(MAX_DURATION);
        self
    }

    /// Sets how long a lookup may take. Requests of the key wait for it.
    ///
    /// A lookup that takes longer is dropped. Its requests are then limited by the tier that the policy
    /// chooses, and the key is looked up again after one second.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> TierResolver {
        self.timeout = timeout.min(MAX_DURATION);
        self
    }

    /// Sets how many keys the cache holds, at least one.
    ///
    /// A key takes about 200 bytes. Clients that can choose their keys can fill the cache, but not exceed it.
    #[must_use]
    pub const fn capacity(mut self, keys: usize) -> TierResolver {
        self.capacity = keys;
        self
    }

    /// The tier of a key. Starts a lookup unless it is cached or being looked up.
    pub(crate) fn resolve(&self, key: &Key) -> TierLookup {
        let Ok(runtime) = Handle::try_current() else {
            self.warn_once(key, "there is no tokio runtime");
            return TierLookup::Known(None);
        };
        let now = Instant::now();
        let mut cache = self.lock();
        if let Some(entry) = cache.entries.get(key)
            && entry.expires > now
        {
            let found = entry.found.borrow().clone();
            match found {
                Some(tier) => return TierLookup::Known(tier),
                // Without a sender the lookup panicked or its runtime ended: it is started again.
                None if entry.found.has_changed().is_ok() => {
                    return self.pending(entry.found.clone());
                }
                None => {}
            }
        }
        let Ok(permit) = Arc::clone(&self.lookups).try_acquire_owned() else {
            self.warn_once(key, "too many lookups are under way");
            return TierLookup::Known(None);
        };
        let (sender, found) = watch::channel(None);
        let number = cache.enter(key, found.clone(), now + self.timeout, self.capacity.max(1));
        drop(cache);
        let ending = LookupEnd {
            resolver: self.clone(),
            key: key.clone(),
            number,
            sender,
            result: Err("it panicked, or its runtime ended".to_owned()),
            _permit: permit,
        };
        runtime.spawn(ending.look_up());
        self.pending(found)
    }

    fn pending(&self, found: watch::Receiver<TierResult>) -> TierLookup {
        let max_wait = self.timeout + WAIT_SLACK;
        TierLookup::Pending(PendingLookup { found, max_wait })
    }

    fn warn_once(&self, key: &Key, error: &str) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                key = key.fingerprint().as_str(),
                error,
                "a tier could not be looked up: the policy chooses it"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, TierCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Caches the result of a lookup and wakes the requests that wait for it, when it is dropped: also if the lookup panics or
/// its runtime ends.
struct LookupEnd {
    resolver: TierResolver,
    key: Key,
    number: u64,
    sender: watch::Sender<TierResult>,
    result: Result<Option<String>, String>,
    _permit: OwnedSemaphorePermit,
}

impl LookupEnd {
    async fn look_up(mut self) {
        let limit = self.resolver.timeout;
        let looking = (self.resolver.lookup)(self.key.clone());
        self.result = match timeout(limit, looking).await {
            Ok(result) => result,
            Err(_) => Err(format!("it took longer than {limit:?}")),
        };
    }
}

impl Drop for LookupEnd {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(None));
        let (tier, ttl) = match result {
            Ok(tier) => (tier, self.resolver.ttl),
            Err(error) => {
                self.resolver.warn_once(&self.key, &error);
                (None, FAILURE_TTL)
            }
        };
        if let Some(entry) = self.resolver.lock().entries.get_mut(&self.key)
            && entry.number == self.number
        {
            entry.expires = Instant::now() + ttl;
        }
        self.sender.send_replace(Some(tier));
    }
}

impl TierCache {
    /// Enters a lookup, and drops the oldest keys beyond `capacity`.
    fn enter(
        &mut self,
        key: &Key,
        found: watch::Receiver<TierResult>,
        expires: Instant,
        capacity: usize,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        let entry = CachedTier {
            number,
            expires,
            found,
        };
        self.entries.insert(key.clone(), entry);
        self.order.push_back((number, key.clone()));
        // Keys that were entered again are in the order twice, so its length bounds both.
        while self.order.len() > capacity {
            let Some((number, key)) = self.order.pop_front() else {
                break;
            };
            if self
                .entries
                .get(&key)
                .is_some_and(|entry| entry.number == number)
            {
                self.entries.remove(&key);
            }
        }
        number
    }
}

impl fmt::Debug for TierResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TierResolver")
            .field("ttl", &self.ttl)
            .field("timeout", &self.timeout)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// A request whose tier is being looked up.
///
/// Awaiting it gives the [`ResolvedTier`] for
/// [`Config::check_resolved`](crate::middleware::Config::check_resolved).
///
/// Nothing is spent before. Dropping it does not end the lookup.
#[must_use = "the request is checked when its tier is known"]
pub struct PendingTier {
    found: Pin<Box<dyn Future<Output = Option<String>> + Send>>,
    key: Option<(Key, Option<KeyError>)>,
}

impl PendingTier {
    pub(crate) fn new(
        pending: PendingLookup,
        key: Key,
        key_error: Option<KeyError>,
    ) -> PendingTier {
        PendingTier {
            found: Box::pin(async move {
                let PendingLookup {
                    mut found,
                    max_wait,
                } = pending;
                let found = timeout(max_wait, found.wait_for(Option::is_some)).await;
                found.ok()?.ok().and_then(|found| found.clone()).flatten()
            }),
            key: Some((key, key_error)),
        }
    }
}

impl Future for PendingTier {
    type Output = ResolvedTier;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ResolvedTier> {
        let Poll::Ready(tier) = self.found.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        let (key, key_error) = self.key.take().expect("polled after completion");
        Poll::Ready(ResolvedTier {
            tier,
            key,
            key_error,
        })
    }
}

impl fmt::Debug for PendingTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PendingTier")
    }
}

/// The tier of a request, or `None` if the policy chooses it.
///
/// It carries the key of the request from the first part of the check to the second.
#[derive(Debug)]
#[must_use = "the request is not checked yet"]
pub struct ResolvedTier {
    pub(crate) tier: Option<String>,
    pub(crate) key: Key,
    pub(crate) key_error: Option<KeyError>,
}
