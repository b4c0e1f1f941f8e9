//! Limits of one policy whose keys live on different nodes of a cluster.
//!
//! They cannot be decided in one call. They are asked in the order in which they are written; at the
//! first denial what was charged before is given back, and the rest is only looked at. A crash in
//! between leaves charges behind, never credit.

use std::time::Instant;

use super::{
    answer::{Step, Steps, Told},
    call::{Call, Settlement},
    question::{Part, Question},
    store::Shared,
};
use crate::{
    decision::{Decision, Mark},
    policy::{Change, Purpose},
    store::{contract::StoreError, hit::Hit, receipt::Receipt},
};

impl Shared {
    /// Decides a hit key by key.
    pub(super) async fn hit_apart(
        &self,
        question: &Question,
        names: &[String],
        hit: Hit<'_>,
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        let mut steps = Steps::new();
        let mut charged = Vec::new();
        let mut now = None;
        let mut passed = true;
        for (number, name) in names.iter().enumerate() {
            let mut part = question.clone();
            part.part = Part::Group(number);
            if !passed {
                part.asked.purpose = Purpose::Foresee;
            }
            let told = match self.ask_part(&part, name, deadline).await {
                Ok(told) => told,
                Err(error) => {
                    self.give_back(charged, names).await;
                    return Err(error);
                }
            };
            now = Some(told.now);
            if passed && told.passed {
                charged.push((number, part_receipt(&part, hit, &told)));
            } else if passed {
                passed = false;
                self.give_back(std::mem::take(&mut charged), names).await;
                steps = steps.into_iter().map(Step::given_back).collect();
            }
            steps.extend(told.steps);
        }
        let now = now.ok_or(StoreError::TimedOut)?;
        Ok(Told { now, passed, steps }.decision())
    }

    async fn ask_part(
        &self,
        part: &Question,
        name: &str,
        deadline: Instant,
    ) -> Result<Told, StoreError> {
        let way = self.way_to(name)?;
        let names = [name.to_owned()];
        let call = Call::hit(part, &names);
        call.send(&self.access, way, deadline).await
    }

    /// Gives back what some keys were charged; what cannot be given back stays charged.
    async fn give_back(&self, charged: Vec<(usize, Option<Receipt>)>, names: &[String]) {
        for (number, receipt) in charged {
            let Some(receipt) = receipt else { continue };
            let settlement = Settlement {
                receipt: &receipt,
                part: Part::Group(number),
                change: Change::Refund {
                    units: receipt.cost(),
                },
                now: self.manual_now(),
            };
            let names = &names[number..=number];
            let Ok(way) = self.way_to(&names[0]) else {
                continue;
            };
            let deadline = Instant::now() + self.patience.time_budget;
            let call = Call::settle(&settlement, names);
            let given = call.send(&self.access, way, deadline);
            if !matches!(
                tokio::time::timeout_at(deadline.into(), given).await,
                Ok(Ok(_))
            ) {
                tracing::debug!("a charge could not be given back");
            }
        }
    }
}

/// A receipt for what one key was charged.
fn part_receipt(part: &Question, hit: Hit<'_>, told: &Told) -> Option<Receipt> {
    let mut marks = vec![Mark::NONE; part.policy.limits().len()];
    for step in &told.steps {
        marks[step.place()] = step.mark();
    }
    Receipt::of_marks(hit, told.now, marks.into_iter())
}
