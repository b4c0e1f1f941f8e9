//! A hit on its way: by itself or with others, and for no longer than its time budget.

use std::{sync::Arc, time::Instant};

use super::{
    access::Way,
    batch::Outcome,
    batcher::{Place, Sent},
    call::Call,
    question::Question,
    store::Shared,
};
use crate::{
    decision::Decision,
    keys::Keys,
    meter,
    store::{contract::StoreError, hit::Hit},
};

impl Shared {
    pub(super) async fn hit(
        self: &Arc<Shared>,
        way: Way,
        names: Vec<String>,
        question: Question,
        keys: Option<Keys>,
    ) -> Result<Decision, StoreError> {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(StoreError::Overloaded);
        };
        let deadline = Instant::now() + self.patience.time_budget;
        let asked = async {
            if let Some(keys) = keys {
                let mut hit = Hit::by(&question.policy, &keys);
                (hit.cost, hit.slot) = (question.asked.cost, question.asked.slot);
                return self.hit_apart(&question, &names, hit, deadline).await;
            }
            let way = way.clone();
            if question.shares_calls() {
                self.hit_batched(way, question, names, deadline).await
            } else {
                self.hit_alone(way, &question, &names, deadline).await
            }
        };
        let answer = tokio::time::timeout_at(deadline.into(), asked).await;
        answer.unwrap_or_else(|_| {
            if way.timed_out() {
                self.access.map_is_stale();
            }
            meter::ambiguous();
            Err(StoreError::TimedOut)
        })
    }

    async fn hit_alone(
        &self,
        way: Way,
        question: &Question,
        names: &[String],
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        if let Some(bucket) = question.bucket() {
            let call = Call::hit_bucket(&bucket, names);
            if let Some(told) = call.send(&self.access, way.clone(), deadline).await? {
                return Ok(told.decision());
            }
        }
        self.hit_any(way, question, names, deadline).await
    }

    /// Decides whatever is found.
    async fn hit_any(
        &self,
        way: Way,
        question: &Question,
        names: &[String],
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        let call = Call::hit(question, names);
        let told = call.send(&self.access, way, deadline).await?;
        Ok(told.decision())
    }

    /// Sends a hit by itself while few calls are under way, and else with others.
    async fn hit_batched(
        self: &Arc<Shared>,
        way: Way,
        question: Question,
        names: Vec<String>,
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        match Place::find(self, &way, question, names, deadline) {
            Sent::Alone(_place, question, names) => {
                self.hit_alone(way, &question, &names, deadline).await
            }
            Sent::Together(told) => match told.await {
                Ok(Outcome::Decided(decision)) => decision,
                Ok(Outcome::Alone {
                    question,
                    names,
                    is_odd: true,
                }) => self.hit_any(way, &question, &names, deadline).await,
                Ok(Outcome::Alone {
                    question, names, ..
                }) => self.hit_alone(way, &question, &names, deadline).await,
                // The runtime that carried it is gone.
                Err(_) => Err(StoreError::TimedOut),
            },
        }
    }
}
