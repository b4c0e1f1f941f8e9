//! A bucket with its budget and the receipts of its grants.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ratelimit_core::{Limiter, Reservation, Timestamp};

use crate::quota::{
    assignment::Assignment,
    bucket::{AnswerTime, QuotaAction, QuotaBucket, Renewal},
    grant::{GrantId, SettledGrant},
    holders::Holders,
    pass::PassState,
    sizing::OtherDemand,
    target::{QuotaTarget, StoreAnswer, StoreFailure, settle},
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
    /// The assignment to send.
    pub assignment: Option<Assignment>,
    /// When the assignment was made, from which its life is counted.
    pub made_at: Timestamp,
    /// Whether the bucket is to be abandoned, and this value dropped.
    pub is_abandoned: bool,
    /// The units.
    pub tally: QuotaTally,
}

/// Requests by their outcome.
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
        let unsettled = self.unsettled.iter();
        let unsettled = unsettled.map(|(grant, _)| grant.units - grant.used);
        self.bucket.left() + unsettled.sum::<u64>()
    }

    /// The requests that passed without a grant and are not recorded yet.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    /// Replaces the budget after a reload. Grants of the old one are settled by their receipts.
    pub fn change_target(&mut self, target: QuotaTarget) -> QuotaAction {
        self.holders.remove(&self.target.budget, self.id);
        let (terms, is_enforced) = (target.terms(), target.is_enforced);
        self.target = target;
        self.bucket.change_terms(terms, is_enforced)
    }

    /// Performs the actions of a report or a wake-up: charges, settles, and returns the assignment to send.
    ///
    /// `now` reads this process's clock. The actions may be older: an assignment is made last, and lives from then.
    pub async fn perform(
        &mut self,
        actions: impl IntoIterator<Item = QuotaAction>,
        limiter: &Limiter,
        pass: &PassState,
        now: impl Fn() -> Timestamp,
    ) -> QuotaUpdate {
        let mut update = QuotaUpdate::default();
        let mut is_reported = false;
        let mut is_due = false;
        for action in actions {
            match action {
                QuotaAction::Record(requests) => {
                    self.unrecorded = self.unrecorded.saturating_add(requests);
                    if self.target.is_enforced {
                        update.tally.unassigned += requests;
                    }
                }
                QuotaAction::Settle(grant) => self.take_settled(grant, &mut update.tally),
                QuotaAction::Renew => is_reported = true,
                QuotaAction::Look => is_due = true,
                QuotaAction::Abandon => update.is_abandoned = true,
            }
        }
        let tally = &mut update.tally;
        let can_ask = self.settle_and_record(limiter, pass, tally).await;
        let at = now();
        let renewal = if is_reported {
            self.share_demand(at);
            self.bucket.renew(at)
        } else if is_due {
            self.bucket.look(at)
        } else {
            Renewal::Keep
        };
        match renewal {
            Renewal::Look if can_ask => self.grant(limiter, pass, now, &mut update).await,
            Renewal::Look => self.bucket.postpone(at),
            other => update.take(other, at),
        }
        update
    }

    fn take_settled(&mut self, grant: SettledGrant, tally: &mut QuotaTally) {
        let found = self.receipts.iter().position(|(id, _)| *id == grant.id);
        if let Some(index) = found {
            let (_, receipt) = self.receipts.swap_remove(index);
            if grant.is_restored {
                tally.forfeited += grant.units - grant.used;
            } else if grant.used < grant.units {
                self.unsettled.push((grant, receipt));
            }
        }
    }

    /// Tells the other holders of the budget the rate of this one, and returns theirs.
    fn share_demand(&self, now: Timestamp) -> OtherDemand {
        let (budget, rate) = (&self.target.budget, self.bucket.milli_per_second());
        self.holders.report(budget, self.id, rate, now)
    }

    /// Gives back what ended grants have left, and records requests that passed without a grant. Returns whether the
    /// store can be asked for more.
    ///
    /// Without the store requests stay to be recorded. A settlement that fails is not repeated: it may have been carried
    /// out.
    async fn settle_and_record(
        &mut self,
        limiter: &Limiter,
        pass: &PassState,
        tally: &mut QuotaTally,
    ) -> bool {
        while !pass.is_away()
            && let Some((grant, receipt)) = self.unsettled.pop()
        {
            let left = grant.units - grant.used;
            // The cost of a request may have changed since, by a reload.
            let cost = receipt.receipt().cost() / grant.units;
            let settled = settle(receipt, grant.used * cost).await;
            if settled.is_ok() {
                tally.given_back += left;
            } else {
                tally.forfeited += left;
            }
            if !pass.count(settled) {
                return false;
            }
        }
        if self.unrecorded == 0 || pass.is_away() {
            return !pass.is_away();
        }
        let recorded = self.target.record(limiter, self.unrecorded).await;
        if recorded.is_ok() {
            self.unrecorded = 0;
        }
        pass.count(recorded)
    }

    /// Charges a grant, or learns when there is something to charge.
    async fn grant(
        &mut self,
        limiter: &Limiter,
        pass: &PassState,
        now: impl Fn() -> Timestamp,
        update: &mut QuotaUpdate,
    ) {
        match self.try_grant(limiter, &now, update).await {
            Ok(()) => {
                pass.count(Ok(()));
            }
            Err(failure) => {
                pass.count(Err(failure));
                self.bucket.postpone(now());
            }
        }
    }

    /// Asks the store, and takes the step that follows from its answers.
    async fn try_grant(
        &mut self,
        limiter: &Limiter,
        now: &impl Fn() -> Timestamp,
        update: &mut QuotaUpdate,
    ) -> Result<(), StoreFailure> {
        let called_at = now();
        let others = self.share_demand(called_at);
        let (decided_at, remaining) = match self.target.look(limiter).await {
            StoreAnswer::Answer(answer) => answer,
            StoreAnswer::Denied { retry_after, .. } => {
                self.deny(now(), retry_after, update);
                return Ok(());
            }
            StoreAnswer::Failed(failure) => return Err(failure),
        };
        let time = AnswerTime {
            called_at,
            answered_at: now(),
            decided_at,
        };
        let mut units = match self.bucket.size_grant(time, remaining, others) {
            Ok(units) => units,
            Err(renewal) => {
                update.take(renewal, time.answered_at);
                return Ok(());
            }
        };
        let mut has_retried = false;
        loop {
            let called_at = now();
            match self.target.reserve(limiter, units).await {
                StoreAnswer::Answer((decided_at, receipt)) => {
                    let time = AnswerTime {
                        called_at,
                        answered_at: now(),
                        decided_at,
                    };
                    self.add_grant(time, units, receipt, update);
                    return Ok(());
                }
                // Another holder may have charged in between: the second attempt takes what it has left.
                StoreAnswer::Denied { remaining, .. } if !has_retried && remaining > 0 => {
                    has_retried = true;
                    units = units.min(remaining);
                }
                StoreAnswer::Denied { retry_after, .. } => {
                    self.deny(now(), retry_after, update);
                    return Ok(());
                }
                StoreAnswer::Failed(failure) => return Err(failure),
            }
        }
    }

    fn deny(&mut self, now: Timestamp, retry_after: Duration, update: &mut QuotaUpdate) {
        update.take(self.bucket.deny(now, retry_after), now);
    }

    fn add_grant(
        &mut self,
        time: AnswerTime,
        units: u64,
        receipt: Reservation,
        update: &mut QuotaUpdate,
    ) {
        let added = self.bucket.add_grant(time, units);
        self.receipts.push((added.id, receipt));
        update.tally.granted += units;
        if let Some(settled) = added.settled {
            // It is given back with the next call: the assignment must not wait.
            self.take_settled(settled, &mut update.tally);
        }
        update.take(added.renewal, time.answered_at);
    }
}

impl QuotaUpdate {
    /// Takes a step of the bucket that was made at `now`.
    fn take(&mut self, renewal: Renewal, now: Timestamp) {
        if let Renewal::Send(assignment) = renewal {
            self.assignment = Some(assignment);
            self.made_at = now;
        }
    }
}

impl Drop for QuotaHolder {
    fn drop(&mut self) {
        self.holders.remove(&self.target.budget, self.id);
    }
}
