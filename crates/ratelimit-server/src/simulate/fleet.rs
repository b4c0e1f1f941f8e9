//! Instances that prefetch from one store, on the virtual clock.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use ratelimit_core::{
    Clock, Decision, KeySet, Limiter, MemoryStore, Policy, Timestamp, Verdict,
    store::{Adjustment, Charged, Hit, Receipt, Settlement, Store, StoreError, StoreFuture},
};
use tokio::sync::oneshot;

use super::trace::TraceHit;
use crate::cli_error::CliError;

/// How often the tasks of the instances run before time goes on. One round serves 61 of them, and a task needs two.
const ROUNDS: usize = 6;

/// Several limiters with one memory store, of which each prefetch call takes a round trip.
///
/// - Hits go to the instances in turn. A hit that is sent to the store is decided at its own time.
/// - A call that charges or returns a block is made when it leaves, and its reply arrives one round trip later.
/// - It needs a tokio runtime with one thread: time goes on when all tasks wait.
pub(crate) struct Fleet {
    store: Arc<FarStore>,
    limiters: Vec<Limiter>,
    clock: Clock,
    counts: FleetCounts,
}

/// The hits of a trace that a fleet decided, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FleetCounts {
    hits: u64,
    passed: u64,
    from_memory: u64,
    passed_from_memory: u64,
    from_deny_cache: u64,
}

impl Fleet {
    /// `instances` limiters over `memory`, whose clock is `clock`.
    pub(super) fn new(
        memory: MemoryStore,
        clock: &Clock,
        instances: u32,
        round_trip: Duration,
    ) -> Fleet {
        let store = Arc::new(FarStore {
            memory,
            clock: clock.clone(),
            round_trip,
            timers: Mutex::default(),
            is_checking: AtomicBool::new(false),
            hits: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        });
        let limiter = |_| Limiter::new(Arc::clone(&store));
        Fleet {
            limiters: (0..instances).map(limiter).collect(),
            store,
            clock: clock.clone(),
            counts: FleetCounts::default(),
        }
    }

    /// Decides the next hit of the trace, on the next instance.
    pub(super) async fn check(
        &mut self,
        policy: &Policy,
        hit: &TraceHit,
        cost: u64,
    ) -> Result<Decision, CliError> {
        self.pass_time_until(hit.at_micros).await;
        let turn = usize::try_from(self.counts.hits)?;
        let limiter = &self.limiters[turn % self.limiters.len()];
        let key = hit.budget_key()?;
        let sent = self.store.hits.load(Ordering::Relaxed);
        self.store.is_checking.store(true, Ordering::Relaxed);
        let checked = limiter.check_hit(Hit::new(policy.for_key(&key), &key).cost(cost));
        let verdict = checked.await;
        self.store.is_checking.store(false, Ordering::Relaxed);
        let Verdict::Checked(decision) = verdict else {
            return Err("the memory store did not answer".into());
        };
        let is_sent = self.store.hits.load(Ordering::Relaxed) != sent;
        self.run_tasks().await;
        self.counts.hits += 1;
        self.counts.from_deny_cache += u64::from(!is_sent && !decision.is_prefetched);
        self.counts.passed += u64::from(decision.is_allowed());
        self.counts.from_memory += u64::from(decision.is_prefetched);
        self.counts.passed_from_memory +=
            u64::from(decision.is_prefetched && decision.is_allowed());
        Ok(decision)
    }

    /// Moves the clock to `until`, and stops at each timer of the instances on the way.
    async fn pass_time_until(&self, until: u64) {
        while let Some((at, timer)) = self.store.next_timer(until) {
            self.clock.set(Timestamp::from_micros(at));
            // The task may wait no more.
            let _ = timer.send(());
            self.run_tasks().await;
        }
        self.clock.set(Timestamp::from_micros(until));
    }

    async fn run_tasks(&self) {
        for _ in 0..ROUNDS {
            tokio::task::yield_now().await;
        }
    }
}

/// `12 calls to the store (9 prefetch calls, 3 hits), 83.3 hits for each call; 997 of 1000 hits decided from memory, ...`.
impl fmt::Display for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FleetCounts {
            hits,
            passed,
            from_memory,
            passed_from_memory,
            from_deny_cache,
        } = self.counts;
        let calls = self.store.calls.load(Ordering::Relaxed);
        let sent = self.store.hits.load(Ordering::Relaxed);
        let tenths = hits * 10 / (calls + sent).max(1);
        write!(
            f,
            "{} calls to the store ({calls} prefetch calls, {sent} hits), {}.{} hits for each call; {from_memory} of {hits} \
             hits decided from memory, {passed_from_memory} passed from memory, {passed} passed in all, \
             {from_deny_cache} denied by the deny cache",
            calls + sent,
            tenths / 10,
            tenths % 10,
        )
    }
}

/// The hits of a trace that an exact limiter lets pass.
pub(super) async fn passed_exactly(
    policy: &Policy,
    trace: &[TraceHit],
    capacity: usize,
) -> Result<usize, CliError> {
    let clock = Clock::manual(Timestamp::default());
    let store = MemoryStore::new().capacity(capacity).clock(clock.clone());
    let mut passed = 0;
    for hit in trace {
        clock.set(Timestamp::from_micros(hit.at_micros));
        let key = hit.budget_key()?;
        let cost = hit.cost.unwrap_or(policy.cost().get());
        let hit = Hit::new(policy.for_key(&key), &key).cost(cost);
        let decision = store.hit(hit).await?;
        passed += usize::from(decision.is_allowed());
    }
    Ok(passed)
}

/// A memory store that answers as one over a network does, with timers on the virtual clock.
struct FarStore {
    memory: MemoryStore,
    clock: Clock,
    round_trip: Duration,
    /// Timers by their time and their number.
    timers: Mutex<BTreeMap<(u64, usize), oneshot::Sender<()>>>,
    /// Whether a caller's hit is decided. Other calls are those that charge and return blocks.
    is_checking: AtomicBool,
    hits: AtomicU64,
    calls: AtomicU64,
}

impl fmt::Debug for FarStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarStore").finish_non_exhaustive()
    }
}

impl FarStore {
    /// A timer that ends after `span`.
    fn start_timer(&self, span: Duration) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let at = (self.clock.now() + span).as_micros();
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        // Tasks drop the timers of waits that end early.
        timers.retain(|_, timer| !timer.is_closed());
        let number = timers.range((at, 0)..=(at, usize::MAX)).next_back();
        let number = number.map_or(0, |((_, number), _)| number + 1);
        timers.insert((at, number), sender);
        receiver
    }

    /// Counts a call, and delays its reply.
    fn after_round_trip<T: Send + Unpin + 'static>(&self, reply: StoreFuture<T>) -> StoreFuture<T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let arrived = self.start_timer(self.round_trip);
        StoreFuture::pending(async {
            arrived.await.map_err(|_| StoreError::TimedOut)?;
            reply.await
        })
    }

    /// Takes the first timer that ends at `until` or before.
    fn next_timer(&self, until: u64) -> Option<(u64, oneshot::Sender<()>)> {
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        let first = timers.first_entry()?;
        let at = first.key().0;
        (at <= until).then(|| (at, first.remove()))
    }
}

impl Store for FarStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        let decision = self.memory.hit(hit);
        if self.is_checking.load(Ordering::Relaxed) {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return StoreFuture::pending(decision);
        }
        self.after_round_trip(decision)
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        self.after_round_trip(self.memory.settle(receipt, change))
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        StoreFuture::pending(self.memory.reset(policy, keys))
    }

    fn manual_clock(&self) -> Option<Clock> {
        Some(self.clock.clone())
    }

    fn virtual_timer(&self, span: Duration) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let ended = self.start_timer(span);
        Some(Box::pin(async {
            // A timer that is dropped with its store never ends.
            if ended.await.is_err() {
                std::future::pending::<()>().await;
            }
        }))
    }
}
