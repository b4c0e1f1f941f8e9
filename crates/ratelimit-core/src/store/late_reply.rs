//! A reply that may arrive after the time budget of its hit.

use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::{decision::Decision, sync::lock};

/// The reply to a hit that timed out, while it may still arrive ([`StoreError::Unanswered`]).
///
/// The local fallback takes it: a hit that the store did not charge after all is charged later. Without a taker, nothing
/// waits for the reply.
///
/// [`StoreError::Unanswered`]: crate::store::StoreError::Unanswered
#[derive(Clone, Debug)]
pub struct LateReply(Arc<Mutex<Option<LateReceiver>>>);

/// Receives the late reply, or `None` if the store executed nothing. The sender is dropped when that stays unknown.
pub(crate) type LateReceiver = oneshot::Receiver<Option<Decision>>;

impl LateReply {
    /// The reply that `receiver` gets.
    #[cfg(feature = "redis")]
    pub(crate) fn new(receiver: LateReceiver) -> LateReply {
        LateReply(Arc::new(Mutex::new(Some(receiver))))
    }

    /// Takes the reply. Clones of one error share it, so the second caller gets `None`.
    pub(crate) fn take(&self) -> Option<LateReceiver> {
        lock(&self.0).take()
    }
}
