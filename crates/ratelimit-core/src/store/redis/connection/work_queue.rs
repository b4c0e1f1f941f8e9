//! Bounds the work in flight at one server, so that calls of one policy do not delay those of others.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ahash::HashMap;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{sync::lock, time::micros};

/// Work in flight at a near server, in microseconds of its time. It bounds how long a call waits there for the others.
const MAX_MICROS: u32 = 20_000;
/// The most by which a slow server makes each call count for more.
const MAX_SLOWNESS: u32 = 8;

/// The calls in flight at one server, and those that wait.
///
/// - A call is sent at once while the estimated work of all calls in flight takes the server less than 20 ms. One call may
///   always be in flight, however much work it is.
/// - Over a long link the server works while calls travel: the bound is higher by one round trip, the shortest of the
///   connection.
/// - Calls whose replies come late count for more, up to eight times: fewer are then in flight.
/// - Calls wait in one queue for each policy, and changes of charges in another one. The queues are served in turn, so a
///   policy with one call does not wait behind all calls of another.
#[derive(Debug)]
pub(in crate::store::redis) struct WorkQueue {
    /// One permit for each microsecond. Its waiters, the first of each queue, are served in the order of their arrival.
    permits: Arc<Semaphore>,
    /// The queues that are not empty. The holder of the lock is the first of its queue.
    queues: Mutex<HashMap<CallSource, SourceQueue>>,
    /// Calls that wait in any queue.
    waiting: AtomicUsize,
    /// The factor for the estimates, from 1 to [`MAX_SLOWNESS`].
    slowness: AtomicU32,
    /// The runtime of the connection, on which the permits of dropped calls are returned. Without one they are returned
    /// at once: the current runtime may not be driven any more, and would keep them.
    runtime: Option<Handle>,
}

/// The queue in which a call waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::store::redis) enum CallSource {
    /// Hits of a policy.
    Hits(Arc<str>),
    /// Refunds, releases and later charges of a policy. A release does not wait behind the hits that wait for its slot.
    Changes(Arc<str>),
}

type SourceQueue = Arc<tokio::sync::Mutex<()>>;

/// The work of a call in flight. Dropping it ends the call.
///
/// The server may still execute a call that was dropped without a reply, so its work counts for some time longer.
#[derive(Debug)]
pub(in crate::store::redis) struct WorkPermit {
    queue: Arc<WorkQueue>,
    permit: Option<OwnedSemaphorePermit>,
    /// A reply that takes longer than the round trip and this time is slow.
    patience: Duration,
    round_trip: Duration,
    /// The slowness when the call was sent: the replies of one round trip count once.
    slowness: u32,
    sent: Instant,
    is_answered: bool,
}

/// A call that waits.
struct Waiting<'a> {
    queue: &'a WorkQueue,
    source: &'a CallSource,
    /// Only `drop` takes it.
    own: Option<SourceQueue>,
}

impl WorkQueue {
    /// A queue for a new connection, which lives on `runtime` if that is known.
    pub(in crate::store::redis) fn new(runtime: Option<Handle>) -> Arc<WorkQueue> {
        WorkQueue::with_permits(MAX_MICROS as usize, runtime)
    }

    /// A queue in which no call waits, for a connection to several servers: one that is slow must not delay the calls to
    /// the others.
    pub(in crate::store::redis) fn unbounded() -> Arc<WorkQueue> {
        WorkQueue::with_permits(Semaphore::MAX_PERMITS, None)
    }

    fn with_permits(permits: usize, runtime: Option<Handle>) -> Arc<WorkQueue> {
        Arc::new(WorkQueue {
            permits: Arc::new(Semaphore::new(permits)),
            queues: Mutex::default(),
            waiting: AtomicUsize::new(0),
            slowness: AtomicU32::new(1),
            runtime,
        })
    }

    /// Waits until a call may be sent whose work takes the server about `work`. The caller sets the time limit.
    ///
    /// `round_trip` is the shortest of the connection, and `timeout` that of a call.
    pub(in crate::store::redis) async fn acquire(
        self: &Arc<WorkQueue>,
        source: &CallSource,
        work: Duration,
        round_trip: Duration,
        timeout: Duration,
    ) -> WorkPermit {
        let slowness = self.slowness.load(Ordering::Relaxed);
        let permits = permits(work, round_trip, slowness);
        let is_first = self.waiting.load(Ordering::Relaxed) == 0;
        let at_once = || {
            Arc::clone(&self.permits)
                .try_acquire_many_owned(permits)
                .ok()
        };
        let permit = match is_first.then(at_once).flatten() {
            Some(permit) => permit,
            None => self.wait(source, permits).await,
        };
        WorkPermit {
            queue: Arc::clone(self),
            permit: Some(permit),
            patience: timeout / 4,
            round_trip,
            slowness,
            sent: Instant::now(),
            is_answered: false,
        }
    }

    /// Waits to be the first of a queue, and then for the server.
    async fn wait(&self, source: &CallSource, permits: u32) -> OwnedSemaphorePermit {
        let own = Arc::clone(lock(&self.queues).entry(source.clone()).or_default());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let turn = Arc::clone(&own);
        let _waiting = Waiting {
            queue: self,
            source,
            own: Some(own),
        };
        let _first = turn.lock_owned().await;
        let permit = Arc::clone(&self.permits).acquire_many_owned(permits).await;
        permit.expect("the semaphore is never closed")
    }

    /// Counts a reply, or a call without one, that was sent at this `slowness`.
    fn observe(&self, slowness: u32, is_slow: bool) {
        let next = if is_slow {
            (slowness * 2).min(MAX_SLOWNESS)
        } else {
            (slowness - slowness.div_ceil(8)).max(1)
        };
        if next != slowness {
            // It fails for all calls of a round trip but the first.
            let _ = self.slowness.compare_exchange(
                slowness,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }
}

impl Drop for Waiting<'_> {
    /// Removes the queue with its last call.
    fn drop(&mut self) {
        self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut queues = lock(&self.queue.queues);
        // Under the lock, so that of two calls that end together one sees that it is the last.
        self.own = None;
        let own = queues.get(self.source);
        if own.is_some_and(|own| Arc::strong_count(own) == 1) {
            queues.remove(self.source);
        }
    }
}

impl WorkPermit {
    /// Ends a call that was answered.
    pub(in crate::store::redis) fn end(mut self) {
        self.is_answered = true;
    }

    /// Returns the permit of a call that is not sent.
    pub(in crate::store::redis) fn cancel(mut self) {
        self.permit = None;
    }
}

impl Drop for WorkPermit {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let elapsed = self.sent.elapsed();
        let slow = self.round_trip + self.patience;
        if self.is_answered || elapsed > slow {
            self.queue.observe(self.slowness, elapsed > slow);
        }
        // A caller that was dropped does not recall its call.
        if !self.is_answered
            && let Some(rest) = slow.checked_sub(elapsed)
            && let Some(runtime) = &self.queue.runtime
        {
            runtime.spawn(async move {
                tokio::time::sleep(rest).await;
                drop(permit);
            });
        }
    }
}

/// The permits of a call: its work, made shorter by the share of it that is done while calls travel.
fn permits(work: Duration, round_trip: Duration, slowness: u32) -> u32 {
    let bound = u64::from(MAX_MICROS);
    let work = micros(work).saturating_mul(u64::from(slowness));
    let near = work.saturating_mul(bound) / bound.saturating_add(micros(round_trip));
    u32::try_from(near.clamp(1, bound)).unwrap_or(MAX_MICROS)
}

#[cfg(test)]
mod tests {
    use std::{future::Future as _, pin::pin, task::Context, task::Waker};

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(100);

    fn hits(policy: &str) -> CallSource {
        CallSource::Hits(policy.into())
    }

    /// Takes a permit for some work, if that is possible at once.
    fn try_acquire(queue: &Arc<WorkQueue>, policy: &str, millis: u64) -> Option<WorkPermit> {
        let (source, work) = (hits(policy), Duration::from_millis(millis));
        let acquire = queue.acquire(&source, work, Duration::ZERO, TIMEOUT);
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(acquire).poll(&mut cx) {
            std::task::Poll::Ready(permit) => Some(permit),
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn the_work_in_flight_is_bounded_and_one_call_always_goes() {
        let queue = WorkQueue::new(None);
        let mut calls: Vec<WorkPermit> =
            std::iter::from_fn(|| try_acquire(&queue, "p", 6)).collect();
        assert_eq!(calls.len(), 3);

        calls.drain(..).for_each(WorkPermit::end);

        let large = try_acquire(&queue, "p", 1_000).expect("one call always goes");
        assert!(try_acquire(&queue, "q", 1).is_none());
        large.end();
        assert!(lock(&queue.queues).is_empty());
        assert_eq!(queue.waiting.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn policies_are_served_in_turn() {
        let queue = WorkQueue::new(None);
        let first = try_acquire(&queue, "busy", 20).expect("it is idle");
        let order = Arc::new(Mutex::new(Vec::new()));
        let policies = ["busy", "busy", "busy", "busy", "other"];
        let calls = policies.map(|policy| {
            let (queue, order) = (Arc::clone(&queue), Arc::clone(&order));
            tokio::spawn(async move {
                let work = Duration::from_millis(20);
                let source = hits(policy);
                let permit = queue.acquire(&source, work, Duration::ZERO, TIMEOUT).await;
                lock(&order).push(policy);
                permit.end();
            })
        });
        tokio::task::yield_now().await;

        first.end();
        for call in calls {
            call.await.unwrap();
        }

        assert_eq!(*lock(&order), ["busy", "other", "busy", "busy", "busy"]);
        assert!(lock(&queue.queues).is_empty());
    }

    #[test]
    fn queues_of_calls_that_end_together_are_removed() {
        let queue = WorkQueue::new(None);
        let first = try_acquire(&queue, "p", 20).expect("it is idle");
        for _ in 0..200 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| assert!(try_acquire(&queue, "p", 20).is_none()));
                }
            });
            assert!(lock(&queue.queues).is_empty());
        }
        first.end();
    }

    #[test]
    fn a_dropped_call_is_returned_at_once_without_a_known_runtime() {
        let queue = WorkQueue::new(None);
        let current = tokio::runtime::Builder::new_current_thread();
        let current = { current }.enable_time().build().unwrap();
        let _entered = current.enter();

        drop(try_acquire(&queue, "p", 20).expect("it is idle"));

        assert!(try_acquire(&queue, "p", 20).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_not_sent_does_not_count() {
        let queue = WorkQueue::new(Some(Handle::current()));

        let unsent = try_acquire(&queue, "p", 20).expect("it is idle");
        unsent.cancel();

        assert!(try_acquire(&queue, "p", 20).is_some());
    }

    #[test]
    fn no_call_waits_for_a_connection_to_several_servers() {
        let queue = WorkQueue::unbounded();
        queue.observe(1, true);

        let calls: Vec<_> = (0..1_000)
            .map(|_| try_acquire(&queue, "p", 1_000))
            .collect();

        assert!(calls.iter().all(Option::is_some));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_counts_while_the_server_may_execute_it() {
        let queue = WorkQueue::new(Some(Handle::current()));
        drop(try_acquire(&queue, "p", 20).expect("it is idle"));

        assert!(try_acquire(&queue, "p", 20).is_none());
        tokio::time::sleep(TIMEOUT).await;
        assert!(try_acquire(&queue, "p", 20).is_some());
    }

    #[test]
    fn late_replies_lower_the_bound_once_for_each_round_trip() {
        let queue = WorkQueue::new(None);

        for _ in 0..50 {
            queue.observe(1, true);
        }
        assert_eq!(queue.slowness.load(Ordering::Relaxed), 2);
        queue.observe(2, true);
        queue.observe(4, true);
        queue.observe(8, true);
        assert_eq!(queue.slowness.load(Ordering::Relaxed), MAX_SLOWNESS);
        for slowness in (1..=MAX_SLOWNESS).rev() {
            queue.observe(slowness, false);
        }
        assert_eq!(queue.slowness.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_long_link_has_more_work_in_flight() {
        let work = |round_trip| {
            permits(
                Duration::from_millis(1),
                Duration::from_millis(round_trip),
                1,
            )
        };

        assert_eq!([work(0), work(20), work(80)], [1_000, 500, 200]);
        assert_eq!(permits(Duration::MAX, Duration::MAX, 8), 1);
        assert_eq!(permits(Duration::MAX, Duration::ZERO, 8), MAX_MICROS);
    }
}
