//! Charges to the store for hits that passed locally.
//!
//! - A hit on a budget with uncharged units first waits until they are charged. Other hits on that budget wait for the
//!   same charge.
//! - A background task charges budgets that get no hits.
//! - A charge is sent once, and only after the store has answered a peek: one whose reply is lost may have been made.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, sync::watch, task::JoinSet};

use crate::limiter::fallback::{Fallback, known::ChargeEnd, share_of};
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
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(1);

/// The charges of a fallback.
#[derive(Debug)]
pub(super) struct Charging {
    /// When the background task was last seen, in microseconds after `since`; 0 without a task.
    last_seen: AtomicU64,
    since: Instant,
}

impl Default for Charging {
    fn default() -> Charging {
        Charging {
            last_seen: AtomicU64::new(0),
            since: Instant::now(),
        }
    }
}

/// The uncharged units of a hit's budgets.
enum Uncharged {
    None,
    /// Some of them are being charged.
    InFlight(ChargeEnd),
    /// They have to be charged by this call: one charge for each budget.
    Due(Vec<Charge>),
}

/// A charge of one budget. Dropping it ends it: it counts as made if it may have been sent.
struct Charge {
    fallback: Arc<Fallback>,
    hit: OwnedHit,
    /// The number of the budget among the groups of the hit's policy.
    group: usize,
    units: LimitUnits,
    charged_at: Timestamp,
    may_be_made: bool,
    /// Whether a metric has counted the units.
    is_counted: bool,
    end: watch::Sender<Option<bool>>,
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
        if !self.has_uncharged(hit) {
            return None;
        }
        let (fallback, store, hit) = (Arc::clone(self), Arc::clone(store), OwnedHit::new(*hit));
        Some(StoreFuture::pending(async move {
            fallback.charge_all(&hit, &store).await
        }))
    }

    /// Charges what is uncharged, at most until the deadline of the hit.
    ///
    /// # Errors
    ///
    /// - That of a charge that was certainly not made, of this call or of another one that it waits for.
    /// - [`StoreError::TooLate`] at the deadline. The charge goes on.
    async fn charge_all(
        self: Arc<Fallback>,
        hit: &OwnedHit,
        store: &Arc<dyn Store>,
    ) -> Result<(), StoreError> {
        let charging = self.charge_groups(hit, store);
        match hit.as_hit().deadline {
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let charged = within(left, charging).await;
                charged.unwrap_or(Err(StoreError::TooLate))
            }
            None => charging.await,
        }
    }

    /// Waits for the charges in flight, one for each group of limits at most, and then charges what is left.
    ///
    /// Hits that pass locally meanwhile need not reach the store before this one.
    async fn charge_groups(
        self: &Arc<Fallback>,
        hit: &OwnedHit,
        store: &Arc<dyn Store>,
    ) -> Result<(), StoreError> {
        for _ in 0..=hit.as_hit().policy.groups().len() {
            match self.take_uncharged(&hit.as_hit()) {
                Uncharged::None => return Ok(()),
                Uncharged::Due(charges) => {
                    for charge in charges {
                        charge.send(store).await?;
                    }
                    return Ok(());
                }
                Uncharged::InFlight(end) => {
                    let mut waiting = end.clone();
                    let ended = waiting.wait_for(Option::is_some);
                    match within(MAX_SILENCE, ended).await {
                        Some(Ok(ended)) if *ended == Some(true) => {}
                        Some(_) => return Err(StoreError::Unavailable { source: None }),
                        None => self.end_silent_charge(&hit.as_hit(), &end),
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends a charge that is on a runtime which is not driven. It may have been made, or be made later.
    fn end_silent_charge(&self, hit: &Hit<'_>, end: &ChargeEnd) {
        let mut known = lock(&self.known);
        for group in hit.policy.groups() {
            if let Some(budget) = known.get(hit, group) {
                budget.end_charge(end, true, &self.uncharged);
            }
        }
        drop(known);
        if let Some(left_out) = self.dropped.permit() {
            tracing::warn!(
                policy = hit.policy.name(),
                left_out,
                "a charge to the store did not end within a second, and is taken as made"
            );
        }
    }

    fn has_uncharged(&self, hit: &Hit<'_>) -> bool {
        let mut known = lock(&self.known);
        hit.policy.groups().iter().any(|group| {
            let budget = known.get(hit, group);
            budget.is_some_and(|budget| budget.uncharged().is_some())
        })
    }

    /// Takes the uncharged units of a hit's budgets for charges.
    fn take_uncharged(self: &Arc<Fallback>, hit: &Hit<'_>) -> Uncharged {
        let mut known = lock(&self.known);
        // A charge is also for other callers.
        let mut hit = *hit;
        hit.deadline = None;
        let hit = &hit;
        for group in hit.policy.groups() {
            if let Some(end) = known.get(hit, group).and_then(|own| own.charge_end()) {
                return Uncharged::InFlight(end.clone());
            }
        }
        let mut charges = Vec::new();
        for (number, group) in hit.policy.groups().iter().enumerate() {
            let Some(budget) = known.get(hit, group) else {
                continue;
            };
            let Some(charged_at) = budget.uncharged().map(|own| own.last) else {
                continue;
            };
            let share = share_of(hit, budget.instances());
            let (local, units) = self.uncharged_units(budget, hit, group, share.as_ref());
            if units == [0; MAX_LIMITS] {
                // Time has restored them.
                budget.clear_uncharged(&self.uncharged);
                continue;
            }
            let (end, ended) = watch::channel(None);
            budget.begin_charge(local, ended);
            charges.push(Charge {
                fallback: Arc::clone(self),
                hit: OwnedHit::new(*hit),
                group: number,
                units,
                charged_at,
                may_be_made: false,
                is_counted: false,
                end,
            });
        }
        if charges.is_empty() {
            Uncharged::None
        } else {
            Uncharged::Due(charges)
        }
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
    async fn send(self, store: &Arc<dyn Store>) -> Result<(), StoreError> {
        let store = Arc::clone(store);
        let Ok(runtime) = Handle::try_current() else {
            return self.make(store).await;
        };
        let made = runtime.spawn(self.make(store)).await;
        made.unwrap_or(Err(StoreError::Unavailable { source: None }))
    }

    /// Makes the charge, if the store answers a peek.
    ///
    /// | result | the units |
    /// |---|---|
    /// | settled | are charged, as far as there is capacity |
    /// | the store certainly did not charge them | stay uncharged; the error is returned |
    /// | refused | are dropped: the store would refuse them again |
    /// | any other error | may have been charged, and are not sent again |
    async fn make(mut self, store: Arc<dyn Store>) -> Result<(), StoreError> {
        // A charge is sent once, so only to a store that answers.
        match store.hit(self.hit.as_hit().cost(0)).await {
            Ok(_) | Err(StoreError::Refused { .. }) => {}
            Err(error @ StoreError::Overloaded) => return Err(error),
            // Nothing was charged: neither these units nor the hit that waits for them.
            Err(_) => return Err(StoreError::Unavailable { source: None }),
        }
        self.may_be_made = true;
        let settled = self.settle(&store).await;
        self.is_counted = true;
        let (hit, units) = (self.hit.as_hit(), self.most_units());
        match settled {
            Ok(_) => metrics::count_catch_up("charged", units),
            Err(error @ StoreError::Refused { .. }) => {
                self.fallback.drop_units(&hit, units, &error.to_string());
            }
            Err(error) if error.charged_nothing() => {
                self.may_be_made = false;
                return Err(error);
            }
            Err(error) => {
                let policy = hit.policy.name();
                tracing::debug!(policy, %error, "units that passed locally may not have been charged");
                metrics::count_catch_up("unknown", units);
            }
        }
        Ok(())
    }

    /// The units of the limit that is charged most.
    fn most_units(&self) -> u64 {
        self.units.iter().copied().max().unwrap_or(0)
    }

    fn settle(&self, store: &Arc<dyn Store>) -> StoreFuture<Settlement> {
        match Receipt::of_units(&self.hit.as_hit(), self.charged_at) {
            Some(receipt) => {
                let units = self.units;
                store.settle(&receipt, Adjustment::CatchUp { units })
            }
            // Nothing counts units, so there is nothing to charge.
            None => StoreFuture::ready(Ok(Settlement::Unchanged)),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let hit = self.hit.as_hit();
        let mut known = lock(&self.fallback.known);
        let budget = known.get(&hit, &hit.policy.groups()[self.group]);
        let was_in_flight = budget.is_some_and(|budget| {
            let end = self.end.subscribe();
            budget.end_charge(&end, self.may_be_made, &self.fallback.uncharged)
        });
        drop(known);
        self.end.send_replace(Some(self.may_be_made));
        let units = self.most_units();
        if self.may_be_made && !self.is_counted {
            // Its runtime has ended.
            metrics::count_catch_up("unknown", units);
        } else if !self.may_be_made && !was_in_flight {
            let cause = "the charge was silent for too long, or the budget was reset";
            self.fallback.drop_units(&hit, units, cause);
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
        if let Uncharged::Due(charges) = fallback.take_uncharged(&hit.as_hit()) {
            for charge in charges {
                charging.spawn(charge.make(Arc::clone(store)));
            }
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

/// The output of a future, if it is ready within `span`. Without a runtime there is no timer, and it is awaited.
async fn within<F: Future>(span: Duration, future: F) -> Option<F::Output> {
    if Handle::try_current().is_err() {
        return Some(future.await);
    }
    tokio::time::timeout(span, future).await.ok()
}
