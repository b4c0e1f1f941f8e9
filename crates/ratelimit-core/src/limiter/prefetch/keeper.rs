//! The background task of one hot key: it calls the store before the units on hand run out.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    sync::{Arc, Weak},
    task::Poll,
    time::{Duration, Instant},
};

use crate::limiter::fallback::Fallback;
use crate::limiter::prefetch::{
    Prefetch,
    age::{Moment, PrefetchClock},
    hot_key::KeeperStep,
    table::HotEntry,
};
use crate::{
    budget::Adjustment,
    decision::RefundMark,
    limit::Limit,
    store::{PrefetchGrant, PrefetchRequest, Receipt, Store, StoreError},
    sync::lock,
    time::Timestamp,
};

/// Keeps one key until it is idle, reset, or its limiter is gone.
pub(super) struct Keeper {
    /// The hot keys; gone with the last clone of the limiter.
    pub(super) prefetch: Weak<Prefetch>,
    /// The clock of the hot keys.
    pub(super) clock: PrefetchClock,
    /// The store that is called.
    pub(super) store: Arc<dyn Store>,
    pub(super) entry: Arc<HotEntry>,
    /// The local fallback, which learns the budget from grants too; `None` where another failure mode decides.
    pub(super) fallback: Option<Arc<Fallback>>,
}

impl Keeper {
    /// Calls the store until the key is idle, reset or given up, and then gives back what windows count.
    pub(super) async fn run(self) {
        let entry = &self.entry;
        loop {
            let now = self.clock.now();
            let Some(prefetch) = self.prefetch.upgrade() else {
                return_units(&*self.store, entry, now).await;
                return;
            };
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
                    // A planned end finds the key in the table, and waits until its units are given back.
                    let _returning = entry.calling.lock().await;
                    return_units(&*self.store, entry, now).await;
                    prefetch.table.remove(entry);
                    return;
                }
                KeeperStep::Wait(micros) => {
                    // The limiter may be dropped while its keepers wait.
                    drop(prefetch);
                    self.wait(Duration::from_micros(micros)).await;
                }
                KeeperStep::Call(request) => {
                    let _calling = entry.calling.lock().await;
                    // The units may have been given back meanwhile.
                    if lock(&entry.key).is_ended() {
                        continue;
                    }
                    let sent = self.clock.now();
                    let hit = entry
                        .hit
                        .as_hit()
                        .overdraft(crate::policy::Overdraft::Refused);
                    let answer = self.store.prefetch(hit, request).await;
                    let now = self.clock.now();
                    if let (Ok(grant), Some(fallback)) = (&answer, &self.fallback) {
                        fallback.replied(&hit.cost(0), grant.decision(), Instant::now());
                    }
                    let unused = self.apply(&prefetch, request, answer, sent, now);
                    if let Some((units, charged_at)) = unused {
                        refund(&*self.store, entry, units, charged_at).await;
                    }
                }
            }
        }
    }

    /// Waits for `span`, or until the keeper is woken.
    async fn wait(&self, span: Duration) {
        let timer = self.store.virtual_timer(span);
        let mut timer = timer.unwrap_or_else(|| Box::pin(tokio::time::sleep(span)));
        let mut woken = pin!(self.entry.wake.notified());
        poll_fn(|cx| {
            let is_ready = woken.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready();
            if is_ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Takes over the answer to a call. Returns the units of a key that was reset meanwhile, and the time of their charge:
    /// they are given back, and the store gives nothing back that was charged before a reset.
    fn apply(
        &self,
        prefetch: &Prefetch,
        request: PrefetchRequest,
        answer: Result<PrefetchGrant, StoreError>,
        sent: Moment,
        now: Moment,
    ) -> Option<(u64, Timestamp)> {
        let entry = &self.entry;
        let policy = entry.hit.as_hit().policy;
        let mut key = lock(&entry.key);
        match answer {
            Ok(grant) => {
                entry.metrics.count_call(grant.units(), request.want());
                let is_ended = key.is_ended();
                let dropped = key.apply(policy, &grant, sent, now);
                entry.metrics.count_dropped(dropped);
                let needed = key.needed_percent();
                drop(key);
                prefetch.warn_far(policy, needed);
                is_ended.then(|| (grant.units(), grant.decision().now))
            }
            Err(error) => {
                tracing::debug!(policy = policy.name(), %error, "nothing was prefetched");
                let is_refused = matches!(error, StoreError::Refused { .. });
                key.record_error(is_refused, now);
                None
            }
        }
    }
}

/// Ends a key and gives its units back, as far as windows count them. Units of buckets lapse by themselves.
pub(super) async fn return_units(store: &dyn Store, entry: &HotEntry, now: Moment) {
    let returned = lock(&entry.key).end(now);
    entry.metrics.set_units(0);
    for (units, charged_at) in returned {
        refund(store, entry, units, charged_at).await;
    }
}

/// Gives units back that were charged at `charged_at`. A lost refund leaves them charged until the window ends.
async fn refund(store: &dyn Store, entry: &HotEntry, units: u64, charged_at: Timestamp) {
    if let Some(receipt) = receipt(entry, units, charged_at) {
        let _ = store.settle(&receipt, Adjustment::Refund { units }).await;
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
