//! The state that all streams share.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ratelimit_core::Timestamp;
use ratelimit_envoy::quota::Holders;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::buckets::BucketTotals;
use crate::{app::App, envoy::CurrentRules, memory_budget::MemoryBudget};

/// Buckets of all streams whose store is asked at a time. Redis takes 1,024 calls of a process, and refuses those beyond:
/// most of them stay free for other services.
const MAX_CALLS: usize = 256;

/// The state that the streams of a server share, and their clock.
#[derive(Clone)]
pub(super) struct QuotaContext {
    pub(super) app: App,
    pub(super) rules: Arc<CurrentRules>,
    pub(super) holders: Arc<Holders>,
    calls: Arc<Semaphore>,
    /// The memory of reports that wait.
    pub(super) reports: MemoryBudget,
    /// The buckets of all streams.
    pub(super) totals: Arc<BucketTotals>,
    /// The beginning of the clock.
    epoch: Instant,
}

impl QuotaContext {
    pub(super) fn new(app: App, rules: Arc<CurrentRules>) -> QuotaContext {
        QuotaContext {
            app,
            rules,
            holders: Arc::default(),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            reports: MemoryBudget::quota(),
            totals: Arc::default(),
            epoch: Instant::now(),
        }
    }

    /// Waits until the store may be asked for another bucket.
    pub(super) async fn call_permit(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.calls.acquire().await.ok()
    }

    /// The present time.
    pub(super) fn now(&self) -> Timestamp {
        self.timestamp(Instant::now())
    }

    /// A time of this process's monotonic clock.
    pub(super) fn timestamp(&self, at: Instant) -> Timestamp {
        let micros = at.saturating_duration_since(self.epoch).as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// The inverse of [`timestamp`](Self::timestamp).
    pub(super) fn instant(&self, at: Timestamp) -> Instant {
        self.epoch + Duration::from_micros(at.as_micros())
    }
}
