//! Hits that timed out, and whose reply may still arrive.

use std::{future::Future, sync::Arc, time::Instant};

use tokio::sync::oneshot;

use crate::store::redis::{
    batch::BatchOutcome, call::LATE_REPLY_TIME, connection::router::Route, execute::Executor,
};
use crate::{
    decision::Decision,
    store::{contract::StoreError, late_reply::LateReply},
};

impl Executor {
    /// The error of a hit that timed out. A task waits for its late reply, unless too many do so already.
    ///
    /// A caller with a short deadline of its own has not counted as a timeout: a call over `in_time` does so without a
    /// reply by then, so that the circuit breaker opens for a server that is silent, and not for one that is slower
    /// than the caller.
    pub(super) fn await_late(
        self: &Arc<Executor>,
        reply: impl Future<Output = Result<Decision, StoreError>> + Send + Unpin + 'static,
        in_time: Option<(Route, Instant)>,
    ) -> StoreError {
        let Ok(permit) = Arc::clone(&self.late_replies).try_acquire_owned() else {
            return StoreError::TimedOut;
        };
        let (sender, receiver) = oneshot::channel();
        let executor = Arc::clone(self);
        tokio::spawn(async move {
            match executor.late_reply(reply, in_time, &sender).await {
                Some(Ok(decision)) => drop(sender.send(Some(decision))),
                Some(Err(error)) if error.charged_nothing() => drop(sender.send(None)),
                // It stays unknown.
                Some(Err(_)) | None => {}
            }
            drop(permit);
        });
        StoreError::Unanswered {
            reply: LateReply::new(receiver),
        }
    }

    /// The reply to a hit that timed out, if it arrives within a second and is asked for.
    async fn late_reply(
        &self,
        mut reply: impl Future<Output = Result<Decision, StoreError>> + Unpin,
        in_time: Option<(Route, Instant)>,
        sender: &oneshot::Sender<Option<Decision>>,
    ) -> Option<Result<Decision, StoreError>> {
        if let Some((route, latest)) = in_time {
            match tokio::time::timeout_at(latest.into(), &mut reply).await {
                Ok(reply) => {
                    if !matches!(reply, Err(StoreError::Unavailable { .. })) {
                        route.record_reply();
                    }
                    return Some(reply);
                }
                Err(_) => self.router.record_timeout(&route, self.elapsed(latest)),
            }
        }
        // Failure modes other than the local fallback do not ask for the reply.
        if sender.is_closed() {
            return None;
        }
        tokio::time::timeout(LATE_REPLY_TIME, reply).await.ok()
    }
}

/// The late reply to a hit of a batch.
pub(super) async fn late_outcome(
    outcome: oneshot::Receiver<BatchOutcome>,
) -> Result<Decision, StoreError> {
    match outcome.await {
        Ok(BatchOutcome::Decided(decision)) => decision,
        // Nothing was executed for the hit, and it is not sent again.
        Ok(BatchOutcome::SendSingle { .. }) => Err(StoreError::TooLate),
        Err(_) => Err(StoreError::TimedOut),
    }
}
