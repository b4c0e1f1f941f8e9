//! The bytes that request bodies, what is decoded from them, and large responses may take at a time.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use metrics::{Counter, counter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::MEMORY_REFUSALS;

/// The bytes for requests of the REST API. Both budgets and the rest of the server fit 256 MiB.
const REST_BYTES: u32 = 16 << 20;

/// The bytes for calls of Envoy: a report of 100,000 buckets with one entry fits.
#[cfg(feature = "envoy")]
const ENVOY_BYTES: u32 = 32 << 20;

/// The bytes for reports of the quota service that wait on all streams. Four a report of 100,000 buckets with one entry fits.
#[cfg(feature = "envoy")]
const QUOTA_BYTES: u32 = 96 << 20;

/// The bytes besides them for the beginnings of requests, so that a few huge requests do not keep all small ones out.
const RESERVED_BYTES: u32 = 4 << 20;

/// The bytes of each request that come from the reserve.
const RESERVED_EACH: usize = 16 << 10;

/// The sizes of the smallest and of the largest chunk of a message that arrives.
const MIN_CHUNK: usize = 1 << 10;
const MAX_CHUNK: usize = 64 << 10;

/// Shortest time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// A budget in bytes. Clones share it.
#[derive(Clone)]
pub(crate) struct MemoryBudget(Arc<BudgetInner>);

struct BudgetInner {
    name: &'static str,
    max_bytes: u32,
    /// What happens to a request that does not fit.
    refusal: &'static str,
    free: Arc<Semaphore>,
    /// The free bytes of the reserve, of which each request has [`RESERVED_EACH`] at most.
    reserve: Arc<Semaphore>,
    refused: Counter,
    warned_at: Mutex<Option<Instant>>,
}

/// A part of a budget, which is free again when this is dropped.
pub(crate) struct HeldMemory {
    budget: MemoryBudget,
    reserved: Option<OwnedSemaphorePermit>,
    permit: Option<OwnedSemaphorePermit>,
}

/// The budget has not enough free bytes.
#[derive(Debug)]
pub(crate) struct BudgetExhausted;

/// An extension of a response: memory that is held until the peer has taken the response.
#[derive(Clone, Debug)]
pub(crate) struct HeldForResponse(Arc<HeldMemory>);

impl MemoryBudget {
    /// The budget of the REST API.
    pub(crate) fn rest() -> MemoryBudget {
        MemoryBudget::new("rest", REST_BYTES, RESERVED_BYTES, "503")
    }

    /// The budget of gRPC calls.
    #[cfg(feature = "envoy")]
    pub(crate) fn envoy() -> MemoryBudget {
        MemoryBudget::new("envoy", ENVOY_BYTES, RESERVED_BYTES, "RESOURCE_EXHAUSTED")
    }

    /// The budget of reports of the quota service that wait.
    #[cfg(feature = "envoy")]
    pub(crate) fn quota() -> MemoryBudget {
        MemoryBudget::new("quota", QUOTA_BYTES, 0, "RESOURCE_EXHAUSTED")
    }

    fn new(
        name: &'static str,
        max_bytes: u32,
        reserved: u32,
        refusal: &'static str,
    ) -> MemoryBudget {
        let refused = counter!(MEMORY_REFUSALS, "budget" => name);
        refused.absolute(0);
        MemoryBudget(Arc::new(BudgetInner {
            name,
            max_bytes,
            refusal,
            free: Arc::new(Semaphore::new(max_bytes as usize)),
            reserve: Arc::new(Semaphore::new(reserved as usize)),
            refused,
            warned_at: Mutex::new(None),
        }))
    }

    /// Holds nothing yet.
    pub(crate) fn hold(&self) -> HeldMemory {
        HeldMemory {
            budget: self.clone(),
            reserved: None,
            permit: None,
        }
    }

    /// Whether less than half of it is free. Peers that do not take their responses have less time then.
    pub(crate) fn is_short(&self) -> bool {
        self.0.free.available_permits() < self.0.max_bytes as usize / 2
    }

    /// The bytes that are held besides those of the reserve.
    #[cfg(all(test, feature = "envoy"))]
    pub(crate) fn held_bytes(&self) -> usize {
        self.0.max_bytes as usize - self.0.free.available_permits()
    }

    fn log_refusal(&self) {
        self.0.refused.increment(1);
        let now = Instant::now();
        let mut warned_at = self
            .0
            .warned_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_recent = |at: Instant| now.duration_since(at) < WARNING_INTERVAL;
        if warned_at.is_some_and(is_recent) {
            return;
        }
        *warned_at = Some(now);
        drop(warned_at);
        tracing::warn!(
            budget = self.0.name,
            max_bytes = self.0.max_bytes,
            "too many bytes of requests are in flight: requests with a body are refused with {} until there are fewer",
            self.0.refusal
        );
    }
}

impl HeldMemory {
    /// Holds `bytes` more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), BudgetExhausted> {
        let budget = &self.budget.0;
        let from_reserve = RESERVED_EACH.saturating_sub(permits(self.reserved.as_ref()));
        let reserved = acquire(&budget.reserve, bytes.min(from_reserve));
        let others = bytes - permits(reserved.as_ref());
        let Some(others) = acquire(&budget.free, others) else {
            self.budget.log_refusal();
            return Err(BudgetExhausted);
        };
        if let Some(reserved) = reserved {
            merge(&mut self.reserved, reserved);
        }
        merge(&mut self.permit, others);
        Ok(())
    }

    /// The bytes that are held.
    pub(crate) fn bytes(&self) -> usize {
        permits(self.reserved.as_ref()) + permits(self.permit.as_ref())
    }

    /// Frees all but `bytes`.
    #[cfg(feature = "envoy")]
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let mut more = self.bytes().saturating_sub(bytes);
        for permit in [&mut self.permit, &mut self.reserved].into_iter().flatten() {
            let freed = more.min(permit.num_permits());
            drop(permit.split(freed));
            more -= freed;
        }
    }

    /// Takes all that is held.
    #[cfg(feature = "envoy")]
    pub(crate) fn take(&mut self) -> HeldMemory {
        HeldMemory {
            budget: self.budget.clone(),
            reserved: self.reserved.take(),
            permit: self.permit.take(),
        }
    }

    /// Holds it until the peer has taken a response, or is gone.
    pub(crate) fn until_sent(self) -> HeldForResponse {
        HeldForResponse(Arc::new(self))
    }
}

fn permits(permit: Option<&OwnedSemaphorePermit>) -> usize {
    permit.map_or(0, OwnedSemaphorePermit::num_permits)
}

fn acquire(free: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let bytes = u32::try_from(bytes).ok()?;
    Arc::clone(free).try_acquire_many_owned(bytes).ok()
}

fn merge(held: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match held {
        Some(permit) => permit.merge(more),
        None => *held = Some(more),
    }
}

impl HeldForResponse {
    /// The budget that the memory is a part of.
    pub(crate) fn budget(&self) -> &MemoryBudget {
        &self.0.budget
    }
}

/// The bytes of a message that arrives in parts.
///
/// - Parts are copied: a part of one byte may share a buffer of many that are not counted.
/// - The bytes do not move while there are more: a buffer that grows would take up to three times their memory.
#[derive(Debug, Default)]
pub(crate) struct ReceivedBytes {
    chunks: Vec<Vec<u8>>,
    len: usize,
}

impl ReceivedBytes {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first `N` bytes, up to 1,024.
    #[cfg(feature = "envoy")]
    pub(crate) fn first<const N: usize>(&self) -> Option<[u8; N]> {
        self.chunks.first()?.first_chunk().copied()
    }

    pub(crate) fn push(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            let is_full = |chunk: &Vec<u8>| chunk.len() == chunk.capacity();
            if self.chunks.last().is_none_or(is_full) {
                // A chunk as long as all before it is at most half empty.
                let size = self.len.max(part.len()).clamp(MIN_CHUNK, MAX_CHUNK);
                self.chunks.push(Vec::with_capacity(size));
            }
            let Some(chunk) = self.chunks.last_mut() else {
                return;
            };
            let room = chunk.capacity() - chunk.len();
            let (fitting, rest) = part.split_at(room.min(part.len()));
            chunk.extend_from_slice(fitting);
            self.len += fitting.len();
            part = rest;
        }
    }

    /// Takes all bytes, in one piece.
    pub(crate) fn take(&mut self) -> Bytes {
        let len = std::mem::take(&mut self.len);
        let mut chunks = std::mem::take(&mut self.chunks).into_iter();
        if chunks.len() <= 1 {
            return Bytes::from(chunks.next().unwrap_or_default());
        }
        let mut all = Vec::with_capacity(len);
        // Each chunk is freed before the next one is copied.
        chunks.for_each(|chunk| all.extend_from_slice(&chunk));
        Bytes::from(all)
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.0.free.available_permits();
        f.debug_struct("MemoryBudget")
            .field("name", &self.0.name)
            .field("free", &free)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for HeldMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldMemory({})", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> MemoryBudget {
        MemoryBudget::new("rest", 1 << 20, 40 << 10, "503")
    }

    #[test]
    fn a_part_is_free_again_when_it_is_dropped() {
        let budget = budget();
        let all = (1 << 20) + RESERVED_EACH;
        let mut one = budget.hold();

        one.grow(all - 10).unwrap();
        assert_eq!(one.bytes(), all - 10);
        assert!(budget.is_short());
        one.grow(10).unwrap();
        one.grow(1).unwrap_err();
        drop(one);

        assert!(!budget.is_short());
        let mut one = budget.hold();
        one.grow(all + 1).unwrap_err();
        assert_eq!(one.bytes(), 0);
        one.grow(all).unwrap();
    }

    #[test]
    fn small_requests_fit_while_large_ones_take_the_whole_budget() {
        let budget = budget();
        let mut large = budget.hold();
        large.grow((1 << 20) + RESERVED_EACH).unwrap();

        let mut small = budget.hold();
        small.grow(1_000).unwrap();
        small.grow(RESERVED_EACH - 1_000).unwrap();
        small.grow(1).unwrap_err();
        let mut last = budget.hold();
        last.grow(8 << 10).unwrap();
        last.grow(1).unwrap_err();
        drop(small);

        last.grow(8 << 10).unwrap();
    }

    #[test]
    fn a_small_request_takes_of_the_budget_when_the_reserve_is_used_up() {
        let budget = budget();
        let mut held: Vec<HeldMemory> = (0..3).map(|_| budget.hold()).collect();

        for memory in &mut held {
            memory.grow(RESERVED_EACH).unwrap();
        }

        let mut large = budget.hold();
        large.grow(1 << 20).unwrap_err();
        drop(held);
        large.grow(1 << 20).unwrap();
    }

    #[cfg(feature = "envoy")]
    #[test]
    fn the_reserve_is_freed_last() {
        let budget = budget();
        let mut memory = budget.hold();
        memory.grow((1 << 20) + RESERVED_EACH).unwrap();

        memory.shrink_to(RESERVED_EACH + 10);
        assert_eq!(permits(memory.permit.as_ref()), 10);
        memory.shrink_to(7);

        assert_eq!((memory.bytes(), permits(memory.reserved.as_ref())), (7, 7));
        let taken = memory.take();
        assert_eq!((memory.bytes(), taken.bytes()), (0, 7));
    }

    #[test]
    fn parts_are_joined_and_their_chunks_take_little_more_than_the_bytes() {
        for (part, parts) in [(1, 5_000), (700, 1_000), (200_000, 3)] {
            let bytes: Vec<u8> = (0..=250).cycle().take(part * parts).collect();
            let mut received = ReceivedBytes::default();
            for part in bytes.chunks(part) {
                received.push(part);
                let room: usize = received.chunks.iter().map(Vec::capacity).sum();
                assert!(room <= (2 * received.len()).max(MIN_CHUNK));
                assert!(room < received.len() + MAX_CHUNK);
            }

            assert_eq!(received.len(), bytes.len());
            assert_eq!(received.take(), bytes);
            assert_eq!((received.len(), received.take()), (0, Bytes::new()));
        }
    }
}
