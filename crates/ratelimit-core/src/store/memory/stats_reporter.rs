//! Gauges, counters and the one warning of the memory stores.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use crate::{
    metrics,
    time::{Timestamp, micros},
};

/// What a [`MemoryStore`](crate::MemoryStore) holds and has done.
///
/// ```
/// use ratelimit_core::MemoryStore;
///
/// assert_eq!(MemoryStore::new().stats().keys, 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The keys that are kept.
    pub keys: usize,
    /// The estimated bytes that they take.
    pub bytes: usize,
    /// Keys with budget left that were evicted to make room, except those below.
    pub evicted: u64,
    /// Keys with budget left that were evicted while exhausted keys were more than three quarters of their
    /// shard. Keys that spend slowly are then forgotten before they reach their limit.
    pub evicted_crowded_out: u64,
    /// Exhausted keys that were evicted to make room, because every key was exhausted.
    pub evicted_exhausted: u64,
}

const BETWEEN_REPORTS: Duration = Duration::from_secs(1);
const BETWEEN_WARNINGS: Duration = Duration::from_secs(60);

/// Sums over all stores of the process, which the gauges and counters show.
static KEYS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static EVICTED: AtomicU64 = AtomicU64::new(0);
static EVICTED_CROWDED_OUT: AtomicU64 = AtomicU64::new(0);
static EVICTED_EXHAUSTED: AtomicU64 = AtomicU64::new(0);

/// What a store has told operators, and when.
#[derive(Debug, Default)]
pub(super) struct StatsReporter {
    /// Microseconds since the epoch.
    reported_at: AtomicU64,
    published: Mutex<Published>,
}

#[derive(Debug, Default)]
struct Published {
    stats: MemoryStats,
    /// Keys that were evicted because of exhausted ones since the last warning.
    unlogged: u64,
    warned_at: Option<Timestamp>,
}

impl StatsReporter {
    /// Whether a second has passed since this last said so, also when the clock was set back.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let (last, now) = (self.reported_at.load(Relaxed), now.as_micros());
        let is_due = last.abs_diff(now) >= micros(BETWEEN_REPORTS);
        is_due
            && self
                .reported_at
                .compare_exchange(last, now, SeqCst, Relaxed)
                .is_ok()
    }

    /// Adds what changed in a store to the sums, publishes them, and warns of keys that were evicted because
    /// of exhausted ones: at once, then at most once a minute.
    ///
    /// `stats` is called under the lock: of two threads, the later one publishes the newer counts.
    pub(super) fn publish(&self, stats: impl FnOnce() -> MemoryStats, now: Timestamp) {
        let mut published = self
            .published
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let stats = stats();
        let before = std::mem::replace(&mut published.stats, stats);
        let evicted = stats.evicted - before.evicted;
        let crowded_out = stats.evicted_crowded_out - before.evicted_crowded_out;
        let exhausted = stats.evicted_exhausted - before.evicted_exhausted;
        metrics::memory_held(
            add(&KEYS, stats.keys.wrapping_sub(before.keys)),
            add(&BYTES, stats.bytes.wrapping_sub(before.bytes)),
        );
        metrics::memory_evicted(
            EVICTED.fetch_add(evicted, Relaxed) + evicted,
            EVICTED_CROWDED_OUT.fetch_add(crowded_out, Relaxed) + crowded_out,
            EVICTED_EXHAUSTED.fetch_add(exhausted, Relaxed) + exhausted,
        );
        published.unlogged += exhausted + crowded_out;
        let warned_lately = published
            .warned_at
            .is_some_and(|at| now.since(at) < BETWEEN_WARNINGS);
        if published.unlogged > 0 && !warned_lately {
            published.warned_at = Some(now);
            log_evictions(std::mem::take(&mut published.unlogged));
        }
    }
}

fn add(sum: &AtomicUsize, change: usize) -> usize {
    sum.fetch_add(change, Relaxed).wrapping_add(change)
}

fn log_evictions(keys: u64) {
    tracing::warn!(
        keys,
        "the memory store is full of exhausted keys and evicted keys, which start with a whole budget \
         again; raise the capacity"
    );
}
