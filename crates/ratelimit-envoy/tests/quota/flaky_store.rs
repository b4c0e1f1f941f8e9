//! A memory store that is away, slow, or loses its answers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use ratelimit_core::{
    Clock, KeySet, MemoryStore, Policy,
    store::{Adjustment, Charged, Hit, Receipt, Settlement, Store, StoreError, StoreFuture},
};

use crate::random::Random;

#[derive(Clone, Debug)]
pub(crate) struct FlakyStore {
    inner: MemoryStore,
    clock: Clock,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    is_away: AtomicBool,
    /// The longest time of a call, in milliseconds.
    slowness: AtomicU64,
    seed: Mutex<u64>,
}

impl FlakyStore {
    pub(crate) fn new(clock: &Clock, seed: u64) -> FlakyStore {
        let faults = Faults {
            seed: Mutex::new(seed),
            ..Faults::default()
        };
        FlakyStore {
            inner: MemoryStore::new().clock(clock.clone()),
            clock: clock.clone(),
            faults: Arc::new(faults),
        }
    }

    pub(crate) fn set_away(&self, is_away: bool) {
        self.faults.is_away.store(is_away, Ordering::Relaxed);
    }

    pub(crate) fn set_slowness(&self, ms: u64) {
        self.faults.slowness.store(ms, Ordering::Relaxed);
    }

    /// Time passes on the way to the store or back. Returns whether the store answers, and whether it was reached.
    fn travel(&self) -> (bool, bool) {
        let mut seed = self.faults.seed.lock().unwrap();
        let mut random = Random(*seed);
        let slowness = self.faults.slowness.load(Ordering::Relaxed);
        if slowness > 0 {
            self.clock
                .advance(Duration::from_millis(random.below(slowness)));
        }
        let is_away = self.faults.is_away.load(Ordering::Relaxed);
        // A call that timed out may have been carried out.
        let is_reached = !is_away || random.once_in(8);
        *seed = random.0;
        (!is_away, is_reached)
    }
}

impl Store for FlakyStore {
    fn hit(&self, hit: Hit<'_>) -> StoreFuture<Charged> {
        let (answers, is_reached) = self.travel();
        let answer = is_reached.then(|| self.inner.hit(hit));
        self.travel();
        match answer {
            Some(answer) if answers => answer,
            _ => StoreFuture::ready(Err(StoreError::TimedOut)),
        }
    }

    fn settle(&self, receipt: &Receipt, change: Adjustment) -> StoreFuture<Settlement> {
        let (answers, is_reached) = self.travel();
        let answer = is_reached.then(|| self.inner.settle(receipt, change));
        match answer {
            Some(answer) if answers => answer,
            _ => StoreFuture::ready(Err(StoreError::TimedOut)),
        }
    }

    fn reset(&self, policy: &Policy, keys: &KeySet) -> StoreFuture<()> {
        self.inner.reset(policy, keys)
    }

    fn manual_clock(&self) -> Option<Clock> {
        Some(self.clock.clone())
    }
}
