//! The task that charges owed hits to the store when that answers again.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinSet};

use crate::limiter::fallback::{
    Fallback,
    owed::{CatchUpCalls, LimitUnits, OwedId},
};
use crate::{
    budget::Adjustment,
    metrics,
    store::{Hit, OwnedHit, Receipt, Store, StoreError},
    time::Timestamp,
};

/// Budgets that are charged at the same time.
const BATCH_BUDGETS: usize = 64;
/// The pause before the first peek at the store.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two peeks at a store that does not answer.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Starts the task, unless it runs. Without a runtime the hits stay owed until a check finds one.
pub(super) fn start(fallback: &Arc<Fallback>, store: &Arc<dyn Store>) {
    if fallback.is_catching_up.load(Ordering::Acquire) {
        return;
    }
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    if fallback.is_catching_up.swap(true, Ordering::AcqRel) {
        return;
    }
    let task = CatchUpTask {
        fallback: Arc::downgrade(fallback),
        store: Arc::downgrade(store),
        has_ended: false,
    };
    runtime.spawn(task.run());
}

/// Waits for the late reply to a hit that passed locally at `charged_at`, if one may arrive.
pub(super) fn await_late_reply(
    fallback: &Arc<Fallback>,
    store: &Arc<dyn Store>,
    hit: &Hit<'_>,
    charged_at: Timestamp,
    error: &StoreError,
) {
    let (Some(reply), Ok(runtime)) = (error.late_reply(), Handle::try_current()) else {
        return;
    };
    let (fallback, store) = (Arc::downgrade(fallback), Arc::downgrade(store));
    let hit = OwnedHit::new(*hit);
    runtime.spawn(async move {
        if let Ok(reply) = reply.await
            && let (Some(fallback), Some(store)) = (fallback.upgrade(), store.upgrade())
        {
            fallback.resolve(&hit.as_hit(), charged_at, reply.as_ref(), &store);
        }
    });
}

/// The running task. It ends with its limiter.
///
/// Dropping it, also with its runtime, lets the next check start another.
struct CatchUpTask {
    fallback: Weak<Fallback>,
    store: Weak<dyn Store>,
    /// Whether it has ended by itself, and another task may run already.
    has_ended: bool,
}

impl CatchUpTask {
    /// Peeks at the store until it answers, then charges batches until nothing is owed.
    ///
    /// The pause doubles from 20 ms to 250 ms while the store does not answer.
    async fn run(mut self) {
        let mut pause = MIN_PAUSE;
        loop {
            tokio::time::sleep(pause).await;
            match self.catch_up_batch().await {
                Some(true) => pause = MIN_PAUSE,
                Some(false) => pause = (pause * 2).min(MAX_PAUSE),
                None => {
                    self.has_ended = self.may_end();
                    if self.has_ended {
                        return;
                    }
                }
            }
        }
    }

    /// Ends the task, unless a hit was added meanwhile whose caller saw it running.
    fn may_end(&self) -> bool {
        let Some(fallback) = self.fallback.upgrade() else {
            return true;
        };
        fallback.is_catching_up.store(false, Ordering::SeqCst);
        fallback.owed.is_empty() || fallback.is_catching_up.swap(true, Ordering::SeqCst)
    }

    /// Charges the hits on some budgets if the store answers a peek. Returns whether it does; `None` when nothing is left
    /// to do, or the limiter is gone.
    ///
    /// Only a peek is repeated. A charge is sent once: it may have been made although its reply is lost.
    async fn catch_up_batch(&self) -> Option<bool> {
        let fallback = self.fallback.upgrade()?;
        let store = self.store.upgrade()?;
        let (id, policy, keys) = fallback.owed.lock().first()?;
        let peek = Hit::for_keys(&policy, &keys).cost(0);
        match store.hit(peek).await {
            Ok(decision) => fallback.mirror(&peek, &decision, Instant::now()),
            // The store answers, but not about this key: a corrupt value, or missing rights.
            Err(StoreError::Refused { .. }) => {
                let now = fallback.local.now();
                let units = fallback.owed.lock().drop_budget(&id, now);
                metrics::count_catch_up("dropped", units);
                return Some(true);
            }
            Err(_) => return Some(false),
        }
        let batch = fallback
            .owed
            .lock()
            .take(BATCH_BUDGETS, fallback.local.now());
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

impl Drop for CatchUpTask {
    /// Lets the next check start a task, unless this one has ended by itself.
    fn drop(&mut self) {
        if let Some(fallback) = self.fallback.upgrade()
            && !self.has_ended
        {
            fallback.is_catching_up.store(false, Ordering::Release);
        }
    }
}

/// The calls for a budget in flight. Dropping it with a runtime ends them, so that the budget is not owed for ever.
struct CallsInFlight {
    fallback: Arc<Fallback>,
    id: OwedId,
}

impl Drop for CallsInFlight {
    fn drop(&mut self) {
        self.fallback.owed.lock().end(&self.id, &[], 0);
    }
}

/// Charges the hits on one budget. Returns whether the store answered.
///
/// | result of a call | the hits |
/// |---|---|
/// | settled | are charged, as far as there was room |
/// | nothing was sent | wait again, with those of the calls behind |
/// | refused | are dropped: the store would refuse them again |
/// | any other error | may have been charged, and are not sent again |
async fn charge(fallback: Arc<Fallback>, store: Arc<dyn Store>, owed: CatchUpCalls) -> bool {
    let CatchUpCalls {
        id,
        policy,
        keys,
        calls,
    } = owed;
    let in_flight = CallsInFlight { fallback, id };
    let hit = Hit::for_keys(&policy, &keys);
    // One hit can be in several calls: one for each limit that has stamps.
    let mut charged = LimitUnits::default();
    let mut is_answering = true;
    for (index, &(charged_at, units)) in calls.iter().enumerate() {
        let Some(receipt) = Receipt::of_owed(&hit, charged_at) else {
            continue;
        };
        let settled = store.settle(&receipt, Adjustment::CatchUp { units });
        match settled.await {
            Ok(_) => {
                for (sum, units) in charged.iter_mut().zip(units) {
                    *sum += units;
                }
            }
            Err(error) if error.sent_nothing() => {
                let mut owed = in_flight.fallback.owed.lock();
                owed.end(&in_flight.id, &calls, index);
                is_answering = false;
                break;
            }
            Err(error) => {
                tracing::debug!(policy = policy.name(), %error, "owed hits may not have been charged");
                let outcome = match error {
                    StoreError::Refused { .. } => "dropped",
                    _ => "unknown",
                };
                metrics::count_catch_up(outcome, largest(&units));
            }
        }
    }
    metrics::count_catch_up("charged", largest(&charged));
    is_answering
}

/// The hits of a call, in units: limits whose window has passed owe fewer than others.
fn largest(units: &LimitUnits) -> u64 {
    units.iter().copied().max().unwrap_or(0)
}
