//! Hits that may have to be undone: on keys of different nodes, and for slots of a concurrency limit.
//!
//! Such a hit is decided in a task of its own, which goes on when its caller is dropped or answered by the failure
//! mode. Whatever nobody waits for any more is given back, in its own time.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, sync::oneshot};

use crate::store::redis::{
    batch::PendingHit, command::check::Scope, connection::router::Route, execute::Executor,
};
use crate::{
    budget::Adjustment,
    decision::Decision,
    limit::Limit,
    policy::Policy,
    store::{
        contract::{Settlement, StoreError},
        hit::{Hit, OwnedHit},
        receipt::Receipt,
    },
    time::Timestamp,
};

/// How long giving back may take, with a new connection if need be: nobody waits for it.
const GIVE_BACK_TIME: Duration = Duration::from_secs(5);
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(50);

type CheckResult = Result<Decision, StoreError>;

/// A hit that may have to be undone.
pub(in crate::store::redis) struct UndoableHit {
    pub(in crate::store::redis) executor: Arc<Executor>,
    pub(in crate::store::redis) route: Route,
    pub(in crate::store::redis) pending: Arc<PendingHit>,
    hit: OwnedHit,
    pub(in crate::store::redis) deadline: Instant,
    /// The runtime of the caller.
    runtime: Handle,
    /// The route of the call under way. After the deadline the task or the caller takes it, and counts the
    /// time-out: the task is not polled where the connection's runtime is not driven.
    awaited: Mutex<Option<Route>>,
}

/// The answer to such a hit, which is undone when it was not taken.
struct UndoOnDrop {
    hit: Arc<UndoableHit>,
    answer: oneshot::Receiver<CheckResult>,
}

impl Executor {
    /// Decides a hit in a task of its own.
    pub(in crate::store::redis) async fn check_undoable(
        self: Arc<Executor>,
        route: Route,
        pending: Arc<PendingHit>,
        hit: OwnedHit,
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        // The caller holds the permit, not the task: a runtime that is not driven would keep it.
        let in_flight = Arc::clone(&self.in_flight);
        let Ok(_permit) = in_flight.try_acquire() else {
            return Err(StoreError::Overloaded);
        };
        let hit = Arc::new(UndoableHit {
            executor: self,
            awaited: Mutex::new(Some(route.clone())),
            route,
            pending,
            hit,
            deadline,
            runtime: Handle::current(),
        });
        let (sender, answer) = oneshot::channel();
        let task = Arc::clone(&hit);
        hit.connection_runtime().spawn(async move {
            let answer = task.check().await;
            if let Err(answer) = sender.send(answer) {
                task.spawn_undo(answer);
            }
        });
        let mut guard = UndoOnDrop { hit, answer };
        match tokio::time::timeout_at(deadline.into(), &mut guard.answer).await {
            Ok(Ok(answer)) => answer,
            // The runtime that the connection lives on has ended, maybe after the call was sent.
            Ok(Err(_)) => {
                guard.hit.spawn_release_all();
                Err(StoreError::Unavailable { source: None })
            }
            Err(_) => {
                guard.hit.record_timeout();
                Err(StoreError::TimedOut)
            }
        }
    }

    /// Runs a task that gives something back. It runs on the current runtime, which is driven, or on `otherwise`
    /// where there is none. When too many are under way, the charge stays and is logged.
    pub(in crate::store::redis) fn spawn_give_back(
        &self,
        otherwise: impl FnOnce() -> Option<Handle>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let Ok(permit) = Arc::clone(&self.give_backs).try_acquire_owned() else {
            self.router.log().log_kept_charge(&StoreError::Overloaded);
            return;
        };
        let Some(runtime) = Handle::try_current().ok().or_else(otherwise) else {
            let error = StoreError::Unavailable { source: None };
            self.router.log().log_kept_charge(&error);
            return;
        };
        runtime.spawn(async move {
            task.await;
            drop(permit);
        });
    }

    /// Makes a change that nobody waits for; what cannot be given back stays charged, and is logged.
    ///
    /// A refund whose outcome is unknown is not sent again, but its slot is released.
    pub(in crate::store::redis) async fn give_back(
        &self,
        receipt: &Receipt,
        scope: Scope,
        change: Adjustment,
    ) {
        let Err(error) = self.settle_late(receipt, scope, change).await else {
            return;
        };
        self.router.log().log_kept_charge(&error);
        if change != Adjustment::Release && has_slots(receipt.policy(), scope) {
            let released = self.settle_late(receipt, scope, Adjustment::Release);
            if let Err(error) = released.await {
                self.router.log().log_kept_charge(&error);
            }
        }
    }

    /// Releases the slot of a charge, on all nodes that hold one.
    pub(in crate::store::redis) async fn release_late(&self, receipt: &Receipt) {
        let names = self.receipt_names(receipt);
        for scope in self.scopes(&names) {
            if has_slots(receipt.policy(), scope) {
                self.give_back(receipt, scope, Adjustment::Release).await;
            }
        }
    }

    /// The calls that it takes to change a charge on these keys.
    fn scopes(&self, names: &[String]) -> SmallVec<[Scope; 2]> {
        if self.router.same_node(names) {
            return SmallVec::from_iter([Scope::Policy]);
        }
        (0..names.len()).map(Scope::Group).collect()
    }

    /// When a call has to be answered that nobody waits for.
    pub(in crate::store::redis) fn late_deadline(&self) -> Instant {
        Instant::now() + GIVE_BACK_TIME.max(self.timeouts.timeout)
    }

    /// Makes a change that nobody waits for, over the next connection if this one is gone.
    ///
    /// A slot can be released twice. Units are given back at most once, so they are tried again only where
    /// nothing was sent. What Redis refuses is not tried again.
    async fn settle_late(
        &self,
        receipt: &Receipt,
        scope: Scope,
        change: Adjustment,
    ) -> Result<Settlement, StoreError> {
        let deadline = self.late_deadline();
        loop {
            let attempt = match change {
                Adjustment::Release => deadline.min(Instant::now() + GIVE_BACK_TIME / 5),
                _ => deadline,
            };
            let settled = self.settle_scope(receipt, scope, change, attempt).await;
            let may_try_again = match &settled {
                Ok(_) | Err(StoreError::Refused { .. }) => false,
                Err(StoreError::Unavailable { source: None }) => true,
                Err(_) => change == Adjustment::Release,
            };
            if !may_try_again || Instant::now() + GIVE_BACK_PAUSE >= deadline {
                return settled;
            }
            tokio::time::sleep(GIVE_BACK_PAUSE).await;
        }
    }
}

impl Drop for UndoOnDrop {
    fn drop(&mut self) {
        self.answer.close();
        // It was sent, but the caller left before it looked.
        if let Ok(answer) = self.answer.try_recv() {
            self.hit.spawn_undo(answer);
        }
    }
}

impl UndoableHit {
    pub(in crate::store::redis) fn hit(&self) -> Hit<'_> {
        self.hit.as_hit()
    }

    async fn check(self: &Arc<UndoableHit>) -> CheckResult {
        if !self.executor.router.same_node(&self.pending.names) {
            return self.check_across_slots().await;
        }
        let params = self
            .executor
            .check_single(&self.route, &self.pending, self.deadline, false);
        let answer = self.with_deadline(&self.route, params).await;
        if let Err(error) = &answer {
            self.release_if_unknown(error, Scope::Policy);
        }
        answer
    }

    /// Waits for the answer to a call until the deadline. A time-out is counted once, here or by the caller.
    pub(in crate::store::redis) async fn with_deadline<T>(
        &self,
        route: &Route,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        // The caller has left, and nothing was sent.
        if Instant::now() >= self.deadline {
            return Err(StoreError::TimedOut);
        }
        self.await_route(Some(route.clone()));
        let answer = tokio::time::timeout_at(self.deadline.into(), answer).await;
        let Ok(answer) = answer else {
            self.record_timeout();
            return Err(StoreError::TimedOut);
        };
        self.await_route(None);
        answer
    }

    fn await_route(&self, route: Option<Route>) -> Option<Route> {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut awaited, route)
    }

    fn record_timeout(&self) {
        if let Some(route) = self.await_route(None) {
            let elapsed = self.executor.elapsed(self.deadline);
            self.executor.router.record_timeout(&route, elapsed);
        }
    }

    /// Where the connection lives; the caller's runtime where that is not ours.
    fn connection_runtime(&self) -> &Handle {
        self.route.runtime().unwrap_or(&self.runtime)
    }

    /// Runs a task that nobody waits for.
    pub(in crate::store::redis) fn spawn_give_back(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let otherwise = || Some(self.connection_runtime().clone());
        self.executor.spawn_give_back(otherwise, task);
    }

    /// Gives back a slot that a call without an answer may have taken.
    pub(in crate::store::redis) fn release_if_unknown(
        self: &Arc<UndoableHit>,
        error: &StoreError,
        scope: Scope,
    ) {
        if may_have_run(error)
            && has_slots(&self.pending.command.policy, scope)
            && let Some(receipt) = self.slot_receipt()
        {
            let hit = Arc::clone(self);
            self.spawn_give_back(async move {
                let release = Adjustment::Release;
                hit.executor.give_back(&receipt, scope, release).await;
            });
        }
    }

    /// Gives back all slots that calls without an answer may have taken.
    fn spawn_release_all(self: &Arc<UndoableHit>) {
        if let Some(receipt) = self.slot_receipt().filter(|slot| slot.lease().is_some()) {
            let hit = Arc::clone(self);
            self.spawn_give_back(async move { hit.executor.release_late(&receipt).await });
        }
    }

    /// A receipt that is good for releasing the slot only.
    fn slot_receipt(&self) -> Option<Receipt> {
        Receipt::from_marks(self.hit(), Timestamp::default(), std::iter::empty())
    }

    /// Undoes a hit whose caller is gone: a caller that was answered by the failure mode has spent nothing
    /// here, one that left has spent its units, but holds no slot.
    fn spawn_undo(self: &Arc<UndoableHit>, answer: CheckResult) {
        let Ok(decision) = answer else { return };
        let Some(receipt) = Receipt::new(self.hit(), &decision) else {
            return;
        };
        let is_late = Instant::now() >= self.deadline;
        let units = receipt.cost();
        let change = if is_late {
            Adjustment::Refund { units }
        } else {
            Adjustment::Release
        };
        if is_late || receipt.lease().is_some() {
            let hit = Arc::clone(self);
            self.spawn_give_back(async move {
                for scope in hit.executor.scopes(&hit.pending.names) {
                    hit.executor.give_back(&receipt, scope, change).await;
                }
            });
        }
    }
}

fn has_slots(policy: &Policy, scope: Scope) -> bool {
    let mut limits = scope.groups(policy).iter().flat_map(|group| &group.limits);
    limits.any(|effective| matches!(effective.limit, Limit::Concurrency(_)))
}

/// Whether a call without an answer may have been run all the same.
const fn may_have_run(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::TimedOut | StoreError::Unavailable { source: Some(_) }
    )
}
