//! Gauges, counters and the one warning of the memory stores.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::MemoryStats;
use crate::{meter, time::Timestamp};

const MICROS_BETWEEN_WARNINGS: u64 = 60_000_000;

/// The sums over all stores of the process: what the gauges and counters tell.
static KEYS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static EVICTED: AtomicU64 = AtomicU64::new(0);
static EVICTED_EXHAUSTED: AtomicU64 = AtomicU64::new(0);

/// When a store warns of evicted exhausted keys, and of how many.
#[derive(Debug, Default)]
pub(super) struct Report {
    untold: AtomicU64,
    next_warning: AtomicU64,
}

impl Report {
    /// Adds what changed in a shard to the sums.
    pub(super) fn publish(&self, before: MemoryStats, after: MemoryStats, now: Timestamp) {
        let keys = add(&KEYS, after.keys.wrapping_sub(before.keys));
        let bytes = add(&BYTES, after.bytes.wrapping_sub(before.bytes));
        let evicted = after.evicted - before.evicted;
        let exhausted = after.evicted_exhausted - before.evicted_exhausted;
        meter::memory_held(keys, bytes);
        if evicted + exhausted > 0 {
            let evicted = EVICTED.fetch_add(evicted, Relaxed) + evicted;
            let all_exhausted = EVICTED_EXHAUSTED.fetch_add(exhausted, Relaxed) + exhausted;
            meter::memory_evicted(evicted, all_exhausted);
        }
        if exhausted > 0 {
            self.untold.fetch_add(exhausted, Relaxed);
        }
        self.log_evictions(now);
    }

    /// Warns at once, then at most once a minute.
    fn log_evictions(&self, now: Timestamp) {
        let due = self.next_warning.load(Relaxed);
        if now.as_micros() < due || self.untold.load(Relaxed) == 0 {
            return;
        }
        let next = now.as_micros() + MICROS_BETWEEN_WARNINGS;
        let is_ours = self
            .next_warning
            .compare_exchange(due, next, Relaxed, Relaxed);
        if is_ours.is_ok() {
            let keys = self.untold.swap(0, Relaxed);
            tracing::warn!(
                keys,
                "the memory store is full of exhausted keys and evicted some, which start with a whole \
                 budget again; raise the capacity"
            );
        }
    }
}

fn add(sum: &AtomicUsize, change: usize) -> usize {
    sum.fetch_add(change, Relaxed).wrapping_add(change)
}
