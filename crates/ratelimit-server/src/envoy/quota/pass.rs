//! One pass over many buckets: calls of the store, and responses.

use std::{
    mem::take,
    pin::pin,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use ratelimit_envoy::{
    proto::envoy::service::rate_limit_quota::v3::{
        RateLimitQuotaResponse, rate_limit_quota_response::BucketAction,
    },
    quota::{PassState, QuotaUpdate},
};

use super::{
    buckets::BucketKey,
    metrics::{count_closed, count_tally},
    stream::{MAX_UNREAD, QuotaStream, StreamEnded, Work, sleep_until},
};

/// Buckets of a pass whose store is asked at a time.
const MAX_CALLS: usize = 128;

/// An assignment is sent after this time at the latest, while calls for other buckets are under way.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// Messages to send in one response.
struct Outbox {
    actions: Vec<BucketAction>,
    /// When the oldest of them was made.
    made_at: Option<Instant>,
}

impl Outbox {
    fn new(actions: Vec<BucketAction>, now: Instant) -> Outbox {
        let made_at = (!actions.is_empty()).then_some(now);
        Outbox { actions, made_at }
    }

    /// The time by which they are sent.
    fn flush_at(&self) -> Option<Instant> {
        self.made_at.map(|at| at + FLUSH_AFTER)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.flush_at().is_some_and(|at| now >= at)
    }

    /// Messages were added that were made at `at`.
    fn mark(&mut self, at: Instant) {
        self.made_at = Some(self.made_at.map_or(at, |oldest| oldest.min(at)));
    }
}

impl QuotaStream {
    /// Makes the calls of many buckets at once, and sends their assignments in one response, unless it takes long.
    ///
    /// When a response cannot be sent, no more calls are made, and those under way are waited for.
    pub(super) async fn perform(
        &mut self,
        work: Vec<Work>,
        actions: Vec<BucketAction>,
    ) -> Result<(), StreamEnded> {
        let pass = PassState::default();
        let context = self.context.clone();
        let calls = work.into_iter().map(|(key, mut holder, due)| {
            let (pass, context) = (&pass, &context);
            async move {
                let _permit = context.call_permit().await;
                let limiter = context.app.limiter();
                let now = || context.now();
                let update = holder.perform(due, limiter, pass, now).await;
                (key, holder, update)
            }
        });
        let mut calls = pin!(stream::iter(calls).buffer_unordered(MAX_CALLS));
        let mut outbox = Outbox::new(actions, Instant::now());
        let mut result = Ok(());
        loop {
            let next = tokio::select! {
                biased;
                next = calls.next() => next,
                () = sleep_until(outbox.flush_at()) => {
                    result = self.send(&mut outbox, &pass, result).await;
                    continue;
                }
            };
            let Some((key, holder, update)) = next else {
                break;
            };
            count_tally(holder.target().policy_name(), &update.tally);
            self.buckets.put_back(key.clone(), holder);
            self.take_update(&key, &update, &mut outbox);
            if outbox.is_due(Instant::now()) {
                result = self.send(&mut outbox, &pass, result).await;
            }
        }
        self.send(&mut outbox, &pass, result).await
    }

    fn take_update(&mut self, key: &BucketKey, update: &QuotaUpdate, outbox: &mut Outbox) {
        if let Some(assignment) = update.assignment
            && let Some(bucket) = self.buckets.get_mut(key)
        {
            assignment.write_to(&bucket.id, &mut outbox.actions);
            outbox.mark(self.context.instant(update.made_at));
        }
        if update.is_abandoned {
            self.abandon(key, &mut outbox.actions);
            outbox.mark(Instant::now());
        }
    }

    /// Sends what is there, unless the stream has failed before.
    async fn send(
        &mut self,
        outbox: &mut Outbox,
        pass: &PassState,
        result: Result<(), StreamEnded>,
    ) -> Result<(), StreamEnded> {
        let bucket_action = take(&mut outbox.actions);
        let made_at = outbox.made_at.take();
        let Some(made_at) = made_at.filter(|_| result.is_ok()) else {
            return result;
        };
        let response = RateLimitQuotaResponse { bucket_action };
        let sending = self.responses.send((made_at, Ok(response)));
        match tokio::time::timeout(MAX_UNREAD, sending).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(_)) => {}
            Err(_) => {
                count_closed("slow");
                tracing::warn!("an Envoy does not read its quota stream: the stream is closed");
            }
        }
        pass.stop();
        Err(StreamEnded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_as_old_as_its_oldest_assignment() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut outbox = Outbox::new(Vec::new(), start);
        assert!(!outbox.is_due(after(10_000)), "there is nothing to send");
        outbox.mark(after(100));
        outbox.mark(after(50));
        outbox.mark(after(240));
        assert_eq!(outbox.made_at, Some(after(50)));
        assert!(!outbox.is_due(after(249)));
        assert!(outbox.is_due(after(250)));
    }
}
