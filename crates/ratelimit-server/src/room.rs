//! The limit of open connections of a listener.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use metrics::{Gauge, gauge};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::HTTP_CONNECTIONS;

const FULL_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Room for connections of one listener.
pub(crate) struct Room {
    listener: &'static str,
    max_connections: usize,
    semaphore: Arc<Semaphore>,
    open: Gauge,
    warned_at: Option<Instant>,
}

impl Room {
    pub(crate) fn new(listener: &'static str, max_connections: usize) -> Room {
        let open = gauge!(HTTP_CONNECTIONS, "listener" => listener);
        open.set(0.0);
        Room {
            listener,
            max_connections,
            semaphore: Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))),
            open,
            warned_at: None,
        }
    }

    /// Waits until another connection may be open.
    pub(crate) async fn wait(&mut self) -> OwnedSemaphorePermit {
        if let Some(permit) = self.permit_now() {
            return permit;
        }
        self.log_full();
        let permit = Arc::clone(&self.semaphore).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    pub(crate) fn permit_now(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.semaphore).try_acquire_owned().ok()
    }

    pub(crate) fn count(&self, permit: OwnedSemaphorePermit) -> OpenConnection {
        self.open.increment(1.0);
        OpenConnection {
            _permit: permit,
            open: self.open.clone(),
        }
    }

    fn log_full(&mut self) {
        let now = Instant::now();
        let is_recent = |at: Instant| now.duration_since(at) < FULL_WARNING_INTERVAL;
        if self.warned_at.is_some_and(is_recent) {
            return;
        }
        self.warned_at = Some(now);
        tracing::warn!(
            listener = self.listener,
            max_connections = self.max_connections,
            "every connection of the listener is in use: new ones wait to be accepted, probes included"
        );
    }
}

/// The permit of an open connection. The gauge counts it until it is dropped.
pub(crate) struct OpenConnection {
    _permit: OwnedSemaphorePermit,
    open: Gauge,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}
