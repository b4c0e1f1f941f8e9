//! Hits that may have to be undone: on keys of different nodes, and for slots of a concurrency limit.
//!
//! Such a hit is decided in a task of its own, which goes on when its caller is dropped or answered by the failure
//! mode. Whatever nobody waits for any more is given back, in its own time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::store::redis::{
    batch::PendingHit, command::check::Scope, connection::router::Route, store::RedisInner,
};
use crate::{
    decision::Decision,
    key_set::KeySet,
    limit::Limit,
    policy::Adjustment,
    store::{
        contract::{Settlement, StoreError},
        hit::Hit,
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
    pub(in crate::store::redis) shared: Arc<RedisInner>,
    pub(in crate::store::redis) route: Route,
    pub(in crate::store::redis) pending: Arc<PendingHit>,
    pub(in crate::store::redis) keys: KeySet,
    pub(in crate::store::redis) deadline: Instant,
}

/// The answer to such a hit, which is undone when it was not taken.
struct UndoOnDrop {
    hit: Arc<UndoableHit>,
    answer: oneshot::Receiver<CheckResult>,
}

impl RedisInner {
    /// Decides a hit in a task of its own.
    pub(in crate::store::redis) async fn check_undoable(
        self: Arc<RedisInner>,
        route: Route,
        pending: Arc<PendingHit>,
        keys: KeySet,
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        let Ok(permit) = Arc::clone(&self.in_flight).try_acquire_owned() else {
            return Err(StoreError::Overloaded);
        };
        let hit = Arc::new(UndoableHit {
            shared: self,
            route,
            pending,
            keys,
            deadline,
        });
        let (sender, answer) = oneshot::channel();
        let task = Arc::clone(&hit);
        hit.route.spawn(async move {
            let _permit = permit;
            let answer = task.check().await;
            if let Err(answer) = sender.send(answer) {
                task.undo(answer).await;
            }
        });
        let mut guard = UndoOnDrop { hit, answer };
        match tokio::time::timeout_at(deadline.into(), &mut guard.answer).await {
            Ok(Ok(answer)) => answer,
            // The runtime that the connection lives on has ended.
            Ok(Err(_)) => Err(StoreError::Unavailable { source: None }),
            Err(_) => Err(StoreError::TimedOut),
        }
    }

    /// When a call has to be answered that nobody waits for.
    pub(in crate::store::redis) fn late_deadline(&self) -> Instant {
        Instant::now() + GIVE_BACK_TIME.max(self.timeouts.time_budget)
    }

    /// Makes a change that nobody waits for, over the next connection if this one is gone.
    ///
    /// A slot can be released twice. Units are given back at most once, so they are tried again only where
    /// nothing was sent.
    pub(in crate::store::redis) async fn settle_late(
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
                Ok(_) => false,
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
            let hit = Arc::clone(&self.hit);
            self.hit.route.spawn(async move { hit.undo(answer).await });
        }
    }
}

impl UndoableHit {
    pub(in crate::store::redis) fn hit(&self) -> Hit<'_> {
        let command = &self.pending.command;
        let mut hit = Hit::for_keys(&command.policy, &self.keys);
        hit.cost = command.params.cost;
        hit.slot = command.params.slot;
        hit.overdraft = command.params.overdraft;
        hit.mode = command.params.mode;
        hit
    }

    async fn check(self: &Arc<UndoableHit>) -> CheckResult {
        if !self.shared.router.same_node(&self.pending.names) {
            return self.check_across_slots().await;
        }
        let params = self
            .shared
            .check_single(&self.route, &self.pending, self.deadline, false);
        let answer = self
            .shared
            .with_deadline(&self.route, self.deadline, params)
            .await;
        self.release_if_unknown(&answer, Scope::Policy);
        answer
    }

    /// Gives back a slot that a call without an answer may have taken.
    pub(in crate::store::redis) fn release_if_unknown<T>(
        self: &Arc<UndoableHit>,
        answer: &Result<T, StoreError>,
        scope: Scope,
    ) {
        if may_have_run(answer) && self.has_slots(scope) {
            let hit = Arc::clone(self);
            self.route.spawn(async move { hit.release(scope).await });
        }
    }

    fn has_slots(&self, scope: Scope) -> bool {
        let groups = scope.groups(&self.pending.command.policy).iter();
        let mut limits = groups.flat_map(|group| &group.limits);
        limits.any(|effective| matches!(effective.limit, Limit::Concurrency(_)))
    }

    /// Undoes a hit whose caller is gone: a caller that was answered by the failure mode has spent nothing
    /// here, one that left has spent its units, but holds no slot.
    async fn undo(&self, answer: CheckResult) {
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
            self.settle_late(&receipt, change).await;
        }
    }

    async fn release(&self, scope: Scope) {
        let receipt = Receipt::from_marks(self.hit(), Timestamp::default(), std::iter::empty());
        if let Some(receipt) = receipt {
            let released = self
                .shared
                .settle_late(&receipt, scope, Adjustment::Release);
            self.log_kept(released.await);
        }
    }

    async fn settle_late(&self, receipt: &Receipt, change: Adjustment) {
        let parts: SmallVec<[Scope; 2]> = if self.shared.router.same_node(&self.pending.names) {
            [Scope::Policy].into_iter().collect()
        } else {
            (0..self.pending.names.len()).map(Scope::Group).collect()
        };
        for scope in parts {
            let settled = self.shared.settle_late(receipt, scope, change);
            self.log_kept(settled.await);
        }
    }

    pub(in crate::store::redis) fn log_kept(&self, settled: Result<Settlement, StoreError>) {
        if let Err(error) = settled {
            self.route.log().log_kept_charge(&error);
        }
    }
}

/// Whether a call without an answer may have been run all the same.
const fn may_have_run<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(
        answer,
        Err(StoreError::TimedOut | StoreError::Unavailable { source: Some(_) })
    )
}
