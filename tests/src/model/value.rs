//! The value of one policy and key.

use super::{
    decision::{Answer, ModelDecision, Numbers},
    spec::Spec,
    state::{Standing, State, stand},
};

/// The value of one policy and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    value: Option<Value>,
}

/// One state per limit, by position; a limit that was never charged has none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    states: Vec<Option<State>>,
    expires_us: u128,
}

impl Model {
    /// A key that was never hit.
    pub const fn new() -> Self {
        Self { value: None }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.value = None;
    }

    /// Spends `cost` of every limit, or of none; a cost of 0 looks.
    ///
    /// # Panics
    ///
    /// When there is no limit, or one that the design refuses.
    pub fn hit(&mut self, limits: &[Spec], now_us: u64, cost: u64) -> ModelDecision {
        let live = self
            .value
            .clone()
            .filter(|value| u128::from(now_us) < value.expires_us);
        let states = live.as_ref().map_or(&[][..], |value| &value.states);
        let mut policy: Vec<Position> = limits
            .iter()
            .enumerate()
            .map(|(at, &spec)| Position::read(spec, states.get(at).cloned().flatten(), now_us))
            .collect();

        let answers: Vec<Answer> = policy.iter().map(|limit| limit.answer(cost)).collect();
        let allowed = answers
            .iter()
            .all(|answer| matches!(answer, Answer::Allowed { .. }));
        let impossible = answers.contains(&Answer::Impossible);
        for limit in &mut policy {
            match (cost, allowed, impossible) {
                (0, ..) | (_, false, true) => limit.look(),
                (_, true, _) => limit.charge(cost),
                (_, false, false) => limit.count_denied(cost),
            }
        }

        let mut numbers: Vec<Numbers> = policy
            .iter()
            .zip(&answers)
            .map(|(limit, &answer)| limit.numbers(answer, cost))
            .collect();
        let wrote = policy.iter().any(|limit| limit.changed);
        if wrote {
            self.value = Some(Value::of(&policy, now_us));
        } else if let Some(value) = live {
            let life_us = saturate(value.expires_us - u128::from(now_us));
            for limit in &mut numbers {
                limit.cap(life_us);
            }
        }
        ModelDecision::of(numbers, wrote)
    }
}

/// One limit of a policy, during a hit.
struct Position {
    spec: Spec,
    stored: Option<State>,
    standing: Box<dyn Standing>,
    changed: bool,
    counted: bool,
}

impl Position {
    fn read(spec: Spec, stored: Option<State>, now_us: u64) -> Self {
        let standing = stand(&spec, stored.as_ref(), now_us);
        let changed = standing.repaired();
        Self {
            spec,
            stored,
            standing,
            changed,
            counted: false,
        }
    }

    fn answer(&self, cost: u64) -> Answer {
        if cost > self.spec.limit() {
            Answer::Impossible
        } else if cost == 0 || self.standing.fits(cost.into()) {
            Answer::Allowed {
                delay_us: saturate(self.standing.delay_us()),
            }
        } else {
            Answer::Denied {
                retry_after_us: saturate(self.standing.retry_after_us(cost.into())),
            }
        }
    }

    fn look(&mut self) {
        self.changed = false;
    }

    fn charge(&mut self, cost: u64) {
        self.standing.charge(cost.into());
        self.changed = true;
    }

    fn count_denied(&mut self, cost: u64) {
        self.counted = self.standing.count_denied(cost.into());
        self.changed |= self.counted;
    }

    /// The numbers after the hit; a denied hit that was counted waits for itself too.
    fn numbers(&self, answer: Answer, cost: u64) -> Numbers {
        let answer = if self.counted {
            self.answer(cost)
        } else {
            answer
        };
        Numbers {
            answer,
            limit: self.spec.limit(),
            remaining: saturate(self.standing.remaining()),
            reset_after_us: saturate(self.standing.reset_after_us()),
        }
    }

    /// What is written: a limit that did not change stays as it was.
    fn store(&self) -> Option<State> {
        if self.changed {
            Some(self.standing.store())
        } else {
            self.stored.clone()
        }
    }
}

impl Value {
    fn of(policy: &[Position], now_us: u64) -> Self {
        let needs = policy.iter().map(|limit| limit.standing.need_us());
        let need_us = needs.max().unwrap_or(0);
        let life_us = (1_000 * (need_us.div_ceil(1_000) + 1)).max(1_000_000);
        let states = policy.iter().map(Position::store).collect();
        Self {
            states,
            expires_us: u128::from(now_us) + life_us,
        }
    }
}

/// Waits of more than 584,000 years, which slow buckets of many tokens reach, all read the same.
fn saturate(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
