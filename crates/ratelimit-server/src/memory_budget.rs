//! The bytes that request bodies, what is decoded from them, and large responses may take at a time.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

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
    refused: Counter,
    warned_at: Mutex<Option<Instant>>,
}

/// A part of a budget, which is free again when this is dropped.
pub(crate) struct HeldMemory {
    budget: MemoryBudget,
    permit: Option<OwnedSemaphorePermit>,
}

/// The budget has not enough free bytes.
#[derive(Debug)]
pub(crate) struct BudgetExhausted;

/// An extension of a response: memory that is held until the peer has taken the response.
#[derive(Clone, Debug)]
pub(crate) struct HeldForResponse(#[allow(dead_code, reason = "it is held")] Arc<HeldMemory>);

impl MemoryBudget {
    /// The budget of the REST API.
    pub(crate) fn rest() -> MemoryBudget {
        MemoryBudget::new("rest", REST_BYTES, "503")
    }

    /// The budget of gRPC calls.
    #[cfg(feature = "envoy")]
    pub(crate) fn envoy() -> MemoryBudget {
        MemoryBudget::new("envoy", ENVOY_BYTES, "RESOURCE_EXHAUSTED")
    }

    /// The budget of reports of the quota service that wait.
    #[cfg(feature = "envoy")]
    pub(crate) fn quota() -> MemoryBudget {
        MemoryBudget::new("quota", QUOTA_BYTES, "RESOURCE_EXHAUSTED")
    }

    fn new(name: &'static str, max_bytes: u32, refusal: &'static str) -> MemoryBudget {
        let refused = counter!(MEMORY_REFUSALS, "budget" => name);
        refused.absolute(0);
        MemoryBudget(Arc::new(BudgetInner {
            name,
            max_bytes,
            refusal,
            free: Arc::new(Semaphore::new(max_bytes as usize)),
            refused,
            warned_at: Mutex::new(None),
        }))
    }

    /// Holds nothing yet.
    pub(crate) fn hold(&self) -> HeldMemory {
        HeldMemory {
            budget: self.clone(),
            permit: None,
        }
    }

    /// Whether less than half of it is free. Peers that do not take their responses have less time then.
    pub(crate) fn is_short(&self) -> bool {
        self.0.free.available_permits() < self.0.max_bytes as usize / 2
    }

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
        let free = Arc::clone(&self.budget.0.free);
        let acquired = u32::try_from(bytes)
            .ok()
            .and_then(|bytes| free.try_acquire_many_owned(bytes).ok());
        let Some(more) = acquired else {
            self.budget.log_refusal();
            return Err(BudgetExhausted);
        };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }

    /// The bytes that are held.
    pub(crate) fn bytes(&self) -> usize {
        let permit = self.permit.as_ref();
        permit.map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Frees all but `bytes`.
    #[cfg(feature = "envoy")]
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.permit {
            let more = permit.num_permits().saturating_sub(bytes);
            drop(permit.split(more));
        }
    }

    /// Takes all that is held.
    #[cfg(feature = "envoy")]
    pub(crate) fn take(&mut self) -> HeldMemory {
        HeldMemory {
            budget: self.budget.clone(),
            permit: self.permit.take(),
        }
    }

    /// Holds it until the peer has taken a response, or is gone.
    pub(crate) fn until_sent(self) -> HeldForResponse {
        HeldForResponse(Arc::new(self))
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

    #[test]
    fn a_part_is_free_again_when_it_is_dropped() {
        let budget = MemoryBudget::rest();
        let mut one = budget.hold();
        let mut other = budget.hold();

        one.grow(REST_BYTES as usize - 10).unwrap();
        assert!(budget.is_short());
        other.grow(10).unwrap();
        other.grow(1).unwrap_err();
        drop(one);

        assert!(!budget.is_short());
        other.grow(REST_BYTES as usize - 10).unwrap();
        budget.hold().grow(1).unwrap_err();
    }
}
