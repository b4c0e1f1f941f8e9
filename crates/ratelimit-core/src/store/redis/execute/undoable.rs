//! Hits that may have to be undone: on keys in several hash slots, and hits that take a concurrency
//! slot.
//!
//! | the caller | the decision | given back |
//! |---|---|---|
//! | takes it | any | nothing here; the reservation owns the charge |
//! | timed out | allowed, after the deadline | the units and the slot |
//! | was dropped | allowed, before the deadline | the slot; the units stay |
//! | any | reply lost, or timed out | the slot, which may be taken; charges of earlier keys |
//! | any | runtime of the connection shut down | the slot; units may stay, which is logged |

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, sync::oneshot};

use crate::store::redis::{
    batch::PendingHit,
    call::call_work,
    command::check::Scope,
    connection::{router::Route, work_queue::CallSource},
    execute::Executor,
};
use crate::{
    budget::Adjustment,
    decision::Charged,
    limit::Limit,
    metrics,
    policy::Policy,
    store::{
        contract::{Settlement, StoreError},
        hit::{Hit, OwnedHit},
        receipt::Receipt,
    },
    sync::lock,
    time::Timestamp,
};

/// The time for a refund or release in the background, over a new connection if need be.
const GIVE_BACK_TIME: Duration = Duration::from_secs(5);
/// The pause between two attempts. A lost connection is replaced within about 62 ms at first.
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(50);

/// The decision that the task sends to its caller.
type CheckResult = Result<Charged, StoreError>;

/// A hit that may have to be undone.
///
/// - It is decided in a task on the runtime of the connection, which goes on when the caller is dropped or times out.
/// - A caller that timed out was answered by the failure mode, so its charge is refunded and its slot released.
/// - A caller that was dropped keeps its charge, as a request that was sent does, but its slot is released.
/// - A slot is also released after a call without a reply, because the script may have taken it.
/// - A background task gives back for up to five seconds for each key. A charge that stays is logged.
/// - One side undoes a decision: the task if it cannot send it, else the guard of the caller.
pub(in crate::store::redis) struct UndoableHit {
    pub(in crate::store::redis) executor: Arc<Executor>,
    /// The connection for the first key.
    pub(in crate::store::redis) route: Route,
    pub(in crate::store::redis) pending: Arc<PendingHit>,
    hit: OwnedHit,
    /// The deadline of the caller. A decision after it is refunded.
    pub(in crate::store::redis) deadline: Instant,
    /// Whether the caller has less time than a call. Its timeout does not count for the circuit breaker.
    is_short: bool,
    /// The runtime of the caller, for connections of the application.
    runtime: Handle,
    /// The route of the call in flight. After the deadline the task or the caller takes it and counts the timeout,
    /// whichever comes first: the task is not polled while the connection's runtime is not driven.
    awaited: Mutex<Option<Route>>,
    /// Whether the caller is gone, so that nothing more needs to be sent.
    is_abandoned: AtomicBool,
}

/// The pending decision of an [`UndoableHit`]. A decision that the caller does not take is undone.
struct UndoOnDrop {
    hit: Arc<UndoableHit>,
    decision: oneshot::Receiver<CheckResult>,
}

impl Executor {
    /// Decides a hit in a task of its own.
    ///
    /// # Errors
    ///
    /// Those of [`Executor::check`]. `Unavailable` also means that the runtime of the connection was
    /// shut down.
    pub(in crate::store::redis) async fn check_undoable(
        self: Arc<Executor>,
        route: Route,
        pending: Arc<PendingHit>,
        hit: OwnedHit,
        deadline: Instant,
        is_short: bool,
    ) -> Result<Charged, StoreError> {
        // The caller holds the permit, not the task: a runtime that is not driven would keep it.
        let executor = Arc::clone(&self);
        let policy = pending.command.policy.shared_name();
        let Some(_permit) = executor.in_flight.try_acquire(policy) else {
            return Err(StoreError::Overloaded);
        };
        let hit = Arc::new(UndoableHit {
            executor: self,
            awaited: Mutex::new(Some(route.clone())),
            route,
            pending,
            hit,
            deadline,
            is_short,
            runtime: Handle::current(),
            is_abandoned: AtomicBool::new(false),
        });
        let (sender, decision) = oneshot::channel();
        let task = Arc::clone(&hit);
        // The sockets live on that runtime. The task must not end with the runtime of its caller.
        hit.connection_runtime().spawn(async move {
            let decision = task.check().await;
            if let Err(decision) = sender.send(decision) {
                task.spawn_undo(decision);
            }
        });
        let mut guard = UndoOnDrop { hit, decision };
        match tokio::time::timeout_at(deadline.into(), &mut guard.decision).await {
            Ok(Ok(decision)) => decision,
            // The runtime of the connection was shut down, maybe after the call was sent.
            Ok(Err(ended)) => {
                guard.hit.spawn_release_all();
                let error = StoreError::unavailable(ended);
                // Units that were charged cannot be refunded: their receipt is lost with the task.
                if guard.hit.charges_units() {
                    guard.hit.executor.router.log().log_kept_charge(&error);
                }
                Err(error)
            }
            Err(_) => {
                guard.hit.record_timeout();
                Err(StoreError::TimedOut)
            }
        }
    }

    /// Spawns a task that gives something back.
    ///
    /// It runs on the current runtime, which is driven, or on `fallback_runtime` if there is none. If too many such
    /// tasks are running for `policy`, the charge stays and is logged.
    pub(in crate::store::redis) fn spawn_give_back(
        &self,
        policy: &Arc<str>,
        fallback_runtime: impl FnOnce() -> Option<Handle>,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let Some(permit) = Arc::clone(&self.give_backs).try_acquire_owned(policy) else {
            self.router.log().log_kept_charge(&StoreError::Overloaded);
            return;
        };
        let Some(runtime) = Handle::try_current().ok().or_else(fallback_runtime) else {
            let error = StoreError::Unavailable { source: None };
            self.router.log().log_kept_charge(&error);
            return;
        };
        runtime.spawn(async move {
            task.await;
            drop(permit);
        });
    }

    /// Refunds or releases a charge in the background. A failure is logged.
    ///
    /// A refund whose outcome is unknown is not sent again, because it could count twice. Its slot is released.
    ///
    /// At most one refund is sent. A release is idempotent: a slot that is not held stays free.
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

    /// The scopes of the calls that change a charge on these keys.
    pub(in crate::store::redis) fn scopes(&self, names: &[String]) -> SmallVec<[Scope; 2]> {
        if self.router.same_node(names) {
            return SmallVec::from_iter([Scope::Policy]);
        }
        (0..names.len()).map(Scope::Group).collect()
    }

    /// The deadline of a call in the background.
    pub(in crate::store::redis) fn late_deadline(&self) -> Instant {
        Instant::now() + GIVE_BACK_TIME.max(self.timeouts.timeout)
    }

    /// Settles a charge in the background, over the next connection if this one is gone.
    ///
    /// - A release is idempotent and is sent again until the deadline.
    /// - A refund is sent again only if nothing was sent before, also because too much work was in flight.
    /// - A change that Redis refuses is not sent again.
    async fn settle_late(
        &self,
        receipt: &Receipt,
        scope: Scope,
        change: Adjustment,
    ) -> Result<Settlement, StoreError> {
        let deadline = self.late_deadline();
        loop {
            // An attempt to refund has all of the time that is left: it is sent once. A release may be
            // sent again, and gives up a connection that hangs after one second.
            let attempt = match change {
                Adjustment::Release => deadline.min(Instant::now() + GIVE_BACK_TIME / 5),
                _ => deadline,
            };
            let settled = self.settle_scope(receipt, scope, change, attempt).await;
            let may_try_again = match &settled {
                Ok(_) | Err(StoreError::Refused { .. }) => false,
                Err(StoreError::Unavailable { source: None } | StoreError::Overloaded) => true,
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
    /// Undoes a decision that arrived and was not taken. After `close` a later one fails to be
    /// sent, and the task undoes it.
    fn drop(&mut self) {
        self.hit.is_abandoned.store(true, Ordering::Relaxed);
        self.decision.close();
        // The decision arrived, but the caller was dropped before it took it.
        if let Ok(decision) = self.decision.try_recv() {
            self.hit.spawn_undo(decision);
        }
    }
}

impl UndoableHit {
    pub(in crate::store::redis) fn hit(&self) -> Hit<'_> {
        self.hit.as_hit()
    }

    /// Decides the hit on the runtime of the connection, key by key or in one call.
    async fn check(self: &Arc<UndoableHit>) -> CheckResult {
        if !self.executor.router.same_node(&self.pending.names) {
            return self.check_across_slots().await;
        }
        let decision = self
            .executor
            .check_single(&self.route, &self.pending, self.deadline, false);
        let entries = self.pending.command.max_entries();
        let decision = self.with_deadline(&self.route, entries, decision).await;
        if let Err(error) = &decision {
            self.release_if_unknown(error, Scope::Policy);
        }
        decision
    }

    /// Sends a call that reads up to so many `entries` when the server may get it, and awaits it until the deadline. A
    /// timeout is counted once, here or by the caller.
    ///
    /// # Errors
    ///
    /// The error of the call, or [`StoreError::TimedOut`]. It is also returned without a call when
    /// the task is first polled after the deadline. [`StoreError::Overloaded`] if the call was not sent, also because the
    /// caller was dropped while it waited.
    pub(in crate::store::redis) async fn with_deadline<T>(
        &self,
        route: &Route,
        entries: u64,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        // The caller has timed out before anything was sent.
        if Instant::now() >= self.deadline {
            return Err(StoreError::TimedOut);
        }
        let policy = Arc::clone(self.pending.command.policy.shared_name());
        let (source, work) = (CallSource::Hits(policy), call_work(entries));
        let executor = &self.executor;
        let work = executor.acquire_work(route, &source, work, self.deadline);
        let work = work.await?;
        if self.is_abandoned.load(Ordering::Relaxed) {
            work.cancel();
            return Err(StoreError::Overloaded);
        }
        self.await_route(Some(route.clone()));
        let result = tokio::time::timeout_at(self.deadline.into(), call).await;
        let Ok(result) = result else {
            self.record_timeout();
            return Err(StoreError::TimedOut);
        };
        work.end();
        self.await_route(None);
        result
    }

    /// Sets the route of the call in flight, and returns the one before. The lock is held for the
    /// swap only.
    fn await_route(&self, route: Option<Route>) -> Option<Route> {
        let mut awaited = lock(&self.awaited);
        std::mem::replace(&mut awaited, route)
    }

    /// Counts the timeout of the call in flight, unless the other side has done so.
    fn record_timeout(&self) {
        if let Some(route) = self.await_route(None) {
            metrics::ambiguous();
            if !self.is_short {
                let elapsed = self.executor.elapsed(self.deadline);
                self.executor.router.record_timeout(&route, elapsed);
            }
        }
    }

    /// The runtime of the connection, or that of the caller for a connection of the application.
    fn connection_runtime(&self) -> &Handle {
        self.route.runtime().unwrap_or(&self.runtime)
    }

    /// Spawns a task that gives something back.
    pub(in crate::store::redis) fn spawn_give_back(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let fallback_runtime = || Some(self.connection_runtime().clone());
        let policy = self.pending.command.policy.shared_name();
        self.executor
            .spawn_give_back(policy, fallback_runtime, task);
    }

    /// Releases a slot that a call without a reply may have taken, in the background. Other errors
    /// took none.
    pub(in crate::store::redis) fn release_if_unknown(
        self: &Arc<UndoableHit>,
        error: &StoreError,
        scope: Scope,
    ) {
        if error.may_have_run()
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

    /// Releases all slots that calls without a reply may have taken.
    fn spawn_release_all(self: &Arc<UndoableHit>) {
        if let Some(receipt) = self.slot_receipt().filter(|slot| slot.lease().is_some()) {
            let hit = Arc::clone(self);
            self.spawn_give_back(async move { hit.executor.release_late(&receipt).await });
        }
    }

    /// Whether the hit charges units, and not only a concurrency slot.
    fn charges_units(&self) -> bool {
        let command = &self.pending.command;
        let mut limits = command.policy.limits().iter();
        command.charges() && limits.any(|limit| !matches!(limit, Limit::Concurrency(_)))
    }

    /// A receipt that can only release the slot: it has no marks, so it refunds no units.
    fn slot_receipt(&self) -> Option<Receipt> {
        Receipt::from_marks(self.hit(), Timestamp::default(), std::iter::empty())
    }

    /// Undoes a hit whose caller is gone: refunds it after a timeout, and otherwise only releases its slot.
    ///
    /// A denial and a failed check leave nothing to undo. Metrics do not count undone hits.
    fn spawn_undo(self: &Arc<UndoableHit>, decision: CheckResult) {
        let Ok(decision) = decision else { return };
        // The receipt has the time of the last node. On another node a log finds no stamp of that
        // time and refunds nothing, and a window refunds nothing if it ended in between.
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

/// Whether a call with this scope concerns a concurrency limit.
fn has_slots(policy: &Policy, scope: Scope) -> bool {
    let mut limits = scope.groups(policy).iter().flat_map(|group| &group.limits);
    limits.any(|effective| matches!(effective.limit, Limit::Concurrency(_)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use redis::{Cmd, RedisResult, Value};

    use super::*;
    use crate::{
        key::Key,
        store::{
            Store,
            joint::JointHit,
            redis::{
                RedisConfig, RedisStore,
                connection::{
                    external::{ExternalSender, SendFuture},
                    router::Router,
                },
            },
        },
        time::Clock,
    };

    /// Counts the calls, and never answers.
    #[derive(Clone, Debug, Default)]
    struct SilentSender {
        calls: Arc<AtomicUsize>,
    }

    impl ExternalSender for SilentSender {
        fn send(&self, _: Cmd) -> SendFuture {
            self.calls.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::pending::<RedisResult<Value>>())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hit_whose_caller_is_dropped_while_it_waits_is_not_sent() {
        let logs = ["sliding_window_log 10000/d"; 7].join("; ");
        let heavy = Policy::parse("heavy", &logs).unwrap();
        let slots = Policy::parse("slots", &format!("concurrency 10; {logs}")).unwrap();
        let key = Key::new("alice").unwrap();
        for is_joint in [false, true] {
            let sender = SilentSender::default();
            let config = RedisConfig::new("redis://127.0.0.1").unwrap();
            let config = config.clock(Clock::manual(Timestamp::from_secs(600)));
            let store = RedisStore::with_external(Router::external(sender.clone()), config);
            let busy: Vec<_> = (0..2)
                .map(|_| tokio::spawn(store.hit(Hit::new(&heavy, &key))))
                .collect();
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(sender.calls.load(Ordering::Relaxed), 2);
            let waiting = if is_joint {
                let hit = store.hit_joint(&[JointHit::new(Hit::new(&slots, &key))]);
                tokio::spawn(async move { drop(hit.await) })
            } else {
                let hit = store.hit(Hit::new(&slots, &key));
                tokio::spawn(async move { drop(hit.await) })
            };
            tokio::time::sleep(Duration::from_millis(1)).await;

            waiting.abort();
            tokio::time::sleep(Duration::from_millis(1)).await;
            for call in busy {
                call.abort();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;

            assert_eq!(sender.calls.load(Ordering::Relaxed), 2, "joint: {is_joint}");
        }
    }
}
