//! Resources that are held until the body of a response ends.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use ratelimit_core::{
    InFlightGuard, Reservation,
    store::{Settlement, StoreError},
};

/// The resources of a request until the body of its response ends: its reservation with the concurrency
/// slot, and its place among the requests in flight.
///
/// An adapter stores the guard beside the body:
///
/// - [`count_bytes`](BodyGuard::count_bytes) for each part that is sent.
/// - [`end`](BodyGuard::end) at the end of the body.
/// - Drop the guard if the body fails or is dropped. The slot is released in each case.
/// - A policy that settles by response bytes charges the bytes that were sent. If the body was dropped
///   before its end, the charge is at least what was charged in advance. A cost that the handler gave to
///   [`SlotGuard::settle`] counts in place of the bytes.
#[derive(Debug)]
#[must_use = "dropping it releases the slot"]
pub struct BodyGuard {
    reservation: Option<Arc<SharedReservation>>,
    in_flight: Option<InFlightGuard>,
    body: BodyKind,
    is_complete: AtomicBool,
    byte_count: Option<ByteCount>,
}

/// Whether the response has a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Sent,
    /// The response to HEAD has no body, whatever the service made.
    None,
}

/// The bytes of a body that determine the cost of its request.
#[derive(Debug)]
struct ByteCount {
    /// Bytes sent so far.
    bytes: u64,
    /// The `Content-Length` of the response.
    announced: Option<u64>,
    /// The cost that was charged in advance.
    charged: u64,
}

impl BodyGuard {
    /// A guard that holds nothing yet.
    pub(crate) const fn new(body: BodyKind) -> BodyGuard {
        BodyGuard {
            reservation: None,
            in_flight: None,
            body,
            is_complete: AtomicBool::new(false),
            byte_count: None,
        }
    }

    /// Holds a reservation, with its slot.
    pub(crate) fn hold(&mut self, reservation: Reservation) {
        self.reservation = Some(Arc::new(SharedReservation::new(reservation)));
    }

    /// Holds a place among the requests in flight, for a load signal.
    pub(crate) fn enter(&mut self, in_flight: InFlightGuard) {
        drop(self.in_flight.replace(in_flight));
    }

    /// Counts a part of the body that is sent.
    #[inline]
    pub fn count_bytes(&mut self, bytes: usize) {
        if let Some(count) = &mut self.byte_count {
            count.bytes += bytes as u64;
        }
    }

    /// Marks the body as sent completely.
    ///
    /// Servers drop a body of known length after its last byte, without asking for its end.
    #[inline]
    pub fn mark_complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
    }

    /// Releases everything at the end of the body.
    pub fn end(self) {
        self.mark_complete();
    }

    /// Keeps the charge as it is. A reservation with a slot is held until the body ends.
    pub(crate) fn keep_charge(&mut self) {
        self.reservation
            .take_if(|reservation| !reservation.holds_slot());
    }

    /// Settles the charge at `actual`: at once, or with the release of the slot.
    pub(crate) fn settle(&mut self, actual: u64) {
        if let Some(reservation) = &self.reservation {
            reservation.settle(actual);
        }
        self.keep_charge();
    }

    /// Refunds the charge, whatever is settled later.
    pub(crate) fn refund(&mut self) {
        if let Some(reservation) = &self.reservation {
            reservation.actual.store(REFUNDED, Ordering::Relaxed);
        }
        self.keep_charge();
    }

    /// Settles the charge at a number of bytes, unless the handler named a cost.
    fn settle_at_bytes(&mut self, bytes: u64) {
        if let Some(reservation) = &self.reservation {
            reservation.settle_unless_named(bytes);
        }
        self.keep_charge();
    }

    /// Settles the charge at the number of bytes of the body, when the body ends.
    pub(crate) fn settle_by_bytes(&mut self, announced: Option<u64>) {
        if self.body == BodyKind::None {
            return self.settle_at_bytes(0);
        }
        let Some(charged) = self
            .reservation
            .as_ref()
            .map(|reservation| reservation.cost())
        else {
            return;
        };
        self.byte_count = Some(ByteCount {
            bytes: 0,
            announced,
            charged,
        });
    }

    /// A share of the reservation, for the body of the request.
    pub(crate) fn reservation(&self) -> Option<Arc<SharedReservation>> {
        self.reservation.clone()
    }

    /// A share of the slot, for work that outlives the response.
    pub(crate) fn slot(&self) -> Option<SlotGuard> {
        let reservation = self.reservation.as_ref()?;
        reservation.holds_slot().then(|| SlotGuard {
            reservation: Arc::clone(reservation),
            _outer: None,
        })
    }
}

impl Drop for BodyGuard {
    /// Settles by the bytes that were sent.
    ///
    /// An incomplete body costs at least what was charged in advance: otherwise a client could hang up and
    /// pay nothing.
    fn drop(&mut self) {
        let Some(count) = self.byte_count.take() else {
            return;
        };
        let is_complete =
            *self.is_complete.get_mut() || count.announced.is_some_and(|all| count.bytes >= all);
        self.settle_at_bytes(if is_complete {
            count.bytes
        } else {
            count.bytes.max(count.charged)
        });
    }
}

/// A share of a request's slot under a concurrency limit, for work that outlives the response.
///
/// - The layer holds the slot until the body of the response ends. An upgraded connection lives longer: take
///   the guard from the request's extensions and move it into the task. The slot is released when the last
///   clone is dropped.
/// - A request that passes without a slot has no guard. Handlers take `Option<Extension<SlotGuard>>` (axum) or
///   `Option<ReqData<SlotGuard>>` (actix-web).
/// - [`settle`](Self::settle) sets the actual cost of a request that is known after the head of its response,
///   as that of a streamed response.
///
/// These requests have no slot:
///
/// - those over the limit of a policy that is in shadow mode or partly enforced
/// - those that the failure mode `open` lets pass while the store does not answer
/// - those that are exempt, and preflight requests of CORS
/// - those of a tier without a concurrency limit
/// - those that cost 0
#[derive(Clone, Debug)]
#[must_use = "the slot is held for as long as this lives"]
pub struct SlotGuard {
    reservation: Arc<SharedReservation>,
    /// The slot of an outer layer.
    _outer: Option<Arc<SlotGuard>>,
}

impl SlotGuard {
    /// Replaces the charged cost by `actual`. It is settled when the slot is released, and the last call counts.
    ///
    /// It applies to the layer nearest to the handler:
    ///
    /// - It counts in place of the bytes of the response (`settle = "response-bytes"`).
    /// - A header that settles the charge (`settle = "header:NAME"`) replaces the cost that was named before the head
    ///   of the response, and a later call replaces that of the header.
    /// - A response whose status is not in `charge_on` refunds the request. Later calls have no effect.
    pub fn settle(&self, actual: u64) {
        self.reservation.settle(actual);
    }

    /// Combines this slot with that of an outer layer.
    pub fn inside(self, outer: Option<SlotGuard>) -> SlotGuard {
        SlotGuard {
            _outer: outer.map(Arc::new),
            ..self
        }
    }
}

/// A reservation that the bodies of a request and its response and the slot guards share. The last of them settles
/// it.
#[derive(Debug)]
pub(crate) struct SharedReservation {
    /// `Some` until the drop.
    reservation: Option<Reservation>,
    /// The actual cost, [`AS_CHARGED`] or [`REFUNDED`].
    actual: AtomicU64,
    /// The bytes of the request's body, if they determine the cost and their number was unknown; otherwise 0.
    read_bytes: AtomicU64,
}

/// Stands for an actual cost that equals the charge. Costs are below 2^53.
const AS_CHARGED: u64 = u64::MAX;
/// Stands for an actual cost of 0 that is final.
const REFUNDED: u64 = u64::MAX - 1;

impl SharedReservation {
    const fn new(reservation: Reservation) -> SharedReservation {
        SharedReservation {
            reservation: Some(reservation),
            actual: AtomicU64::new(AS_CHARGED),
            read_bytes: AtomicU64::new(0),
        }
    }

    /// Sets the actual cost, unless the request was refunded.
    fn settle(&self, actual: u64) {
        let actual = actual.min(REFUNDED - 1);
        let order = Ordering::Relaxed;
        let change = |now| (now != REFUNDED).then_some(actual);
        let _ = self.actual.fetch_update(order, order, change);
    }

    /// Sets the actual cost, unless one was set.
    fn settle_unless_named(&self, actual: u64) {
        let order = Ordering::Relaxed;
        let _ = self
            .actual
            .compare_exchange(AS_CHARGED, actual, order, order);
    }

    /// Charges at least the bytes that were read of the request's body, unless the response determines the cost.
    pub(crate) fn settle_read_bytes(self: Arc<Self>, bytes: u64) {
        self.read_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Whether the reservation has a slot of a concurrency limit.
    fn holds_slot(&self) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_some_and(|reservation| reservation.receipt().lease().is_some())
    }

    /// The cost that was charged in advance.
    fn cost(&self) -> u64 {
        let reservation = self.reservation.as_ref();
        reservation.map_or(0, |reservation| reservation.receipt().cost())
    }
}

impl Drop for SharedReservation {
    fn drop(&mut self) {
        let (actual, read_bytes) = (*self.actual.get_mut(), *self.read_bytes.get_mut());
        let charged = self.cost();
        let Some(reservation) = self.reservation.take() else {
            return;
        };
        match actual {
            REFUNDED => settle_in_background(reservation, 0),
            AS_CHARGED if read_bytes > charged => settle_in_background(reservation, read_bytes),
            AS_CHARGED => {}
            actual => settle_in_background(reservation, actual),
        }
    }
}

/// Settles a reservation: at once if the store is in memory, otherwise in a spawned task.
fn settle_in_background(reservation: Reservation, actual: u64) {
    let policy = reservation.receipt().policy().clone();
    let mut settling = Box::pin(async move { reservation.settle(actual).await });
    let mut cx = Context::from_waker(Waker::noop());
    match settling.as_mut().poll(&mut cx) {
        Poll::Ready(settled) => log_error(policy.name(), settled),
        Poll::Pending => spawn(async move { log_error(policy.name(), settling.await) }),
    }
}

/// Logs a failed settlement. The charge then stays as it was.
fn log_error(policy: &str, settled: Result<Settlement, StoreError>) {
    if let Err(error) = settled {
        tracing::debug!(policy, %error, "a charge could not be settled, and stays");
    }
}

#[cfg(feature = "tokio")]
fn spawn(settling: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(settling);
    } else {
        tracing::debug!("a charge stays: there is no runtime to settle it");
    }
}

#[cfg(not(feature = "tokio"))]
fn spawn(settling: impl Future<Output = ()> + Send + 'static) {
    drop(settling);
    tracing::debug!("a charge stays: the feature `tokio` is off");
}
