//! A bucket with its budget and the receipts of its grants.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use ratelimit_core::{Limiter, Reservation, Timestamp};

use crate::quota::{
    assignment::Assignment,
    bucket::{QuotaAction, QuotaBucket},
    grant::{GrantId, SettledGrant},
    holders::Holders,
    target::{QuotaTarget, StoreAnswer, answer_time},
};

/// A bucket of one stream: its state, its budget, and the receipts of its grants.
///
/// Dropping it gives nothing back: the reports of a stream that is lost may be lost too, so all that it was granted counts
/// as used. The units come back by time.
#[derive(Debug)]
pub struct QuotaHolder {
    id: u64,
    target: QuotaTarget,
    bucket: QuotaBucket,
    receipts: Vec<(GrantId, Reservation)>,
    /// Requests that passed without a grant and are not recorded yet.
    unrecorded: u64,
    /// Grants to settle when the store answers.
    unsettled: Vec<(SettledGrant, Reservation)>,
    holders: Arc<Holders>,
}

/// The result of [`QuotaHolder::perform`].
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct QuotaUpdate {
    /// The assignments to send, in order.
    pub assignments: Vec<Assignment>,
    /// Whether the bucket is to be abandoned, and this value dropped.
    pub is_abandoned: bool,
    /// The units.
    pub tally: QuotaTally,
}

/// Requests by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaTally {
    /// Charged, to be granted.
    pub granted: u64,
    /// Given back.
    pub given_back: u64,
    /// Neither reported nor given back.
    pub forfeited: u64,
    /// Passed without a grant.
    pub unassigned: u64,
}

/// The state of one pass over many buckets: after a call that the store did not answer, the others are not made.
#[derive(Debug, Default)]
pub struct PassState {
    is_away: AtomicBool,
}

impl PassState {
    /// Whether the store failed to answer a call of this pass.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    fn set_away(&self) {
        self.is_away.store(true, Ordering::Relaxed);
    }
}

impl QuotaHolder {
    /// A bucket that was reported for the first time.
    pub fn new(target: QuotaTarget, holders: Arc<Holders>, now: Timestamp) -> QuotaHolder {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        QuotaHolder {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            bucket: QuotaBucket::new(target.terms(), target.is_enforced, now),
            target,
            receipts: Vec::new(),
            unrecorded: 0,
            unsettled: Vec::new(),
            holders,
        }
    }

    /// The budget.
    pub fn target(&self) -> &QuotaTarget {
        &self.target
    }

    /// The state.
    pub fn bucket(&self) -> &QuotaBucket {
        &self.bucket
    }

    /// The state, for reports and wake-ups, whose actions are then [performed](Self::perform).
    pub fn bucket_mut(&mut self) -> &mut QuotaBucket {
        &mut self.bucket
    }

    /// The granted units that are neither used nor given back. A stream that ends forfeits them.
    pub fn left(&self) -> u64 {
        self.bucket.left()
    }

    /// Replaces the budget after a reload. Grants of the old one are settled by their receipts.
    pub fn change_target(&mut self, target: QuotaTarget, now: Timestamp) -> Vec<QuotaAction> {
        self.holders.remove(&self.target.budget, self.id);
        let (terms, is_enforced) = (target.terms(), target.is_enforced);
        self.target = target;
        self.bucket.change_terms(terms, is_enforced, now)
    }

    /// Performs the actions of a report or a wake-up: charges, settles, and returns the assignments to send.
    ///
    /// `now` reads this process's clock.
    pub async fn perform(
        &mut self,
        actions: Vec<QuotaAction>,
        limiter: &Limiter,
        pass: &PassState,
        now: impl Fn() -> Timestamp,
    ) -> QuotaUpdate {
        let mut update = QuotaUpdate::default();
        let mut must_look = false;
        for action in actions {
            match action {
                QuotaAction::Record(requests) => {
                    self.unrecorded = self.unrecorded.saturating_add(requests);
                    if self.target.is_enforced {
                        update.tally.unassigned += requests;
                    }
                }
                QuotaAction::Settle(grant) => self.take_settled(grant),
                QuotaAction::Look => must_look = true,
                QuotaAction::Assign(assignment) => update.assignments.push(assignment),
                QuotaAction::Abandon => update.is_abandoned = true,
            }
        }
        self.settle(pass, &mut update).await;
        self.record(limiter, pass).await;
        if must_look {
            self.grant(limiter, pass, now, &mut update).await;
        }
        update
    }

    fn take_settled(&mut self, grant: SettledGrant) {
        let found = self.receipts.iter().position(|(id, _)| *id == grant.id);
        if let Some(index) = found {
            let (_, receipt) = self.receipts.swap_remove(index);
            if grant.used < grant.units {
                self.unsettled.push((grant, receipt));
            }
        }
    }

    /// Gives back what ended grants have left. A call that fails is not repeated: it may have been carried out.
    async fn settle(&mut self, pass: &PassState, update: &mut QuotaUpdate) {
        while !pass.is_away()
            && let Some((grant, receipt)) = self.unsettled.pop()
        {
            let left = grant.units - grant.used;
            // The cost of a request may have changed since, by a reload.
            let cost = receipt.receipt().cost() / grant.units;
            if receipt.settle(grant.used * cost).await.is_ok() {
                update.tally.given_back += left;
            } else {
                update.tally.forfeited += left;
                pass.set_away();
            }
        }
    }

    /// Records requests that passed without a grant. Without the store they stay to be recorded.
    async fn record(&mut self, limiter: &Limiter, pass: &PassState) {
        if self.unrecorded == 0 || pass.is_away() {
            return;
        }
        if self.target.record(limiter, self.unrecorded).await {
            self.unrecorded = 0;
        } else {
            pass.set_away();
        }
    }

    /// Charges a grant, or learns when there is something to charge.
    async fn grant(
        &mut self,
        limiter: &Limiter,
        pass: &PassState,
        now: impl Fn() -> Timestamp,
        update: &mut QuotaUpdate,
    ) {
        let answered = if pass.is_away() {
            None
        } else {
            self.try_grant(limiter, &now, update).await
        };
        let Some(actions) = answered else {
            pass.set_away();
            self.bucket.store_away(now());
            return;
        };
        for action in actions {
            match action {
                QuotaAction::Assign(assignment) => update.assignments.push(assignment),
                QuotaAction::Settle(grant) => self.take_settled(grant),
                _ => {}
            }
        }
        self.settle(pass, update).await;
    }

    /// The actions that follow from the answers of the store; `None` if it does not answer.
    async fn try_grant(
        &mut self,
        limiter: &Limiter,
        now: &impl Fn() -> Timestamp,
        update: &mut QuotaUpdate,
    ) -> Option<Vec<QuotaAction>> {
        let asked_at = now();
        let others =
            self.holders
                .report(&self.target.budget, self.id, self.bucket.milli(), asked_at);
        let (decided_at, remaining) = match self.target.look(limiter).await {
            StoreAnswer::Answer(answer) => answer,
            StoreAnswer::Denied { retry_after, .. } => {
                return Some(self.bucket.denied(now(), retry_after));
            }
            StoreAnswer::Away => return None,
        };
        let time = answer_time(asked_at, now(), decided_at);
        let mut units = match self.bucket.looked(time, remaining, others) {
            Ok(units) => units,
            Err(actions) => return Some(actions),
        };
        // Another holder may have charged in between: the second attempt takes what it has left.
        for attempt in 0..2 {
            let asked_at = now();
            match self.target.reserve(limiter, units).await {
                StoreAnswer::Answer((decided_at, receipt)) => {
                    update.tally.granted += units;
                    let time = answer_time(asked_at, now(), decided_at);
                    let (id, actions) = self.bucket.charged(time, units);
                    self.receipts.push((id, receipt));
                    return Some(actions);
                }
                StoreAnswer::Denied { remaining, .. } if attempt == 0 && remaining > 0 => {
                    units = units.min(remaining);
                }
                StoreAnswer::Denied { retry_after, .. } => {
                    return Some(self.bucket.denied(now(), retry_after));
                }
                StoreAnswer::Away => return None,
            }
        }
        None
    }
}

impl Drop for QuotaHolder {
    fn drop(&mut self) {
        self.holders.remove(&self.target.budget, self.id);
    }
}
