//! The task that charges owed hits to the store when that answers again.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinSet};

use crate::limiter::fallback::{
    Fallback,
    owed::{CatchUpCalls, LimitUnits},
};
use crate::{
    budget::Adjustment,
    metrics,
    store::{Hit, Receipt, Store},
};

/// Keys that are charged at the same time.
const BATCH_KEYS: usize = 64;
/// The pause before the first peek at the store.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two peeks at a store that does not answer.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Starts the task, unless it runs. Without a runtime the hits stay owed until there is one.
pub(super) fn start(fallback: &Arc<Fallback>, store: &Arc<dyn Store>) {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    if fallback.is_catching_up.swap(true, Ordering::AcqRel) {
        return;
    }
    let task = CatchUpTask(FallbackRef {
        fallback: Arc::downgrade(fallback),
        store: Arc::downgrade(store),
    });
    runtime.spawn(task.run());
}

/// A weak reference to a fallback and its store: the task ends with the limiter.
struct FallbackRef {
    fallback: Weak<Fallback>,
    store: Weak<dyn Store>,
}

/// The running task. Dropping it, also with its runtime, lets the next owed hit start another.
struct CatchUpTask(FallbackRef);

impl CatchUpTask {
    async fn run(self) {
        let mut pause = MIN_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            match self.0.catch_up_batch().await {
                Some(true) => pause = MIN_PAUSE,
                Some(false) => pause = (pause * 2).min(MAX_PAUSE),
                None => return,
            }
        }
    }
}

impl Drop for CatchUpTask {
    fn drop(&mut self) {
        if let Some(fallback) = self.0.fallback.upgrade() {
            fallback.is_catching_up.store(false, Ordering::Release);
        }
    }
}

impl FallbackRef {
    /// Charges the hits of some keys if the store answers a peek. Returns whether it does; `None` when nothing is left to
    /// do, or the limiter is gone.
    ///
    /// Only a peek is repeated. A charge is sent once: it may have been made although its reply is lost.
    async fn catch_up_batch(&self) -> Option<bool> {
        let fallback = self.fallback.upgrade()?;
        let store = self.store.upgrade()?;
        let (policy, keys) = fallback.owed.lock().first()?;
        let peek = Hit::for_keys(&policy, &keys).cost(0);
        let Ok(decision) = store.hit(peek).await else {
            return Some(false);
        };
        fallback.mirror(&peek, &decision, Instant::now());
        let batch = fallback.owed.lock().take(BATCH_KEYS, fallback.local.now());
        let mut charging = JoinSet::new();
        for calls in batch {
            charging.spawn(charge(Arc::clone(&fallback), Arc::clone(&store), calls));
        }
        let mut is_answering = true;
        while let Some(charged) = charging.join_next().await {
            is_answering &= charged.unwrap_or(false);
        }
        Some(is_answering)
    }
}

/// Charges the hits of one key. Returns whether the store answered.
async fn charge(fallback: Arc<Fallback>, store: Arc<dyn Store>, owed: CatchUpCalls) -> bool {
    let CatchUpCalls { key, policy, calls } = owed;
    let hit = Hit::for_keys(&policy, key.keys());
    for (index, &(charged_at, units)) in calls.iter().enumerate() {
        let Some(receipt) = Receipt::of_owed(&hit, charged_at) else {
            continue;
        };
        let settled = store.settle(&receipt, Adjustment::CatchUp { units });
        match settled.await {
            Ok(_) => metrics::count_catch_up("charged", largest(&units)),
            Err(error) if error.sent_nothing() => {
                fallback.owed.lock().end(&key, &calls[index..]);
                return false;
            }
            Err(error) => {
                tracing::debug!(policy = policy.name(), %error, "owed hits may not have been charged");
                metrics::count_catch_up("unknown", largest(&units));
            }
        }
    }
    fallback.owed.lock().end(&key, &[]);
    true
}

/// The hits of a call, in units: limits whose window has passed owe fewer than others.
fn largest(units: &LimitUnits) -> u64 {
    units.iter().copied().max().unwrap_or(0)
}
