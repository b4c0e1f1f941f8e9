//! Hits that find some of their key under way share a call.
//!
//! There is no timer: a call takes whoever is ready, and waits only for one of four to come back.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use ahash::HashMap;
use redis::Value;
use tokio::{runtime::Handle, sync::oneshot};

use crate::store::redis::{
    batch::{
        Batch, BatchOutcome, BatchReply, PendingHit, QueuedHit,
        queue::{BatchKey, BatchQueue, CallKind},
    },
    call::{Eval, MAX_ATTEMPTS, store_error},
    command::reply::InvalidReply,
    connection::{error::CallError, router::Route},
    store::RedisInner,
};
use crate::{metrics, store::contract::StoreError};

/// The hits under way at one server, and those that wait.
#[derive(Debug)]
pub(in crate::store::redis) struct Batcher {
    /// So many of one key are sent by themselves before others wait.
    most_alone: usize,
    /// Where the connection lives, without which nobody is answered.
    runtime: Handle,
    queues: Mutex<HashMap<BatchKey, BatchQueue>>,
}

/// A place among the calls of a key; who leaves it makes room for those who wait.
pub(in crate::store::redis) struct CallPermit {
    shared: Arc<RedisInner>,
    route: Route,
    key: BatchKey,
    kind: CallKind,
}

/// How a hit is sent.
pub(in crate::store::redis) enum Dispatch {
    /// By itself.
    Single(Option<CallPermit>),
    /// With others.
    Batched(oneshot::Receiver<BatchOutcome>),
}

impl Batcher {
    /// For a connection that lives on the runtime which this is called on.
    pub(in crate::store::redis) fn new(most_alone: usize) -> Batcher {
        Batcher {
            most_alone,
            runtime: Handle::current(),
            queues: Mutex::default(),
        }
    }

    /// The runtime that the connection lives on.
    pub(in crate::store::redis) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<BatchKey, BatchQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self, permit: &CallPermit) -> bool {
        let mut queues = self.queues();
        let queue = queues.get_mut(&permit.key);
        queue.is_some_and(|queue| queue.release(permit.kind))
    }

    /// The first hit of a call that takes the place of one that came back.
    fn start_next(&self, key: &BatchKey) -> Option<QueuedHit> {
        let mut queues = self.queues();
        let queue = queues.get_mut(key)?;
        let next = queue.start_next();
        if queue.is_idle() {
            queues.remove(key);
        }
        next
    }

    /// `first`, and what else waits of its key; and the first hit of another call, if that was too much
    /// for one.
    fn fill(&self, key: &BatchKey, first: QueuedHit) -> (Vec<QueuedHit>, Option<QueuedHit>) {
        match self.queues().get_mut(key) {
            Some(queue) => (queue.fill(first), queue.start()),
            None => (vec![first], None),
        }
    }
}

impl CallPermit {
    /// A place for a hit by itself, or one among those who wait.
    pub(in crate::store::redis) fn enqueue(
        shared: &Arc<RedisInner>,
        route: &Route,
        pending: &Arc<PendingHit>,
        deadline: Instant,
    ) -> Dispatch {
        let Some(batcher) = route.batcher() else {
            return Dispatch::Single(None);
        };
        let slot = shared.router.slot_for_batching(&pending.names[0]);
        let key = BatchKey::of(&pending.command, slot);
        let permit = |key, kind| CallPermit {
            shared: Arc::clone(shared),
            route: route.clone(),
            key,
            kind,
        };
        let mut queues = batcher.queues();
        let queue = queues.entry(key.clone()).or_default();
        if queue.try_single(batcher.most_alone) {
            drop(queues);
            return Dispatch::Single(Some(permit(key, CallKind::Single)));
        }
        let (answer, reply) = oneshot::channel();
        let hit = QueuedHit {
            pending: Arc::clone(pending),
            deadline,
            answer,
        };
        let begun = queue.push(hit);
        drop(queues);
        if let Some(first) = begun {
            permit(key, CallKind::Filling).spawn(first);
        }
        Dispatch::Batched(reply)
    }

    /// Fills a call, and sends it, in a task where the connection lives.
    fn spawn(self, first: QueuedHit) {
        if let Some(batcher) = self.route.batcher() {
            batcher.runtime().clone().spawn(self.run(first));
        }
    }

    /// Sends `first` and what waits with it.
    async fn run(mut self, first: QueuedHit) {
        // Whoever is about to ask does so first.
        tokio::task::yield_now().await;
        let Some(batcher) = self.route.batcher() else {
            return;
        };
        let (hits, too_many) = batcher.fill(&self.key, first);
        self.kind = CallKind::Sent;
        if let Some(first) = too_many {
            self.clone_for(CallKind::Filling).spawn(first);
        }
        let batch = Batch::new(hits);
        if batch.is_empty() {
            return;
        }
        // The hits have waited before, and time out by themselves. The call is slow when it takes the time budget
        // itself; however many hits share it, it is one call.
        let deadline = Instant::now() + self.shared.timeouts.time_budget;
        let sent = tokio::time::timeout_at(deadline.into(), self.send(batch)).await;
        if sent.is_err() {
            self.shared.record_timeout(&self.route, deadline);
        }
    }

    fn clone_for(&self, kind: CallKind) -> CallPermit {
        CallPermit {
            shared: Arc::clone(&self.shared),
            route: self.route.clone(),
            key: self.key.clone(),
            kind,
        }
    }

    async fn send(&self, mut batch: Batch) {
        let route = &self.route;
        let mut ask = Eval::Sha;
        for _ in 0..MAX_ATTEMPTS {
            let sent = Instant::now();
            let error = match route.send(batch.command(ask, route.clock())).await {
                Ok(answer) => match self.decode(&batch, &answer, sent) {
                    Ok(BatchReply {
                        now,
                        entries: Some(entries),
                    }) => return batch.deliver(now, &entries, route.log()),
                    // The server's clock was set forward, or some came late: nothing ran.
                    Ok(_) if batch.drop_expired(Instant::now()) => continue,
                    Ok(_) => return,
                    Err(invalid) => {
                        route.mark_broken(invalid.to_string());
                        return batch.fail_all(&StoreError::refused(invalid));
                    }
                },
                Err(error) => error,
            };
            match CallError::classify(&error) {
                CallError::NoScript => ask = Eval::Source,
                trouble @ (CallError::ConnectionLost | CallError::ServerUnavailable) => {
                    self.shared.router.refresh_topology();
                    return batch.fail_all(&store_error(route, &trouble, error));
                }
                // The server refused before anything ran.
                CallError::Moved(_)
                | CallError::Ask(_)
                | CallError::TryAgain
                | CallError::Rejected => {
                    return batch.split_up();
                }
            }
        }
        batch.fail_all(&StoreError::TimedOut);
    }

    /// Reads an answer, and learns from it how the server is and what its clock shows.
    fn decode(
        &self,
        batch: &Batch,
        answer: &Value,
        sent: Instant,
    ) -> Result<BatchReply, InvalidReply> {
        let received = Instant::now();
        let Value::BulkString(bytes) = answer else {
            return Err(InvalidReply::Malformed);
        };
        let answers = batch.decode(bytes)?;
        self.route.record_reply();
        metrics::round_trip(received - sent);
        if batch.learns_time() {
            self.route.clock().record(answers.now, sent, received);
        }
        Ok(answers)
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let Some(batcher) = self.route.batcher() else {
            return;
        };
        // A runtime that shuts down drops what it is given at once, and its place with it: that comes
        // back while this looks after the lane, and is seen by the loop.
        if !batcher.release(self) {
            return;
        }
        while let Some(first) = batcher.start_next(&self.key) {
            self.clone_for(CallKind::Filling).spawn(first);
        }
    }
}
