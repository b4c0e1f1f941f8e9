//! A hit on its way: by itself or with others, and for no longer than its time budget.

use std::{future::Future, sync::Arc, time::Instant};

use super::{
    access::Way,
    batch::{Asking, Outcome},
    batcher::{Place, Sent},
    call::Call,
    store::Shared,
};
use crate::{decision::Decision, keys::Keys, meter, store::contract::StoreError};

impl Shared {
    /// Decides a hit; what is seldom or large is put aside, so that waiting with others is cheap.
    pub(super) async fn hit(
        self: Arc<Shared>,
        way: Way,
        asking: Arc<Asking>,
        keys: Option<Box<Keys>>,
    ) -> Result<Decision, StoreError> {
        let deadline = Instant::now() + self.patience.time_budget;
        if let Some(keys) = keys {
            return Box::pin(self.hit_undoably(way, asking, *keys, deadline)).await;
        }
        let Ok(_permit) = self.places.try_acquire() else {
            return Err(StoreError::Overloaded);
        };
        let sent = if asking.question.shares_calls() {
            Place::find(&self, &way, &asking, deadline)
        } else {
            Sent::Alone(None)
        };
        let (_place, is_odd) = match sent {
            Sent::Alone(place) => (place, false),
            Sent::Together(told) => {
                // The call that it shares counts for the breaker, not each of its hits.
                match tokio::time::timeout_at(deadline.into(), told).await {
                    Ok(Ok(Outcome::Decided(decision))) => return decision,
                    Ok(Ok(Outcome::Alone { is_odd })) => (None, is_odd),
                    Ok(Err(_)) | Err(_) => return Err(StoreError::TimedOut),
                }
            }
        };
        let asked = self.hit_alone(&way, &asking, deadline, is_odd);
        Box::pin(self.in_time(&way, deadline, asked)).await
    }

    /// Waits for the answer to a call, and not beyond the deadline.
    pub(super) async fn in_time<T>(
        &self,
        way: &Way,
        deadline: Instant,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = tokio::time::timeout_at(deadline.into(), answer).await;
        answer.unwrap_or_else(|_| {
            self.call_timed_out(way);
            Err(StoreError::TimedOut)
        })
    }

    /// Counts a call that was not answered in time.
    pub(super) fn call_timed_out(&self, way: &Way) {
        meter::ambiguous();
        if way.timed_out(self.patience.time_budget) {
            self.access.map_is_stale();
        }
    }

    /// Asks in a call of its own, by the script for buckets unless that found something odd before.
    pub(super) async fn hit_alone(
        &self,
        way: &Way,
        asking: &Asking,
        deadline: Instant,
        is_odd: bool,
    ) -> Result<Decision, StoreError> {
        let Asking { question, names } = asking;
        if let Some(bucket) = question.bucket().filter(|_| !is_odd) {
            let call = Call::hit_bucket(&bucket, names);
            if let Some(decision) = call.send(&self.access, way.clone(), deadline).await? {
                return Ok(decision);
            }
        }
        let call = Call::hit(question, names);
        let told = call.send(&self.access, way.clone(), deadline).await?;
        Ok(told.decision())
    }
}
