//! The metric handles of one hot key.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use metrics::{Counter, Gauge, SharedString, counter, gauge};

use crate::metrics::{
    PREFETCH_CALLS, PREFETCH_DROPPED, PREFETCH_HITS, PREFETCH_UNITS, PREFETCH_VOID,
};

/// The metric handles of one hot key; those of equal policies count together.
pub(crate) struct PrefetchMetrics {
    hits: Counter,
    expired: Counter,
    dropped: Counter,
    all: Counter,
    none: Counter,
    units: Gauge,
    /// The units of this key in the gauge.
    reported: AtomicU64,
}

impl PrefetchMetrics {
    /// Registers the metrics of a key of this policy.
    pub(crate) fn new(policy: &Arc<str>) -> PrefetchMetrics {
        let name = SharedString::from(Arc::clone(policy));
        let calls = |given: &'static str| counter!(PREFETCH_CALLS, "policy" => name.clone(), "given" => given);
        PrefetchMetrics {
            hits: counter!(PREFETCH_HITS, "policy" => name.clone()),
            expired: counter!(PREFETCH_VOID, "policy" => name.clone()),
            dropped: counter!(PREFETCH_DROPPED, "policy" => name.clone()),
            all: calls("all"),
            none: calls("none"),
            units: gauge!(PREFETCH_UNITS, "policy" => name.clone()),
            reported: AtomicU64::new(0),
        }
    }

    /// Counts a hit that was decided from memory.
    #[inline]
    pub(crate) fn count_hit(&self) {
        self.hits.increment(1);
    }

    /// Counts units that expired unspent.
    pub(crate) fn count_expired(&self, units: u64) {
        self.expired.increment(units);
    }

    /// Counts units that were dropped after a reset, or whose return got no reply.
    pub(crate) fn count_dropped(&self, units: u64) {
        self.dropped.increment(units);
    }

    /// Counts a call by whether it charged a block.
    pub(crate) fn count_call(&self, is_charged: bool) {
        let counter = if is_charged { &self.all } else { &self.none };
        counter.increment(1);
    }

    /// Sets the units of this key, which the gauge adds to those of other keys.
    pub(crate) fn set_units(&self, units: u64) {
        let before = self.reported.swap(units, Ordering::Relaxed);
        let as_f64 = |units: u64| f64::from(u32::try_from(units).unwrap_or(u32::MAX));
        self.units.increment(as_f64(units));
        self.units.decrement(as_f64(before));
    }
}

impl Drop for PrefetchMetrics {
    fn drop(&mut self) {
        self.set_units(0);
    }
}
