//! Charges to the store for hits that passed locally.
//!
//! - A hit on a budget with uncharged units first waits until they are charged. Other hits on that budget wait for the
//!   same charge.
//! - A background task charges budgets that get no hits.
//! - A charge is sent once: one whose reply is lost may have been made.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, sync::Notify, task::JoinSet};

use crate::limiter::fallback::{Fallback, share_of};
use crate::{
    budget::{Adjustment, LimitUnits},
    metrics,
    policy::MAX_LIMITS,
    store::{Hit, OwnedHit, Receipt, Settlement, Store, StoreError, StoreFuture},
    sync::lock,
    time::{Timestamp, micros},
};

/// Budgets that the background task charges at the same time.
const BATCH_BUDGETS: usize = 64;
/// The pause of the task before its first peek at the store.
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause between two peeks at a store that does not answer.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// Another task takes over from one that shows no progress for this time: its runtime is not driven.
const MAX_SILENCE: Duration = Duration::from_secs(1);

/// The charges of a fallback.
#[derive(Debug)]
pub(super) struct Charging {
    /// Wakes hits that wait for a charge.
    ended: Notify,
    /// When the background task was last seen, in microseconds after `since`; 0 without a task.
    last_seen: AtomicU64,
    since: Instant,
}

impl Default for Charging {
    fn default() -> Charging {
        Charging {
            ended: Notify::new(),
            last_seen: AtomicU64::new(0),
            since: Instant::now(),
        }
    }
}

/// The uncharged units of a hit's budgets.
enum Uncharged {
    None,
    /// They are being charged.
    InFlight,
    /// They have to be charged by this call.
    Due(Box<Charge>),
}

/// A charge of the budgets of one hit. Dropping it without a result counts it as made: it may have been sent.
struct Charge {
    fallback: Arc<Fallback>,
    hit: OwnedHit,
    /// The groups of the hit's policy that are charged, by number.
    groups: SmallVec<[usize; 1]>,
    units: LimitUnits,
    charged_at: Timestamp,
    is_ended: bool,
}

impl Fallback {
    /// Charges the uncharged units of a hit's budgets, which must reach the store before the hit. `None` if there are none.
    #[inline]
    pub(in crate::limiter) fn charge_before(
        self: &Arc<Fallback>,
        hit: &Hit<'_>,
        store: &Arc<dyn Store>,
    ) -> Option<StoreFuture<()>> {
        if self.uncharged.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.start_charge(hit, store)
    }

    #[inline(never)]
    fn start_charge(
        self: &Arc<Fallback>,
        hit: &Hit<'_>,
        store: &Arc<dyn Store>,
    ) -> Option<StoreFuture<()>> {
        self.start_task(store);
        let first = match self.take_uncharged(hit) {
            Uncharged::None => return None,
            Uncharged::InFlight => None,
            Uncharged::Due(charge) => match charge.send(store).try_ready() {
                Ok(Ok(())) => None,
                Ok(Err(error)) => return Some(StoreFuture::ready(Err(error))),
                Err(charging) => Some(charging),
            },
        };
        let (fallback, store, hit) = (Arc::clone(self), Arc::clone(store), OwnedHit::new(*hit));
        Some(StoreFuture::pending(async move {
            if let Some(charging) = first {
                charging.await?;
            }
            fallback.charge_all(&hit, &store).await
        }))
    }

    /// Charges until nothing is uncharged.
    async fn charge_all(
        self: Arc<Fallback>,
        hit: &OwnedHit,
        store: &Arc<dyn Store>,
    ) -> Result<(), StoreError> {
        loop {
            let mut ended = std::pin::pin!(self.charging.ended.notified());
            // Before the look at the budgets, so that no end is missed.
            ended.as_mut().enable();
            match self.take_uncharged(&hit.as_hit()) {
                Uncharged::None => return Ok(()),
                Uncharged::Due(charge) => charge.send(store).await?,
                Uncharged::InFlight => {
                    let waited = tokio::time::timeout(MAX_SILENCE, ended).await;
                    // The charge is on a runtime that is not driven.
                    waited.map_err(|_| StoreError::Unavailable { source: None })?;
                }
            }
        }
    }

    /// Takes the uncharged units of a hit's budgets for a charge.
    fn take_uncharged(self: &Arc<Fallback>, hit: &Hit<'_>) -> Uncharged {
        let mut known = lock(&self.known);
        let mut is_in_flight = false;
        let mut units = [0; MAX_LIMITS];
        let mut charged_at = Timestamp::default();
        let mut groups: SmallVec<[usize; 1]> = SmallVec::new();
        for (number, group) in hit.policy.groups().iter().enumerate() {
            let Some(budget) = known.get(hit, group) else {
                continue;
            };
            if budget.is_charging() {
                is_in_flight = true;
                continue;
            }
            let Some(last) = budget.uncharged().map(|own| own.last) else {
                continue;
            };
            let share = share_of(hit, budget.instances());
            let (local, own) = self.uncharged_units(budget, hit, group, share.as_ref());
            if own == [0; MAX_LIMITS] {
                // Time has restored them.
                budget.clear_uncharged(&self.uncharged);
                continue;
            }
            budget.begin_charge(local);
            for (sum, own) in units.iter_mut().zip(own) {
                *sum += own;
            }
            charged_at = charged_at.max(last);
            groups.push(number);
        }
        drop(known);
        if groups.is_empty() {
            return if is_in_flight {
                Uncharged::InFlight
            } else {
                Uncharged::None
            };
        }
        Uncharged::Due(Box::new(Charge {
            fallback: Arc::clone(self),
            hit: OwnedHit::new(*hit),
            groups,
            units,
            charged_at,
            is_ended: false,
        }))
    }

    /// Starts the background task, unless it runs or nothing is uncharged. Without a runtime, a later hit does.
    pub(in crate::limiter) fn start_task(self: &Arc<Fallback>, store: &Arc<dyn Store>) {
        if self.uncharged.load(Ordering::Acquire) == 0 {
            return;
        }
        let charging = &self.charging;
        let (seen, now) = (charging.last_seen.load(Ordering::Acquire), charging.now());
        if seen != 0 && now.saturating_sub(seen) < micros(MAX_SILENCE) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let claimed =
            charging
                .last_seen
                .compare_exchange(seen, now, Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_ok() {
            let task = ChargeTask {
                fallback: Arc::downgrade(self),
                store: Arc::downgrade(store),
                last_seen: now,
            };
            runtime.spawn(task.run());
        }
    }
}

impl Charging {
    /// Microseconds since the fallback was made; never 0.
    fn now(&self) -> u64 {
        micros(self.since.elapsed()).max(1)
    }
}

impl Charge {
    /// Sends the charge in a task, so that it is made also if its caller is dropped.
    ///
    /// | result | the units |
    /// |---|---|
    /// | settled | are charged, as far as there is capacity |
    /// | the store certainly did not charge them | stay uncharged; the error is returned |
    /// | refused | are dropped: the store would refuse them again |
    /// | any other error | may have been charged, and are not sent again |
    fn send(self: Box<Charge>, store: &Arc<dyn Store>) -> StoreFuture<()> {
        let hit = self.hit.as_hit();
        let Some(receipt) = Receipt::of_units(&hit, self.charged_at) else {
            return StoreFuture::ready(Ok(()));
        };
        let units = self.units;
        let settling = store.settle(&receipt, Adjustment::CatchUp { units });
        let settling = match settling.try_ready() {
            Ok(settled) => return StoreFuture::ready(self.end(settled)),
            Err(settling) => settling,
        };
        let Ok(runtime) = Handle::try_current() else {
            return StoreFuture::pending(async move { self.end(settling.await) });
        };
        let ended = runtime.spawn(async move { self.end(settling.await) });
        StoreFuture::pending(async move {
            let ended = ended.await;
            ended.unwrap_or(Err(StoreError::Unavailable { source: None }))
        })
    }

    /// Records the result of the charge, and wakes the hits that wait for it.
    fn end(
        mut self: Box<Charge>,
        settled: Result<Settlement, StoreError>,
    ) -> Result<(), StoreError> {
        let units = self.units.iter().copied().max().unwrap_or(0);
        let outcome = match settled {
            Ok(_) => "charged",
            Err(StoreError::Refused { .. }) => "dropped",
            Err(error) if error.charged_nothing() => {
                self.finish(false);
                return Err(error);
            }
            Err(error) => {
                let policy = self.hit.as_hit().policy.name();
                tracing::debug!(policy, %error, "units that passed locally may not have been charged");
                "unknown"
            }
        };
        metrics::count_catch_up(outcome, units);
        self.finish(true);
        Ok(())
    }

    fn finish(&mut self, may_be_made: bool) {
        self.is_ended = true;
        let hit = self.hit.as_hit();
        let mut known = lock(&self.fallback.known);
        for &number in &self.groups {
            if let Some(budget) = known.get(&hit, &hit.policy.groups()[number]) {
                budget.end_charge(may_be_made, &self.fallback.uncharged);
            }
        }
        drop(known);
        self.fallback.charging.ended.notify_waiters();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if !self.is_ended {
            self.finish(true);
        }
    }
}

/// The background task. It ends with its limiter, when nothing is uncharged, and when another task has taken over.
struct ChargeTask {
    fallback: Weak<Fallback>,
    store: Weak<dyn Store>,
    /// The last mark of this task in [`Charging::last_seen`].
    last_seen: u64,
}

impl ChargeTask {
    /// Peeks at the store until it answers, then charges batches until nothing is uncharged.
    async fn run(mut self) {
        let mut pause = MIN_PAUSE;
        let mut start = 0;
        loop {
            tokio::time::sleep(pause).await;
            let (Some(fallback), Some(store)) = (self.fallback.upgrade(), self.store.upgrade())
            else {
                return;
            };
            if !self.is_current(&fallback) {
                return;
            }
            let is_answering = charge_batch(&fallback, &store, &mut start).await;
            pause = if is_answering {
                MIN_PAUSE
            } else {
                (pause * 2).min(MAX_PAUSE)
            };
            if fallback.uncharged.load(Ordering::Acquire) == 0 {
                drop(self);
                // Units that were added meanwhile found this task running.
                fallback.start_task(&store);
                return;
            }
        }
    }

    /// Shows that the task runs. Returns whether no other one has taken over.
    fn is_current(&mut self, fallback: &Fallback) -> bool {
        let charging = &fallback.charging;
        let seen = self.last_seen;
        self.last_seen = charging.now();
        let marked = charging.last_seen.compare_exchange(
            seen,
            self.last_seen,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        marked.is_ok()
    }
}

impl Drop for ChargeTask {
    /// Lets the next hit start a task, also if the runtime of this one ends.
    fn drop(&mut self) {
        if let Some(fallback) = self.fallback.upgrade() {
            let _ = fallback.charging.last_seen.compare_exchange(
                self.last_seen,
                0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
    }
}

/// Charges the next uncharged budgets if the store answers a peek. Returns whether it does.
///
/// Only a peek is repeated.
async fn charge_batch(fallback: &Arc<Fallback>, store: &Arc<dyn Store>, start: &mut usize) -> bool {
    let hits = next_hits(fallback, start);
    let Some(first) = hits.first() else {
        return true;
    };
    let peek = store.hit(first.as_hit().cost(0)).await;
    if !matches!(peek, Ok(_) | Err(StoreError::Refused { .. })) {
        *start = 0;
        return false;
    }
    let mut charging = JoinSet::new();
    for hit in hits {
        if let Uncharged::Due(charge) = fallback.take_uncharged(&hit.as_hit()) {
            charging.spawn(charge.send(store));
        }
    }
    let mut is_answering = true;
    while let Some(charged) = charging.join_next().await {
        is_answering &= matches!(charged, Ok(Ok(())));
    }
    is_answering
}

/// Hits on the next budgets with uncharged units, from the index `start` on.
fn next_hits(fallback: &Fallback, start: &mut usize) -> Vec<OwnedHit> {
    let known = lock(&fallback.known);
    let mut hits = Vec::new();
    while hits.len() < BATCH_BUDGETS {
        let Some((index, uncharged)) = known.next_uncharged(*start) else {
            *start = 0;
            break;
        };
        let hit = Hit::for_keys(&uncharged.policy, &uncharged.keys).cost(1);
        hits.push(OwnedHit::new(hit));
        *start = index + 1;
    }
    hits
}
