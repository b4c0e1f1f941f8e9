//! Limits of one policy whose keys live on different nodes of a cluster.
//!
//! They cannot be decided in one call. They are asked in the order in which they are written; at the first denial
//! what was charged before is given back, and the rest is only looked at. Limits that remember denied hits are
//! told of it, wherever they are. A crash in between leaves charges behind, never credit.

use std::{sync::Arc, time::Instant};

use super::{
    answer::{Step, Steps, Told},
    call::Call,
    question::{Part, Question},
    undoable::UndoableHit,
};
use crate::{
    decision::{Decision, Mark},
    policy::{Change, Purpose},
    store::{contract::StoreError, hit::Hit, receipt::Receipt},
};

/// What one key is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// To charge the hit, if it fits.
    Charge,
    /// Whether it would fit.
    Look,
    /// To remember that another key denied it.
    Deny,
}

/// What some keys were charged, by their numbers.
type Charged = Vec<(usize, Option<Receipt>)>;

impl UndoableHit {
    /// Decides the hit key by key.
    pub(super) async fn decide_apart(self: &Arc<UndoableHit>) -> Result<Decision, StoreError> {
        let is_meant = self.asking.question.spends() && self.hit().is_possible();
        let mut steps = Steps::new();
        let mut charged = Charged::new();
        let mut denied_by = None;
        let mut now = None;
        for number in 0..self.asking.names.len() {
            let mode = match denied_by {
                _ if !is_meant => Mode::Look,
                None => Mode::Charge,
                Some(_) if self.counts_denied(number) => Mode::Deny,
                Some(_) => Mode::Look,
            };
            let told = self.ask_part(number, mode).await;
            self.release_if_unknown(&told, Part::Group(number));
            let told = match told {
                Ok(told) => told,
                Err(error) => {
                    self.spawn_give_back(charged);
                    return Err(error);
                }
            };
            now = Some(told.now);
            if mode == Mode::Charge {
                if told.passed {
                    charged.push((number, self.part_receipt(&told)));
                } else {
                    denied_by = Some(number);
                }
            }
            steps.extend(told.steps);
        }
        let now = now.ok_or(StoreError::TimedOut)?;
        if let Some(denied_by) = denied_by {
            steps = self.deny(steps, charged, denied_by).await;
        }
        let passed = steps.iter().all(|step| step.told.outcome.is_allowed());
        Ok(Told { now, passed, steps }.decision())
    }

    /// Gives back what earlier keys were charged, and lets those that remember denials know.
    ///
    /// That is done in a task of its own: the denial stands, however long giving back takes.
    async fn deny(
        self: &Arc<UndoableHit>,
        steps: Steps,
        charged: Charged,
        denied_by: usize,
    ) -> Steps {
        let hit = Arc::clone(self);
        let (sender, told) = tokio::sync::oneshot::channel();
        self.way.spawn(async move {
            hit.give_back(charged).await;
            let mut told = Steps::new();
            for number in (0..denied_by).filter(|&number| hit.counts_denied(number)) {
                match hit.ask_part_late(number, Mode::Deny).await {
                    Ok(part) => told.extend(part.steps),
                    Err(error) => hit.way.log().log_kept_charge(&error),
                }
            }
            let _ = sender.send(told);
        });
        // Somewhat earlier than the caller gives up.
        let left = self.deadline.saturating_duration_since(Instant::now());
        let left = left.saturating_sub(self.shared.patience.time_budget / 5);
        let told = tokio::time::timeout(left, told).await;
        let told = told.ok().and_then(Result::ok).unwrap_or_default();
        let place_of = |step: &Step| told.iter().position(|told| told.place() == step.place());
        let denied_places = self.places_of(denied_by..self.asking.names.len());
        let settled = steps.into_iter().map(|step| match place_of(&step) {
            Some(place) => told[place],
            None if denied_places.contains(&step.place()) => step,
            None => step.given_back(),
        });
        settled.collect()
    }

    /// The places of the limits of some keys in their policy.
    fn places_of(&self, numbers: std::ops::Range<usize>) -> Vec<usize> {
        let groups = &self.asking.question.policy.groups()[numbers];
        let bounds = groups.iter().flat_map(|group| &group.bounds);
        bounds.map(|bound| bound.place).collect()
    }

    /// Whether limits of a key remember denied hits.
    fn counts_denied(&self, number: usize) -> bool {
        let group = &self.asking.question.policy.groups()[number];
        group.bounds.iter().any(|bound| bound.limit.counts_denied())
    }

    fn part(&self, number: usize, mode: Mode) -> Question {
        let mut part = self.asking.question.clone();
        part.part = Part::Group(number);
        part.is_denied = mode == Mode::Deny;
        if mode == Mode::Look {
            part.asked.purpose = Purpose::Foresee;
        }
        part
    }

    /// Asks one key within the hit's time.
    async fn ask_part(&self, number: usize, mode: Mode) -> Result<Told, StoreError> {
        let part = self.part(number, mode);
        let names = &self.asking.names[number..=number];
        let way = self.shared.way_to(&names[0])?;
        let call = Call::hit(&part, names);
        let told = call.send(&self.shared.access, way.clone(), self.deadline);
        self.shared.in_time(&way, self.deadline, told).await
    }

    /// Asks one key in its own time.
    async fn ask_part_late(&self, number: usize, mode: Mode) -> Result<Told, StoreError> {
        let part = self.part(number, mode);
        let names = &self.asking.names[number..=number];
        let way = self.shared.way_to(&names[0])?;
        let deadline = self.shared.late_deadline();
        let call = Call::hit(&part, names);
        let told = call.send(&self.shared.access, way, deadline);
        let told = tokio::time::timeout_at(deadline.into(), told).await;
        told.unwrap_or(Err(StoreError::TimedOut))
    }

    /// Gives back what was charged before a key failed.
    fn spawn_give_back(self: &Arc<UndoableHit>, charged: Charged) {
        let hit = Arc::clone(self);
        self.way.spawn(async move { hit.give_back(charged).await });
    }

    /// Gives back what some keys were charged; what cannot be given back stays charged.
    async fn give_back(&self, charged: Charged) {
        for (number, receipt) in charged {
            let Some(receipt) = receipt else { continue };
            let change = Change::Refund {
                units: receipt.cost(),
            };
            let settled = self
                .shared
                .settle_late(&receipt, Part::Group(number), change);
            self.log_kept(settled.await);
        }
    }

    /// A receipt for what one key was charged.
    fn part_receipt(&self, told: &Told) -> Option<Receipt> {
        let hit: Hit<'_> = self.hit();
        let mut marks = vec![Mark::NONE; hit.policy.limits().len()];
        for step in &told.steps {
            marks[step.place()] = step.mark();
        }
        Receipt::of_marks(hit, told.now, marks.into_iter())
    }
}
