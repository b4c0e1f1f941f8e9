//! The receipts of a trace's hits, until they are settled.

use crate::{
    model::{Change, ModelDecision, ModelReceipt},
    random::Random,
};

use super::step::TracedHit;

/// How many steps ago the oldest hit was that is still settled.
const MEMORY: u64 = 20;

/// The receipts of hits that were not settled, each with the step it was given in.
#[derive(Debug, Default)]
pub(super) struct Receipts {
    step: u64,
    open: Vec<(u64, ModelReceipt)>,
}

impl Receipts {
    /// Another step begins.
    pub(super) fn advance(&mut self) {
        self.step += 1;
        let now = self.step;
        self.open.retain(|(step, _)| step + MEMORY >= now);
    }

    /// Keeps the receipt of a hit that charged something.
    pub(super) fn keep(&mut self, hit: &TracedHit, decision: &ModelDecision) {
        if decision.marks.is_empty() {
            return;
        }
        let receipt = ModelReceipt {
            limits: hit.limits.clone(),
            percent: hit.percent,
            now_us: hit.now_us,
            cost: hit.cost,
            marks: decision.marks.clone(),
            slot: hit.slot,
        };
        self.open.push((self.step, receipt));
    }

    /// A receipt and what becomes of it; only a renewal leaves it open.
    pub(super) fn settle(&mut self, random: &mut Random) -> Option<(ModelReceipt, Change)> {
        let places: Vec<usize> = (0..self.open.len()).collect();
        if places.is_empty() {
            return None;
        }
        let place = if random.one_in(3) {
            places.len() - 1
        } else {
            random.one_of(&places)
        };
        let change = change(&self.open[place].1, random);
        let receipt = match change {
            Change::Renew => self.open[place].1.clone(),
            _ => self.open.remove(place).1,
        };
        Some((receipt, change))
    }
}

fn change(receipt: &ModelReceipt, random: &mut Random) -> Change {
    let cost = receipt.cost;
    // Slots are given for any cost at all.
    let some = cost.min(1 << 53);
    let settle = |actual| Change::Settle { actual };
    match random.range(1, 12) {
        1..=4 => settle(0),
        5 => settle(cost - 1),
        6 => settle(random.range(0, some)),
        7 => settle(cost.saturating_add(1)),
        8 => settle(cost.saturating_add(random.range(0, 3 * some))),
        9 => settle(random.one_of(&[u64::MAX, 1 << 53])),
        10 => Change::Release,
        _ => Change::Renew,
    }
}
