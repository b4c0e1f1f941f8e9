//! What is held for a request until its response ends.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use ratelimit_core::{InFlightGuard, Reservation, Settlement, StoreError};

/// What is held for a request until its response ends: its charge, with its slot, and its place among
/// the requests in flight.
///
/// An adapter keeps it beside the body, tells it what is [sent](BodyGuard::count_bytes), and [ends](BodyGuard::end) it with
/// the body or drops it with a body that fails or is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends what is held"]
pub struct BodyGuard {
    spent: Option<Arc<SharedReservation>>,
    in_flight: Option<InFlightGuard>,
    body: BodyKind,
    is_whole: AtomicBool,
    counting: Option<ByteCount>,
}

/// Whether a body follows the head of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Sent,
    /// The answer to HEAD has none, whatever the service made.
    None,
}

/// A body whose bytes are what the request costs.
#[derive(Debug)]
struct ByteCount {
    bytes: u64,
    announced: Option<u64>,
    charged: u64,
}

impl BodyGuard {
    pub(crate) const fn new(body: BodyKind) -> BodyGuard {
        BodyGuard {
            spent: None,
            in_flight: None,
            body,
            is_whole: AtomicBool::new(false),
            counting: None,
        }
    }

    /// Holds a charge, with its slot.
    pub(crate) fn charge(&mut self, charge: Reservation) {
        self.spent = Some(Arc::new(SharedReservation::new(charge)));
    }

    /// Holds a place among the requests in flight.
    pub(crate) fn enter(&mut self, in_flight: InFlightGuard) {
        drop(self.in_flight.replace(in_flight));
    }

    /// Counts a part of the body that is sent.
    #[inline]
    pub fn count_bytes(&mut self, bytes: usize) {
        if let Some(counting) = &mut self.counting {
            counting.bytes += bytes as u64;
        }
    }

    /// Remembers that nothing of the body is left to send, for servers that then drop it.
    #[inline]
    pub fn mark_complete(&self) {
        self.is_whole.store(true, Ordering::Relaxed);
    }

    /// Ends all that is held, because the body came to its end.
    pub fn end(self) {
        self.mark_complete();
    }

    /// Leaves the request as it was charged.
    pub(crate) fn keep_charge(&mut self) {
        self.spent.take_if(|spent| !spent.holds_slot());
    }

    /// Makes it as if `actual` had been charged: at once, or when its slot is given back.
    pub(crate) fn settle(&mut self, actual: u64) {
        if let Some(spent) = &self.spent {
            spent.actual.store(actual, Ordering::Relaxed);
        }
        self.keep_charge();
    }

    /// Makes it as if the bytes of the body had been charged, when that has ended.
    pub(crate) fn settle_by_bytes(&mut self, announced: Option<u64>) {
        if self.body == BodyKind::None {
            return self.settle(0);
        }
        let Some(charged) = self.spent.as_ref().map(|spent| spent.charged()) else {
            return;
        };
        self.counting = Some(ByteCount {
            bytes: 0,
            announced,
            charged,
        });
    }

    pub(crate) fn slot(&self) -> Option<SlotGuard> {
        let spent = self.spent.as_ref()?;
        spent.holds_slot().then(|| SlotGuard {
            _spent: Arc::clone(spent),
            _outer: None,
        })
    }
}

impl Drop for BodyGuard {
    /// A body that was left before its end costs at least what was charged ahead: else whoever hangs up
    /// pays nothing. Servers drop a body of a known length when its last byte is sent.
    fn drop(&mut self) {
        let Some(counting) = self.counting.take() else {
            return;
        };
        let is_whole =
            *self.is_whole.get_mut() || counting.announced.is_some_and(|all| counting.bytes >= all);
        self.settle(if is_whole {
            counting.bytes
        } else {
            counting.bytes.max(counting.charged)
        });
    }
}

/// The slot of a request under a concurrency limit, for what outlives its response.
///
/// A layer holds the slot until the body of the response has ended. A connection that is upgraded lives
/// on: its task takes the slot with it, and gives it back when it drops the last clone.
#[derive(Clone, Debug)]
#[must_use = "the slot is held for as long as this lives"]
pub struct SlotGuard {
    _spent: Arc<SharedReservation>,
    /// That of a layer further out.
    _outer: Option<Arc<SlotGuard>>,
}

impl SlotGuard {
    /// This slot and that of a layer further out, as one.
    pub fn inside(self, outer: Option<SlotGuard>) -> SlotGuard {
        SlotGuard {
            _outer: outer.map(Arc::new),
            ..self
        }
    }
}

/// What a request was charged, and what it will have cost.
#[derive(Debug)]
struct SharedReservation {
    /// Taken when this is dropped.
    charge: Option<Reservation>,
    actual: AtomicU64,
}

/// No cost is as high: all are below 2^53.
const AS_CHARGED: u64 = u64::MAX;

impl SharedReservation {
    const fn new(charge: Reservation) -> SharedReservation {
        SharedReservation {
            charge: Some(charge),
            actual: AtomicU64::new(AS_CHARGED),
        }
    }

    fn holds_slot(&self) -> bool {
        let charge = self.charge.as_ref();
        charge.is_some_and(|charge| charge.receipt().lease().is_some())
    }

    fn charged(&self) -> u64 {
        let charge = self.charge.as_ref();
        charge.map_or(0, |charge| charge.receipt().cost())
    }
}

impl Drop for SharedReservation {
    fn drop(&mut self) {
        let actual = *self.actual.get_mut();
        if let Some(charge) = self.charge.take()
            && actual != AS_CHARGED
        {
            settle_in_background(charge, actual);
        }
    }
}

/// Settles a charge without anybody waiting: from memory at once, else in a task of its own.
fn settle_in_background(charge: Reservation, actual: u64) {
    let policy = charge.receipt().policy().clone();
    let mut settling = Box::pin(async move { charge.settle(actual).await });
    let mut cx = Context::from_waker(Waker::noop());
    match settling.as_mut().poll(&mut cx) {
        Poll::Ready(settled) => report(policy.name(), settled),
        Poll::Pending => spawn(async move { report(policy.name(), settling.await) }),
    }
}

fn report(policy: &str, settled: Result<Settlement, StoreError>) {
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
