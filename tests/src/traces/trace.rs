//! A trace: hits at random, and what becomes of them.

use std::mem;

use crate::{
    model::{Answer, ModelDecision, Spec},
    random::Random,
};

use super::{
    aim::Aim,
    receipts::Receipts,
    specs::{self, DAY_US, PERIODS_US},
    step::{Step, TracedHit, TracedSettle},
};

/// So few that the same one often asks again.
const SLOTS: u64 = 5;

/// A trace that goes on for ever, and learns from each decision where the next edge is.
#[derive(Debug)]
pub struct Trace {
    random: Random,
    aim: Aim,
    /// Small limits share this period's magnitude, so that their edges fall close together.
    scale_us: u64,
    hit: TracedHit,
    /// Limits at the policy's end that its present version or tier does not have.
    absent: Vec<Spec>,
    /// The last decision, and when it was made.
    last: Option<(u64, ModelDecision)>,
    receipts: Receipts,
}

impl Trace {
    /// The trace that follows from `seed`.
    pub fn new(seed: u64, aim: Aim) -> Trace {
        let mut random = Random::new(seed);
        let scale_us = random.one_of(&PERIODS_US);
        let now_us = match random.range(0, 3) {
            0 => 0,
            _ => random.range(0, 1 << 51),
        };
        let mut trace = Trace {
            random,
            aim,
            scale_us,
            hit: TracedHit {
                limits: Vec::new(),
                now_us,
                cost: 0,
                percent: 0,
                room: true,
                slot: 0,
            },
            absent: Vec::new(),
            last: None,
            receipts: Receipts::default(),
        };
        trace.change_policy();
        trace
    }

    /// The next hit, or what becomes of an earlier one.
    pub fn next_step(&mut self) -> Step {
        self.receipts.advance();
        if self.aim.resets && self.random.one_in(25) {
            self.hit.now_us = self.moment();
            return Step::Reset {
                now_us: self.hit.now_us,
            };
        }
        if self.aim.settles
            && self.random.one_in(4)
            && let Some((charged, change)) = self.receipts.settle(&mut self.random)
        {
            self.hit.now_us = self.moment();
            let now_us = self.hit.now_us;
            let mut receipt = charged.clone();
            if self.aim.changes && self.random.one_in(4) {
                receipt.limits.clone_from(&self.hit.limits);
                receipt.percent = self.hit.percent;
            }
            return Step::Settle(TracedSettle {
                charged,
                receipt,
                now_us,
                change,
            });
        }
        Step::Hit(self.next_hit())
    }

    /// The next hit.
    pub fn next_hit(&mut self) -> TracedHit {
        if self.aim.changes {
            match self.random.range(1, 16) {
                1 => self.change_policy(),
                2 => self.change_numbers(),
                3 | 4 => self.change_version(),
                _ => {}
            }
        }
        self.hit.now_us = self.moment();
        self.hit.cost = self.cost();
        if self.aim.throttles && self.random.one_in(4) {
            self.hit.room = !self.hit.room;
        }
        if self.aim.concurrency {
            self.hit.slot = self.random.range(1, SLOTS);
        }
        self.hit.clone()
    }

    /// Tells what became of the last hit.
    pub fn learn(&mut self, decision: ModelDecision) {
        self.receipts.keep(&self.hit, &decision);
        self.last = Some((self.hit.now_us, decision));
    }

    fn change_policy(&mut self) {
        let (least, most) = self.aim.limits;
        let count = self.random.range(least, most);
        self.absent.clear();
        self.hit.limits = (0..count).map(|_| self.limit()).collect();
        if self.aim.boxes && self.random.one_in(3) {
            let places: Vec<usize> = (0..=self.hit.limits.len()).collect();
            let place = self.random.one_of(&places);
            let penalty_box = specs::penalty_box(&mut self.random, self.scale_us);
            self.hit.limits.insert(place, penalty_box);
        }
        if self.aim.throttles {
            self.hit.percent = self.random.one_of(&[0, 10, 34, 100]);
        }
        self.keep_the_ceiling_possible();
    }

    /// Leaves out any number of limits at the end of the policy, after those are back that were left out, as
    /// instances of several versions do during a deploy, and keys that change their tier.
    fn change_version(&mut self) {
        self.hit.limits.append(&mut self.absent);
        let counts: Vec<usize> = (1..=self.hit.limits.len()).collect();
        let kept = self.random.one_of(&counts);
        let is_box = |spec: &Spec| matches!(spec, Spec::PenaltyBox { .. });
        if !self.hit.limits[..kept].iter().all(is_box) {
            self.absent = self.hit.limits.split_off(kept);
        }
        self.keep_the_ceiling_possible();
    }

    fn limit(&mut self) -> Spec {
        loop {
            let algorithm = self.aim.only.unwrap_or_else(|| {
                let most = if self.aim.concurrency { 6 } else { 5 };
                self.random.one_of(&[0, 1, 2, 3, 4, 5][..most])
            });
            if let Some(spec) = specs::limit(&mut self.random, algorithm, self.scale_us) {
                return spec;
            }
        }
    }

    /// Another limit of the same algorithm, somewhere in the policy.
    fn change_numbers(&mut self) {
        let places: Vec<usize> = (0..self.hit.limits.len()).collect();
        let place = self.random.one_of(&places);
        let same_algorithm = loop {
            let other = match self.hit.limits[place] {
                Spec::PenaltyBox { .. } => specs::penalty_box(&mut self.random, self.scale_us),
                _ => self.limit(),
            };
            if mem::discriminant(&other) == mem::discriminant(&self.hit.limits[place]) {
                break other;
            }
        };
        self.hit.limits[place] = same_algorithm;
        self.keep_the_ceiling_possible();
    }

    /// A limit may be so great that it cannot be stretched.
    fn keep_the_ceiling_possible(&mut self) {
        let percent = self.hit.percent;
        let can_stretch = |spec: &Spec| spec.throttled_grain_us(percent).is_some();
        if !self.hit.limits.iter().all(can_stretch) {
            self.hit.percent = 0;
        }
    }

    fn moment(&mut self) -> u64 {
        self.any_moment().min((1 << 52) - 1)
    }

    fn any_moment(&mut self) -> u64 {
        let now_us = self.hit.now_us;
        if self.random.one_in(3)
            && let Some((since_us, edge_us)) = self.edge_us()
        {
            let shy = u64::from(self.random.one_in(2));
            let edge_us = since_us.saturating_add((edge_us - shy).min(1 << 51));
            return edge_us.max(now_us);
        }
        let choices: Vec<u64> = self.hit.limits.iter().map(Spec::period_us).collect();
        let period_us = self.random.one_of(&choices);
        let random = &mut self.random;
        match random.range(1, 14) {
            1..=4 => now_us,
            5..=8 => now_us + random.range(0, period_us / 2 + 1),
            9 => now_us + random.range(0, 3 * period_us),
            10 => now_us - now_us % period_us + period_us - u64::from(random.one_in(2)),
            11 if self.aim.steps_back => now_us.saturating_sub(random.range(0, period_us)),
            12 if self.aim.steps_back => now_us.saturating_sub(random.range(0, 4 * period_us)),
            13 => now_us + random.one_of(&[period_us, 2 * period_us, 366 * DAY_US]),
            _ => now_us + 1,
        }
    }

    /// A moment that the last decision named: when it was made, and a wait of at least 1 since.
    fn edge_us(&mut self) -> Option<(u64, u64)> {
        let (since_us, last) = self.last.as_ref()?;
        let mut edges = Vec::new();
        for limit in &last.limits {
            edges.push(limit.reset_after_us);
            match limit.answer {
                Answer::Denied { retry_after_us } => edges.push(retry_after_us),
                Answer::Allowed { delay_us } => edges.push(delay_us),
                Answer::Impossible => {}
            }
        }
        edges.retain(|&edge_us| edge_us > 0);
        (!edges.is_empty()).then(|| (*since_us, self.random.one_of(&edges)))
    }

    fn cost(&mut self) -> u64 {
        let is_box = |spec: &&Spec| matches!(spec, Spec::PenaltyBox { .. });
        let spent = self.hit.limits.iter().filter(|spec| !is_box(spec));
        let least = spent.map(Spec::limit).min().unwrap_or(1);
        let left = self.last.as_ref().map_or(least, |(_, last)| {
            let remaining = last.limits.iter().map(|limit| limit.remaining);
            remaining.min().unwrap_or(least)
        });
        let random = &mut self.random;
        if self.aim.throttles && random.one_in(5) {
            let stretch = least.saturating_mul(self.hit.percent) / 100;
            return random.one_of(&[stretch, stretch + 1, least + stretch, least + stretch + 1]);
        }
        match random.range(1, 12) {
            1 => 0,
            2 => least,
            3 => least.saturating_add(1),
            4 => least - 1,
            5 | 6 => left,
            7 => left.saturating_add(1),
            8 => random.one_of(&[u64::MAX, 1 << 53, (1 << 53) - 1, 10_001]),
            9 => random.range(0, least),
            _ => 1,
        }
    }
}
