//! Counting the body of a request whose length is unknown.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::middleware::body_guard::SharedReservation;

/// Counts the bytes that a service reads of a request's body, for limits whose cost is the length of the body.
///
/// - An adapter makes it if [`Config::counts_body`](crate::middleware::Config::counts_body) is true. It keeps
///   the counter beside the body and inserts its [`BodyCount`] into the request's extensions before the check.
/// - All limits that the request passes share one counter.
/// - Dropping it charges each of them the bytes that were read, as far as their budgets allow. An adapter drops
///   it when the body ends or fails, and with a body that is not read to its end.
/// - A limit that refunds the request or settles it by its response ignores the bytes.
///
/// ```
/// use ratelimit_http::middleware::{BodyCount, BodyCounter};
///
/// let counter = BodyCounter::default();
/// let extension: BodyCount = counter.count();
/// counter.count_bytes(400);
/// assert_eq!(extension.bytes(), 400);
/// drop(counter);
/// assert!(extension.is_ended());
/// ```
#[derive(Debug, Default)]
#[must_use = "dropping it ends the count"]
pub struct BodyCounter(BodyCount);

/// The bytes that were read of a body, and the charges that wait for its end. It is an extension of the request.
///
/// - Clones share one count, which its [`BodyCounter`] advances.
/// - A charge that it holds keeps its slot under a concurrency limit until the body ends.
#[derive(Clone, Debug, Default)]
pub struct BodyCount(Arc<CountState>);

#[derive(Debug, Default)]
struct CountState {
    bytes: AtomicU64,
    charges: Mutex<WaitingCharges>,
}

#[derive(Debug)]
enum WaitingCharges {
    Counting(Vec<Arc<SharedReservation>>),
    Ended,
}

impl Default for WaitingCharges {
    fn default() -> WaitingCharges {
        WaitingCharges::Counting(Vec::new())
    }
}

impl BodyCounter {
    /// The count, for the extensions of the request.
    pub fn count(&self) -> BodyCount {
        self.0.clone()
    }

    /// Counts a part of the body that the service read.
    #[inline]
    pub fn count_bytes(&self, bytes: usize) {
        let state = &self.0.0;
        state.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for BodyCounter {
    fn drop(&mut self) {
        let bytes = self.0.bytes();
        let charges = mem::replace(&mut *self.0.lock(), WaitingCharges::Ended);
        if let WaitingCharges::Counting(charges) = charges {
            for charge in charges {
                charge.settle_read_bytes(bytes);
            }
        }
    }
}

impl BodyCount {
    /// Whether the body has ended, or nothing reads it any more.
    ///
    /// A limit that is checked afterwards does not wait for bytes.
    pub fn is_ended(&self) -> bool {
        matches!(*self.lock(), WaitingCharges::Ended)
    }

    /// Keeps a charge until the body ends. It then costs at least the bytes that were read.
    pub(crate) fn hold(&self, charge: Arc<SharedReservation>) {
        match &mut *self.lock() {
            WaitingCharges::Counting(charges) => charges.push(charge),
            WaitingCharges::Ended => charge.settle_read_bytes(self.bytes()),
        }
    }

    /// The bytes that were read so far.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WaitingCharges> {
        let charges = self.0.charges.lock();
        charges.unwrap_or_else(PoisonError::into_inner)
    }
}
