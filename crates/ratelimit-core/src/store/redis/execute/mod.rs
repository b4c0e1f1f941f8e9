//! A hit on its way: by itself or with others, and for no longer than its time budget.

mod cross_slot;
mod undoable;

use std::{future::Future, sync::Arc, time::Instant};

use crate::store::redis::{
    batch::{
        BatchOutcome, PendingHit,
        batcher::{CallPermit, Dispatch},
    },
    call::Call,
    connection::router::Route,
    store::RedisInner,
};
use crate::{decision::Decision, key_set::KeySet, metrics, store::contract::StoreError};

impl RedisInner {
    /// Decides a hit; what is seldom or large is put aside, so that waiting with others is cheap.
    pub(in crate::store::redis) async fn check(
        self: Arc<RedisInner>,
        route: Route,
        pending: Arc<PendingHit>,
        keys: Option<Box<KeySet>>,
    ) -> Result<Decision, StoreError> {
        let deadline = Instant::now() + self.timeouts.time_budget;
        if let Some(keys) = keys {
            return Box::pin(self.check_undoable(route, pending, *keys, deadline)).await;
        }
        let Ok(_permit) = self.in_flight.try_acquire() else {
            return Err(StoreError::Overloaded);
        };
        let sent = if pending.command.is_batchable() {
            CallPermit::enqueue(&self, &route, &pending, deadline)
        } else {
            Dispatch::Single(None)
        };
        let (_call_permit, is_odd) = match sent {
            Dispatch::Single(permit) => (permit, false),
            Dispatch::Batched(reply) => {
                // The call that it shares counts for the breaker, not each of its hits.
                match tokio::time::timeout_at(deadline.into(), reply).await {
                    Ok(Ok(BatchOutcome::Decided(decision))) => return decision,
                    Ok(Ok(BatchOutcome::SendSingle {
                        skip_fast_script: is_odd,
                    })) => (None, is_odd),
                    Ok(Err(_)) | Err(_) => return Err(StoreError::TimedOut),
                }
            }
        };
        let reply = self.check_single(&route, &pending, deadline, is_odd);
        Box::pin(self.with_deadline(&route, deadline, reply)).await
    }

    /// Waits for the answer to a call, and not beyond the deadline.
    pub(in crate::store::redis) async fn with_deadline<T>(
        &self,
        route: &Route,
        deadline: Instant,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = tokio::time::timeout_at(deadline.into(), answer).await;
        answer.unwrap_or_else(|_| {
            self.record_timeout(route, deadline);
            Err(StoreError::TimedOut)
        })
    }

    /// Counts a call that was not answered until its deadline, with the time that really passed.
    pub(in crate::store::redis) fn record_timeout(&self, route: &Route, deadline: Instant) {
        metrics::ambiguous();
        let elapsed = self.timeouts.time_budget + deadline.elapsed();
        if route.record_timeout(elapsed) {
            self.router.refresh_topology();
        }
    }

    /// Asks in a call of its own, by the script for buckets unless that found something odd before.
    pub(in crate::store::redis) async fn check_single(
        &self,
        route: &Route,
        pending: &PendingHit,
        deadline: Instant,
        is_odd: bool,
    ) -> Result<Decision, StoreError> {
        let PendingHit { command, names } = pending;
        if let Some(bucket) = command.as_bucket().filter(|_| !is_odd) {
            let call = Call::check_bucket(&bucket, names);
            if let Some(decision) = call.send(&self.router, route.clone(), deadline).await? {
                return Ok(decision);
            }
        }
        let call = Call::check(command, names);
        let reply = call.send(&self.router, route.clone(), deadline).await?;
        Ok(reply.decision())
    }
}
