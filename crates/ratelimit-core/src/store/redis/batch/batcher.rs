//! Sends concurrent hits in batches. `docs/decisions/0011-shared-calls.md` has the reasons.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use ahash::HashMap;
use tokio::sync::oneshot;

use crate::store::redis::{
    batch::{
        Batch, BatchOutcome, PendingHit, QueuedHit,
        queue::{BatchKey, BatchQueue, CallKind, max_batches},
    },
    call::{MAX_ATTEMPTS, batch_work, read_reply, server_deadline, store_error},
    command::{Eval, Reply, ScriptCommand as _},
    config::Timeouts,
    connection::{
        error::CallError,
        router::{Route, Router},
        work_queue::CallSource,
    },
};
use crate::{metrics, store::contract::StoreError, sync::lock};

/// Groups concurrent hits into batches, sends them and distributes the replies.
///
/// - Hits that can be decided by one call share a queue: same connection, limits, cost and mode, and in a cluster
///   the same hash slot. See [`BatchKey`].
/// - The first hits of a queue are sent by themselves, up to `unbatched_calls` at a time. Hits that arrive meanwhile
///   are batched.
/// - No timer delays a batch. A batch contains the hits that are queued when it starts. A queue has up to four batches
///   in flight, and over a long link more if they are full. See [`max_batches`].
/// - A batch runs in a task on the runtime of its connection, so dropping one caller does not affect the others. A
///   hit whose caller is dropped while it is queued spends nothing.
/// - A call without a reply counts once for the circuit breaker, however many hits it has.
/// - Connections of the application are not batched: their runtime is unknown.
/// - A new connection has queues of its own. Hits in a queue of a broken one fail with it or time out.
#[derive(Debug)]
pub(in crate::store::redis) struct Batcher {
    /// For the hash slots of keys, and to report lost connections and timeouts.
    router: Arc<Router>,
    /// `timeout` bounds a batch, `unbatched_calls` the single calls of a queue.
    timeouts: Timeouts,
    /// The queues that are not idle. The lock is held for a few operations on one queue, never across an `await` or a
    /// spawn: a spawn may drop a [`CallPermit`], which takes the lock.
    queues: Mutex<HashMap<BatchKey, BatchQueue>>,
}

/// The right to have one call of a queue in flight. Dropping it starts the next batch of the queue.
///
/// It counts calls of this process, not of the server: a caller that is dropped or times out returns its permit while
/// Redis may still execute its call.
pub(in crate::store::redis) struct CallPermit {
    /// The owner of the queue.
    batcher: Arc<Batcher>,
    /// The connection of the queue, also after it was replaced.
    route: Route,
    /// The queue.
    key: BatchKey,
    /// How the call is counted when the permit is dropped.
    kind: CallKind,
}

/// How a hit is sent.
pub(in crate::store::redis) enum Dispatch {
    /// In a call of its own, by the caller, which keeps the permit until the call ends. There is no permit on
    /// connections that do not batch.
    Single(Option<CallPermit>),
    /// In a batch that delivers the outcome. Dropping the receiver removes a hit that is still queued.
    Batched(oneshot::Receiver<BatchOutcome>),
}

impl Batcher {
    /// A batcher without queues.
    pub(in crate::store::redis) fn new(router: Arc<Router>, timeouts: Timeouts) -> Arc<Batcher> {
        Arc::new(Batcher {
            router,
            timeouts,
            queues: Mutex::default(),
        })
    }

    /// Permits a single call for a hit, or queues it for a batch.
    ///
    /// It never waits. The hit must be [batchable](crate::store::redis::command::check::CheckCommand::is_batchable):
    /// it has one key. `deadline` is that of the caller.
    pub(in crate::store::redis) fn enqueue(
        self: &Arc<Batcher>,
        route: &Route,
        pending: &Arc<PendingHit>,
        deadline: Instant,
    ) -> Dispatch {
        let Some(connection) = route.connection_id() else {
            return Dispatch::Single(None);
        };
        let slot = self.router.slot_for_batching(&pending.names[0]);
        let key = BatchKey::new(connection, &pending.command, slot);
        let permit = |key, kind| CallPermit {
            batcher: Arc::clone(self),
            route: route.clone(),
            key,
            kind,
        };
        let mut queues = self.queues();
        let queue = queues.entry(key.clone()).or_default();
        if queue.try_single(self.timeouts.unbatched_calls) {
            drop(queues);
            return Dispatch::Single(Some(permit(key, CallKind::Single)));
        }
        let (outcome, receiver) = oneshot::channel();
        let hit = QueuedHit {
            pending: Arc::clone(pending),
            deadline,
            outcome,
        };
        let first = queue.push(hit, max_batches(route.clock().min_round_trip()));
        // Unlock first: a runtime that shuts down drops the task inside of `spawn`, and its permit takes the lock.
        drop(queues);
        if let Some(first) = first {
            permit(key, CallKind::Filling).spawn(first);
        }
        Dispatch::Batched(receiver)
    }

    /// Locks the queues.
    fn queues(&self) -> MutexGuard<'_, HashMap<BatchKey, BatchQueue>> {
        lock(&self.queues)
    }

    /// Ends a call. Returns whether the caller has to start the next batches, because no other task is at it.
    fn release(&self, permit: &CallPermit) -> bool {
        let mut queues = self.queues();
        let queue = queues.get_mut(&permit.key);
        queue.is_some_and(|queue| queue.release(permit.kind))
    }

    /// The first hit of the next batch, if one may start. An idle queue is removed.
    fn start_next(&self, permit: &CallPermit) -> Option<QueuedHit> {
        let mut queues = self.queues();
        let queue = queues.get_mut(&permit.key)?;
        let next = queue.start_next(permit.max_batches());
        if queue.is_idle() {
            queues.remove(&permit.key);
        }
        next
    }

    /// Whether the hits that wait for the next batch fill it.
    fn has_full_batch(&self, permit: &CallPermit) -> bool {
        let queues = self.queues();
        queues
            .get(&permit.key)
            .is_some_and(BatchQueue::has_full_batch)
    }

    /// The hits of a batch, and the first hit of a further batch if more are queued than this one takes.
    fn fill(&self, permit: &CallPermit, first: QueuedHit) -> (Vec<QueuedHit>, Option<QueuedHit>) {
        match self.queues().get_mut(&permit.key) {
            Some(queue) => (queue.fill(first), queue.start(permit.max_batches())),
            None => (vec![first], None),
        }
    }
}

impl CallPermit {
    /// Spawns a task that fills a batch and sends it.
    ///
    /// The task runs on the runtime of the connection, since replies arrive only while that one is driven. A task that
    /// never runs drops `first`, whose caller times out.
    fn spawn(self, first: QueuedHit) {
        if let Some(runtime) = self.route.runtime().cloned() {
            runtime.spawn(self.run(first));
        }
    }

    /// Fills a batch, sends it and delivers the reply.
    ///
    /// It starts the next batch before it sends its own, so several are in flight. Dropping this future, with its
    /// runtime, drops the hits: their callers time out, and a batch that was sent may have charged them.
    async fn run(mut self, first: QueuedHit) {
        // Yield once: tasks that are ready to run can still join this batch. A full one is sent at once, without which 1,024
        // tasks make a sixth fewer checks a second (`cargo xtask bench --only throughput`).
        if !self.batcher.has_full_batch(&self) {
            tokio::task::yield_now().await;
        }
        let (hits, next) = self.batcher.fill(&self, first);
        // From here on the permit must not clear `is_filling` of the queue, which may belong to the next batch.
        self.kind = CallKind::Sent;
        if let Some(first) = next {
            self.clone_for(CallKind::Filling).spawn(first);
        }
        let batch = Batch::new(hits);
        if batch.is_empty() {
            return;
        }
        // The call has the whole time budget, though its hits have waited before and time out by themselves: only a
        // call that takes longer than the budget is slow.
        let timeout = self.batcher.timeouts.timeout;
        let (policy, hits, entries) = batch.work();
        let source = CallSource::Hits(Arc::clone(policy));
        let work = batch_work(hits, entries);
        let work = self.route.acquire_work(&source, work, timeout);
        // Hits that wait for longer have timed out themselves.
        let Ok(work) = tokio::time::timeout(timeout, work).await else {
            return batch.fail_all(&StoreError::Overloaded);
        };
        let deadline = Instant::now() + timeout;
        let (router, route) = (Arc::clone(&self.batcher.router), self.route.clone());
        let sending = send(&router, &route, batch, deadline);
        let sent = tokio::time::timeout_at(deadline.into(), sending).await;
        if sent.is_ok() {
            work.end();
        } else {
            drop(work);
            metrics::ambiguous();
            router.record_timeout(&route, timeout + deadline.elapsed());
        }
    }

    /// How many batches may be in flight over the connection of the queue.
    fn max_batches(&self) -> usize {
        max_batches(self.route.clock().min_round_trip())
    }

    /// A permit for another call of the same queue, which the queue has counted already.
    fn clone_for(&self, kind: CallKind) -> CallPermit {
        CallPermit {
            batcher: Arc::clone(&self.batcher),
            route: self.route.clone(),
            key: self.key.clone(),
            kind,
        }
    }
}

/// Sends a batch, and again where Redis replied that nothing was executed. A reply after `deadline` is late.
///
/// | reply | hits |
/// |---|---|
/// | decisions | get theirs |
/// | too late | are sent again, without those whose deadline has passed |
/// | NOSCRIPT | are sent again, with the source of the script |
/// | MOVED, ASK, TRYAGAIN, any error about this call | are sent again by their callers, one by one |
/// | lost, or the server refuses all calls | all fail |
/// | cannot be read | all fail, because they may have been charged |
///
/// Unlike a single call it follows no redirection. The single calls do, and have the slot map fetched again. Later
/// hits are then queued for the connection to the new node.
async fn send(router: &Router, route: &Route, mut batch: Batch, deadline: Instant) {
    let mut eval = Eval::Sha;
    batch.claim();
    for _ in 0..MAX_ATTEMPTS {
        let sent = Instant::now();
        // A hit with less time than the shortest round trip makes the call too late for all.
        if !batch.remove_expired(sent + route.clock().min_round_trip()) {
            return;
        }
        let command = batch.command();
        let first = batch.deadline();
        let first = first.and_then(|first| server_deadline(&command, route, first));
        let reply = route.send(command.to_cmd(eval, batch.names(), first));
        let error = match reply.await {
            Ok(reply) => match read_reply(&command, route, &reply, sent, deadline) {
                Ok(Reply::Done(entries, _)) => return batch.deliver(&entries, route.log()),
                // The server's clock was set forward, or some hits were late.
                Ok(Reply::TooLate(_)) => continue,
                Err(error) => return batch.fail_all(&error),
            },
            Err(error) => error,
        };
        match CallError::classify(&error) {
            CallError::NoScript => eval = Eval::Source,
            call_error @ (CallError::ConnectionLost | CallError::ServerUnavailable) => {
                let error = store_error(router, route, &call_error, error, deadline);
                return batch.fail_all(&error);
            }
            // The server refused before anything was executed.
            CallError::Moved(_) | CallError::Ask(_) | CallError::TryAgain | CallError::Rejected => {
                return batch.split_up();
            }
        }
    }
    // Nothing was executed. A hit with time left is sent with its own deadline.
    batch.split_up();
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        // A runtime that shuts down drops a task as soon as it is spawned, and the permit with it. That permit
        // only counts as completed, and this loop starts the batch after it: no recursion.
        if !self.batcher.release(self) {
            return;
        }
        while let Some(first) = self.batcher.start_next(self) {
            self.clone_for(CallKind::Filling).spawn(first);
        }
    }
}
