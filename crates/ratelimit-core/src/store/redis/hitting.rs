//! A hit on its way: by itself or with others, and for no longer than its time budget.

use std::{future::Future, sync::Arc, time::Instant};

use super::{
    access::Way,
    batch::{Asking, Outcome},
    batcher::{Place, Sent},
    call::Call,
    store::Shared,
};
use crate::{
    decision::Decision,
    keys::Keys,
    meter,
    store::{contract::StoreError, hit::Hit},
};

impl Shared {
    /// Decides a hit; what is seldom or large is put aside, so that waiting with others is cheap.
    pub(super) async fn hit(
        self: Arc<Shared>,
        way: Way,
        asking: Arc<Asking>,
        apart: Option<Box<Keys>>,
    ) -> Result<Decision, StoreError> {
        let Ok(_permit) = self.places.try_acquire() else {
            return Err(StoreError::Overloaded);
        };
        let deadline = Instant::now() + self.patience.time_budget;
        if let Some(keys) = apart {
            let asked = self.hit_apart_by(&asking, &keys, deadline);
            return Box::pin(self.in_time(&way, deadline, asked)).await;
        }
        let sent = if asking.question.shares_calls() {
            Place::find(&self, &way, &asking, deadline)
        } else {
            Sent::Alone(None)
        };
        let (_place, is_odd) = match sent {
            Sent::Alone(place) => (place, false),
            Sent::Together(told) => {
                let told = async { told.await.or(Err(StoreError::TimedOut)) };
                match self.in_time(&way, deadline, told).await? {
                    Outcome::Decided(decision) => return decision,
                    Outcome::Alone { is_odd } => (None, is_odd),
                }
            }
        };
        let asked = self.hit_alone(&way, &asking, deadline, is_odd);
        Box::pin(self.in_time(&way, deadline, asked)).await
    }

    /// Waits for an answer, and not beyond the deadline.
    async fn in_time<T>(
        &self,
        way: &Way,
        deadline: Instant,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = tokio::time::timeout_at(deadline.into(), answer).await;
        answer.unwrap_or_else(|_| {
            if way.timed_out() {
                self.access.map_is_stale();
            }
            meter::ambiguous();
            Err(StoreError::TimedOut)
        })
    }

    async fn hit_apart_by(
        &self,
        asking: &Asking,
        keys: &Keys,
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        let Asking { question, names } = asking;
        let mut hit = Hit::by(&question.policy, keys);
        (hit.cost, hit.slot) = (question.asked.cost, question.asked.slot);
        self.hit_apart(question, names, hit, deadline).await
    }

    /// Asks in a call of its own, by the script for buckets unless that found something odd before.
    async fn hit_alone(
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
