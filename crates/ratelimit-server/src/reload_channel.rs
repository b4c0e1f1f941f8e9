//! Requests of callers to reload the configuration.

use tokio::sync::{mpsc, oneshot};

use crate::finding::Finding;

/// The number of requests that wait at most. Further callers wait for room.
const MAX_WAITING: usize = 8;

/// The result of a reload: the number of policies, or the findings for which the configuration was refused.
pub(crate) type ReloadResult = Result<usize, Vec<Finding>>;

/// Asks the task that reloads the configuration.
#[derive(Clone, Debug)]
pub(crate) struct ReloadHandle(mpsc::Sender<ReloadRequest>);

/// The requests of all [`ReloadHandle`]s.
#[derive(Debug)]
pub(crate) struct ReloadRequests(mpsc::Receiver<ReloadRequest>);

/// One request, which waits for its result.
#[derive(Debug)]
pub(crate) struct ReloadRequest(oneshot::Sender<ReloadResult>);

pub(crate) fn reload_channel() -> (ReloadHandle, ReloadRequests) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    (ReloadHandle(sender), ReloadRequests(receiver))
}

impl ReloadHandle {
    /// Reloads the configuration, and waits for the result; `None` if the server ends meanwhile.
    ///
    /// A reload whose caller leaves takes place nevertheless.
    pub(crate) async fn reload(&self) -> Option<ReloadResult> {
        let (answer, result) = oneshot::channel();
        self.0.send(ReloadRequest(answer)).await.ok()?;
        result.await.ok()
    }
}

impl ReloadRequests {
    /// The next request. It never comes if all handles were dropped.
    pub(crate) async fn recv(&mut self) -> ReloadRequest {
        match self.0.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }
}

impl ReloadRequest {
    pub(crate) fn answer(self, result: ReloadResult) {
        // An error means that the caller has left.
        let _ = self.0.send(result);
    }
}
