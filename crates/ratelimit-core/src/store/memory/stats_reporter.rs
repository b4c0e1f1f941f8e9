//! Gauges, counters and the warning about evictions of the memory stores.
//!
//! The gauges show sums over all memory stores of the process: a metric cannot tell them apart, and operators care
//! about the memory of the process. Each store adds its changes since its last report to the sums.

use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use crate::store::memory::{MemoryInner, settled::SettledStats};
use crate::{
    metrics,
    sync::lock,
    time::{Timestamp, micros},
};

/// The size of a [`MemoryStore`](crate::MemoryStore), and its evictions since it was made.
///
/// `evicted_crowded_out` and `evicted_exhausted` above 0 mean that limits do not hold for some keys: raise the
/// capacity. Expired keys that are dropped count nowhere.
///
/// ```
/// use ratelimit_core::{Key, Limiter, MemoryStore, Policy};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
///
/// let store = MemoryStore::new();
/// let limiter = Limiter::new(store.clone());
/// let policy = Policy::parse("api", "10/min")?;
/// assert!(limiter.check(&policy, &Key::new("alice")?).await.is_allowed());
///
/// let stats = store.stats();
/// assert_eq!((stats.keys, stats.evicted), (1, 0));
/// assert!(stats.bytes > 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Keys in the store, including expired ones that no sweep has dropped yet.
    pub keys: usize,
    /// Estimated bytes of these keys.
    pub bytes: usize,
    /// Keys with budget left that were evicted, except those of `evicted_crowded_out`.
    pub evicted: u64,
    /// Keys with budget left that were evicted while more than three quarters of their shard were exhausted.
    ///
    /// Keys that spend slowly are then evicted before they reach their limit.
    pub evicted_crowded_out: u64,
    /// Exhausted keys that were evicted because every key of their shard was exhausted.
    pub evicted_exhausted: u64,
}

/// Minimum time between two reports of one store. A report locks every shard in turn.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two warnings of one store.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Keys of all memory stores of the process; a gauge shows it.
static KEYS: AtomicUsize = AtomicUsize::new(0);
/// Estimated bytes of all memory stores of the process.
static BYTES: AtomicUsize = AtomicUsize::new(0);
// The counters are kept here and published as absolute values, so that a recorder which is installed late shows all
// evictions since the start of the process.
static EVICTED: AtomicU64 = AtomicU64::new(0);
static EVICTED_CROWDED_OUT: AtomicU64 = AtomicU64::new(0);
static EVICTED_EXHAUSTED: AtomicU64 = AtomicU64::new(0);
static FORGOTTEN_RECEIPTS: AtomicU64 = AtomicU64::new(0);

/// The stores of the process, for [`MemoryStore::update_metrics`](crate::MemoryStore::update_metrics).
static STORES: Mutex<Vec<Weak<MemoryInner>>> = Mutex::new(Vec::new());

/// Adds a new store, and removes those that were dropped.
pub(super) fn register(store: Weak<MemoryInner>) {
    let mut stores = lock(&STORES);
    stores.retain(|store| store.strong_count() > 0);
    stores.push(store);
}

/// The stores that exist now. The lock is released before any of them is used.
pub(super) fn live_stores() -> Vec<Arc<MemoryInner>> {
    lock(&STORES).iter().filter_map(Weak::upgrade).collect()
}

/// Publishes the stats of one store, and remembers what it has published.
///
/// - [`is_due`](StatsReporter::is_due) is lock-free and true for one thread a second.
/// - [`publish`](StatsReporter::publish) holds a lock while it reads the stats, which locks every shard in turn. A
///   caller must not hold a shard.
#[derive(Debug, Default)]
pub(super) struct StatsReporter {
    /// Microseconds since the epoch of the store's clock; 0 before the first report.
    reported_at: AtomicU64,
    published: Mutex<Published>,
}

/// The part of the sums that came from this store, and its last warning.
#[derive(Debug, Default)]
struct Published {
    stats: MemoryStats,
    settled: SettledStats,
    /// Evictions that weaken limits, since the last warning.
    unlogged: u64,
    /// Settled receipts that were forgotten, since the last warning.
    unlogged_receipts: u64,
    /// By the store's clock.
    warned_at: Option<Timestamp>,
}

impl StatsReporter {
    /// Whether a second has passed since the last report, also when the clock was set back.
    ///
    /// Of several threads that ask at the same time, one gets `true`.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let (last, now) = (self.reported_at.load(Relaxed), now.as_micros());
        let is_due = last.abs_diff(now) >= micros(REPORT_INTERVAL);
        is_due
            && self
                .reported_at
                .compare_exchange(last, now, SeqCst, Relaxed)
                .is_ok()
    }

    /// Adds the changes since the last call to the sums of the process, and publishes the sums.
    ///
    /// It warns of evictions that weaken limits: immediately the first time, then at most once a minute.
    ///
    /// `stats` is called under the lock: of two threads, the later one publishes the newer counts.
    pub(super) fn publish(
        &self,
        stats: impl FnOnce() -> (MemoryStats, SettledStats),
        now: Timestamp,
    ) {
        let mut published = lock(&self.published);
        let (stats, settled) = stats();
        let before = std::mem::replace(&mut published.stats, stats);
        let settled_before = std::mem::replace(&mut published.settled, settled);
        let forgotten = settled.forgotten - settled_before.forgotten;
        let evicted = stats.evicted - before.evicted;
        let crowded_out = stats.evicted_crowded_out - before.evicted_crowded_out;
        let exhausted = stats.evicted_exhausted - before.evicted_exhausted;
        // A store that shrank subtracts by wrapping; the sum over all stores never falls below 0.
        metrics::memory_held(
            add(
                &KEYS,
                (stats.keys + settled.receipts).wrapping_sub(before.keys + settled_before.receipts),
            ),
            add(
                &BYTES,
                (stats.bytes + settled.bytes).wrapping_sub(before.bytes + settled_before.bytes),
            ),
        );
        metrics::memory_evicted(
            EVICTED.fetch_add(evicted, Relaxed) + evicted,
            EVICTED_CROWDED_OUT.fetch_add(crowded_out, Relaxed) + crowded_out,
            EVICTED_EXHAUSTED.fetch_add(exhausted, Relaxed) + exhausted,
            FORGOTTEN_RECEIPTS.fetch_add(forgotten, Relaxed) + forgotten,
        );
        published.unlogged += exhausted + crowded_out;
        published.unlogged_receipts += forgotten;
        let warned_lately = published
            .warned_at
            .is_some_and(|at| now.since(at) < WARNING_INTERVAL);
        if warned_lately {
            return;
        }
        if published.unlogged > 0 {
            published.warned_at = Some(now);
            log_evictions(std::mem::take(&mut published.unlogged));
        }
        if published.unlogged_receipts > 0 {
            published.warned_at = Some(now);
            log_forgotten_receipts(std::mem::take(&mut published.unlogged_receipts));
        }
    }
}

/// Adds a change, which may be negative by wrapping, and returns the new sum.
fn add(sum: &AtomicUsize, change: usize) -> usize {
    sum.fetch_add(change, Relaxed).wrapping_add(change)
}

/// Logs that a store evicts keys which had budget left.
fn log_evictions(keys: u64) {
    tracing::warn!(
        keys,
        "the memory store is full of exhausted keys and evicted keys, which start with a whole budget \
         again; raise the capacity"
    );
}

/// Logs that a store forgets settled receipts before they expire.
fn log_forgotten_receipts(receipts: u64) {
    tracing::warn!(
        receipts,
        "the memory store is full of settled receipts and refuses older receipts that were not settled yet; raise the \
         capacity"
    );
}
