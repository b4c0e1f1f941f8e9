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

use super::{access::Way, batch::Asking, question::Part, store::Shared};
use crate::{
    decision::Decision,
    keys::Keys,
    limit::Limit,
    policy::Change,
    store::{
        contract::{Settled, StoreError},
        hit::Hit,
        receipt::Receipt,
    },
    time::Timestamp,
};

/// How long giving back may take, with a new connection if need be: nobody waits for it.
const GIVE_BACK_TIME: Duration = Duration::from_secs(5);
const GIVE_BACK_PAUSE: Duration = Duration::from_millis(50);

type Answer = Result<Decision, StoreError>;

/// A hit that may have to be undone.
pub(super) struct UndoableHit {
    pub(super) shared: Arc<Shared>,
    pub(super) way: Way,
    pub(super) asking: Arc<Asking>,
    pub(super) keys: Keys,
    pub(super) deadline: Instant,
}

/// The answer to such a hit, which is undone when it was not taken.
struct Pending {
    hit: Arc<UndoableHit>,
    answer: oneshot::Receiver<Answer>,
}

impl Shared {
    /// Decides a hit in a task of its own.
    pub(super) async fn hit_undoably(
        self: Arc<Shared>,
        way: Way,
        asking: Arc<Asking>,
        keys: Keys,
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(StoreError::Overloaded);
        };
        let hit = Arc::new(UndoableHit {
            shared: self,
            way,
            asking,
            keys,
            deadline,
        });
        let (sender, answer) = oneshot::channel();
        let task = Arc::clone(&hit);
        hit.way.spawn(async move {
            let _permit = permit;
            let answer = task.decide().await;
            if let Err(answer) = sender.send(answer) {
                task.undo(answer).await;
            }
        });
        let mut pending = Pending { hit, answer };
        match tokio::time::timeout_at(deadline.into(), &mut pending.answer).await {
            Ok(Ok(answer)) => answer,
            // The runtime that the connection lives on has ended.
            Ok(Err(_)) => Err(StoreError::Unavailable { source: None }),
            Err(_) => Err(StoreError::TimedOut),
        }
    }

    /// When a call has to be answered that nobody waits for.
    pub(super) fn late_deadline(&self) -> Instant {
        Instant::now() + GIVE_BACK_TIME.max(self.patience.time_budget)
    }

    /// Makes a change that nobody waits for, over the next connection if this one is gone.
    ///
    /// A slot can be released twice. Units are given back at most once, so they are tried again only where
    /// nothing was sent.
    pub(super) async fn settle_late(
        &self,
        receipt: &Receipt,
        part: Part,
        change: Change,
    ) -> Result<Settled, StoreError> {
        let deadline = self.late_deadline();
        loop {
            let attempt = match change {
                Change::Release => deadline.min(Instant::now() + GIVE_BACK_TIME / 5),
                _ => deadline,
            };
            let settled = self.settle_part(receipt, part, change, attempt).await;
            let may_try_again = match &settled {
                Ok(_) => false,
                Err(StoreError::Unavailable { source: None }) => true,
                Err(_) => change == Change::Release,
            };
            if !may_try_again || Instant::now() + GIVE_BACK_PAUSE >= deadline {
                return settled;
            }
            tokio::time::sleep(GIVE_BACK_PAUSE).await;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.answer.close();
        // It was sent, but the caller left before it looked.
        if let Ok(answer) = self.answer.try_recv() {
            let hit = Arc::clone(&self.hit);
            self.hit.way.spawn(async move { hit.undo(answer).await });
        }
    }
}

impl UndoableHit {
    pub(super) fn hit(&self) -> Hit<'_> {
        let question = &self.asking.question;
        let mut hit = Hit::by(&question.policy, &self.keys);
        hit.cost = question.asked.cost;
        hit.slot = question.asked.slot;
        hit.overdraft = question.asked.overdraft;
        hit.purpose = question.asked.purpose;
        hit
    }

    async fn decide(self: &Arc<UndoableHit>) -> Answer {
        if !self.shared.access.is_one_call(&self.asking.names) {
            return self.decide_apart().await;
        }
        let asked = self
            .shared
            .hit_alone(&self.way, &self.asking, self.deadline, false);
        let answer = self.shared.in_time(&self.way, self.deadline, asked).await;
        self.release_if_unknown(&answer, Part::All);
        answer
    }

    /// Gives back a slot that a call without an answer may have taken.
    pub(super) fn release_if_unknown<T>(
        self: &Arc<UndoableHit>,
        answer: &Result<T, StoreError>,
        part: Part,
    ) {
        if may_have_run(answer) && self.has_slots(part) {
            let hit = Arc::clone(self);
            self.way.spawn(async move { hit.release(part).await });
        }
    }

    fn has_slots(&self, part: Part) -> bool {
        let groups = part.groups(&self.asking.question.policy).iter();
        let mut bounds = groups.flat_map(|group| &group.bounds);
        bounds.any(|bound| matches!(bound.limit, Limit::Concurrency(_)))
    }

    /// Undoes a hit whose caller is gone: a caller that was answered by the failure mode has spent nothing
    /// here, one that left has spent its units, but holds no slot.
    async fn undo(&self, answer: Answer) {
        let Ok(decision) = answer else { return };
        let Some(receipt) = Receipt::of(self.hit(), &decision) else {
            return;
        };
        let is_late = Instant::now() >= self.deadline;
        let units = receipt.cost();
        let change = if is_late {
            Change::Refund { units }
        } else {
            Change::Release
        };
        if is_late || receipt.lease().is_some() {
            self.settle_late(&receipt, change).await;
        }
    }

    async fn release(&self, part: Part) {
        let receipt = Receipt::of_marks(self.hit(), Timestamp::default(), std::iter::empty());
        if let Some(receipt) = receipt {
            let released = self.shared.settle_late(&receipt, part, Change::Release);
            self.log_kept(released.await);
        }
    }

    async fn settle_late(&self, receipt: &Receipt, change: Change) {
        let parts: SmallVec<[Part; 2]> = if self.shared.access.is_one_call(&self.asking.names) {
            [Part::All].into_iter().collect()
        } else {
            (0..self.asking.names.len()).map(Part::Group).collect()
        };
        for part in parts {
            let settled = self.shared.settle_late(receipt, part, change);
            self.log_kept(settled.await);
        }
    }

    pub(super) fn log_kept(&self, settled: Result<Settled, StoreError>) {
        if let Err(error) = settled {
            self.way.log().log_kept_charge(&error);
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
