//! Joint hits at random, on a few budgets that their members often share.

use crate::{
    model::{ModelHit, ModelMember, ModelRole, Spec},
    random::Random,
};

use super::specs::{self, PERIODS_US};

/// A trace of joint hits that goes on for ever.
#[derive(Debug)]
pub struct JointTrace {
    random: Random,
    scale_us: u64,
    now_us: u64,
    /// The limits of each budget, and the percentage by which its policy stretches them.
    budgets: Vec<(Vec<Spec>, u64)>,
    /// Whether members have one fixed window each, must fit, and share no budget.
    has_only_windows: bool,
}

impl JointTrace {
    /// The number of budgets: so few that members of one joint hit often share one.
    pub const BUDGETS: usize = 3;

    /// The trace that follows from `seed`.
    pub fn new(seed: u64) -> JointTrace {
        JointTrace::with_members(seed, false)
    }

    /// A trace whose members must fit and have one fixed window each, of a budget of their own.
    pub fn of_windows(seed: u64) -> JointTrace {
        JointTrace::with_members(seed, true)
    }

    fn with_members(seed: u64, has_only_windows: bool) -> JointTrace {
        let mut random = Random::new(seed);
        let scale_us = random.one_of(&PERIODS_US);
        let now_us = random.range(0, 1 << 51);
        let mut trace = JointTrace {
            random,
            scale_us,
            now_us,
            budgets: Vec::new(),
            has_only_windows,
        };
        trace.budgets = (0..JointTrace::BUDGETS).map(|_| trace.policy()).collect();
        trace
    }

    /// The time of the next joint hit, and its members.
    pub fn next_joint(&mut self) -> (u64, Vec<ModelMember>) {
        if self.random.one_in(12) {
            let budget = self.random.one_of(&[0, 1, 2]);
            self.budgets[budget] = self.policy();
        }
        let period_us = self.scale_us;
        let now_us = match self.random.range(1, 8) {
            1..=3 => self.now_us,
            4 => self.now_us + 1,
            5 | 6 => self.now_us + self.random.range(0, period_us),
            7 => self.now_us + self.random.range(0, 4 * period_us),
            _ => self
                .now_us
                .saturating_sub(self.random.range(0, 2 * period_us)),
        };
        self.now_us = now_us.min((1 << 52) - 1);
        (self.now_us, self.members())
    }

    fn members(&mut self) -> Vec<ModelMember> {
        if self.has_only_windows {
            let orders: [&[usize]; 6] = [&[0, 1, 2], &[2, 0, 1], &[1, 0], &[0, 2], &[1], &[2, 1]];
            let budgets = self.random.one_of(&orders).iter();
            return budgets
                .map(|&budget| ModelMember {
                    role: ModelRole::Must,
                    ..self.member(budget)
                })
                .collect();
        }
        let count = self.random.range(1, 5);
        (0..count)
            .map(|_| {
                let budget = self.random.one_of(&[0, 0, 1, 2]);
                self.member(budget)
            })
            .collect()
    }

    fn policy(&mut self) -> (Vec<Spec>, u64) {
        let mut count = self.random.one_of(&[1_usize, 2, 3]);
        let mut algorithms = [0, 1, 2, 3, 4, 5].as_slice();
        // Now and then another policy leaves a value that a window does not expect.
        let has_window = self.has_only_windows && !self.random.one_in(8);
        if has_window {
            (count, algorithms) = (1, &[2]);
        }
        let mut limits: Vec<Spec> = Vec::new();
        while limits.len() < count {
            let algorithm = self.random.one_of(algorithms);
            limits.extend(specs::limit(&mut self.random, algorithm, self.scale_us));
        }
        if !has_window && self.random.one_in(4) {
            limits.push(specs::penalty_box(&mut self.random, self.scale_us));
        }
        let percent = self.random.one_of(&[0, 0, 10, 100]);
        let can_stretch = |spec: &Spec| spec.throttled_grain_us(percent).is_some();
        let percent = if limits.iter().all(can_stretch) {
            percent
        } else {
            0
        };
        (limits, percent)
    }

    fn member(&mut self, budget: usize) -> ModelMember {
        let (mut limits, percent) = self.budgets[budget].clone();
        // An instance of an earlier version, or another tier, has fewer limits.
        if self.random.one_in(8) && !matches!(limits[0], Spec::PenaltyBox { .. }) {
            limits.truncate(1);
        }
        let is_box = |spec: &&Spec| matches!(spec, Spec::PenaltyBox { .. });
        let counted = limits.iter().filter(|spec| !is_box(spec));
        let least = counted.map(Spec::limit).min().unwrap_or(1);
        let random = &mut self.random;
        let cost = match random.range(1, 12) {
            1 => 0,
            2 => least,
            3 => least.saturating_add(1),
            4 => random.one_of(&[u64::MAX, (1 << 53) - 1]),
            5 | 6 => random.range(1, least),
            7 => least / 2 + 1,
            _ => 1,
        };
        ModelMember {
            budget,
            limits,
            asked: ModelHit {
                cost,
                percent,
                room: !random.one_in(3),
                slot: random.range(1, 6),
            },
            role: random.one_of(&[
                ModelRole::Must,
                ModelRole::Must,
                ModelRole::Any,
                ModelRole::Watch,
            ]),
            is_dry: random.one_in(8),
        }
    }
}
