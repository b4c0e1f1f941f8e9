//! The background task of one hot key: it calls the store before the units on hand run out.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use crate::limiter::fallback::Fallback;
use crate::limiter::prefetch::{Prefetch, age::Moment, hot_key::KeeperStep, table::HotEntry};
use crate::{
    budget::Adjustment,
    decision::RefundMark,
    limit::Limit,
    store::{Receipt, Store, StoreError},
    sync::lock,
    time::Timestamp,
};

/// Keeps one key until it is idle, reset, or its limiter is gone.
pub(super) struct Keeper {
    pub(super) prefetch: Weak<Prefetch>,
    pub(super) store: Arc<dyn Store>,
    pub(super) entry: Arc<HotEntry>,
    /// The local fallback, which learns the budget from grants too; `None` where another failure mode decides.
    pub(super) fallback: Option<Arc<Fallback>>,
}

impl Keeper {
    pub(super) async fn run(self) {
        let entry = &self.entry;
        loop {
            let Some(prefetch) = self.prefetch.upgrade() else {
                return;
            };
            let now = prefetch.clock.now();
            let (step, usable) = {
                let mut key = lock(&entry.key);
                let step = key.next_step(now);
                let usable = key.usable_at(now);
                entry.metrics.count_void(key.take_void());
                (step, usable)
            };
            entry.metrics.set_units(usable);
            match step {
                KeeperStep::End => {
                    prefetch.table.remove(entry);
                    return_units(&*self.store, entry, now).await;
                    return;
                }
                KeeperStep::Wait(micros) => {
                    // The limiter may be dropped while its keepers wait.
                    drop(prefetch);
                    let waiting = entry.wake.notified();
                    let _ = tokio::time::timeout(Duration::from_micros(micros), waiting).await;
                }
                KeeperStep::Call(request) => {
                    let sent = prefetch.clock.now();
                    let hit = entry
                        .hit
                        .as_hit()
                        .overdraft(crate::policy::Overdraft::Refused);
                    let answer = self.store.prefetch(hit, request).await;
                    let now = prefetch.clock.now();
                    if let (Ok(grant), Some(fallback)) = (&answer, &self.fallback) {
                        fallback.mirror_grant(&hit.cost(0), grant, Instant::now());
                    }
                    let mut key = lock(&entry.key);
                    match answer {
                        Ok(grant) => {
                            entry.metrics.count_call(grant.units(), request.want());
                            let dropped = key.apply(hit.policy, &grant, sent, now);
                            entry.metrics.count_dropped(dropped);
                            let needed = key.needed_percent();
                            drop(key);
                            prefetch.warn_far(hit.policy, needed);
                        }
                        Err(error) => {
                            tracing::debug!(policy = hit.policy.name(), %error, "nothing was prefetched");
                            let is_refused = matches!(error, StoreError::Refused { .. });
                            key.record_error(is_refused, now);
                        }
                    }
                }
            }
        }
    }
}

/// Ends a key and gives its units back, as far as windows count them. Units of buckets lapse by themselves.
pub(super) async fn return_units(store: &dyn Store, entry: &HotEntry, now: Moment) {
    let returned = lock(&entry.key).end(now);
    entry.metrics.set_units(0);
    for (units, charged_at) in returned {
        if let Some(receipt) = receipt(entry, units, charged_at) {
            // A lost refund leaves the units charged until the window ends.
            let _ = store.settle(&receipt, Adjustment::Refund { units }).await;
        }
    }
}

/// The receipt of `units` of a slice. Buckets have no mark in it, so they refund nothing.
fn receipt(entry: &HotEntry, units: u64, charged_at: Timestamp) -> Option<Receipt> {
    let hit = entry.hit.as_hit().cost(units);
    let marks = hit.policy.limits().iter().map(|limit| match limit {
        Limit::FixedWindow(_) | Limit::SlidingWindowCounter(_) => RefundMark::new(1),
        _ => RefundMark::NONE,
    });
    Receipt::from_marks(hit, charged_at, marks)
}
