//! The value of one policy and key.

use super::{
    decision::{Answer, ModelDecision, ModelMark, Numbers},
    hit::ModelHit,
    spec::Spec,
    state::{Standing, State, stand},
};

/// The value of one policy and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    value: Option<StoredValue>,
}

/// One state per limit, by position; a limit that was never charged has none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredValue {
    states: Vec<Option<State>>,
    expires_us: u128,
    tail: Option<Tail>,
}

/// What is known of states that the last policy did not have, and of the last reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tail {
    /// Until when they count.
    until_us: u128,
    reset_at_us: Option<u64>,
    /// How many limits the last policy had.
    known: usize,
}

impl Model {
    /// A key that was never hit.
    pub const fn new() -> Self {
        Self { value: None }
    }

    /// Forgets what was spent; receipts up to now give nothing back any more.
    pub fn reset(&mut self, now_us: u64) {
        self.value = self.live(now_us).map(|value| StoredValue {
            states: Vec::new(),
            expires_us: value.expires_us,
            tail: Some(Tail {
                until_us: value.expires_us,
                reset_at_us: Some(now_us),
                known: 0,
            }),
        });
    }

    /// Spends `cost` of every limit, or of none; a cost of 0 looks.
    ///
    /// # Panics
    ///
    /// When there is no limit, or one that the design refuses.
    pub fn hit(&mut self, limits: &[Spec], now_us: u64, cost: u64) -> ModelDecision {
        self.hit_with(limits, now_us, ModelHit::hard(cost))
    }

    /// The same in full: under a throttle mode, and for the holder of a slot.
    ///
    /// # Panics
    ///
    /// When there is no limit beside penalty boxes, or one that the design refuses.
    pub fn hit_with(&mut self, limits: &[Spec], now_us: u64, asked: ModelHit) -> ModelDecision {
        self.decide(limits, now_us, asked, false)
    }

    /// The decision of the same hit, which spends nothing and is recorded nowhere.
    ///
    /// # Panics
    ///
    /// As for `hit_with`.
    pub fn dry_run(&self, limits: &[Spec], now_us: u64, asked: ModelHit) -> ModelDecision {
        self.clone().decide(limits, now_us, asked, true)
    }

    fn decide(
        &mut self,
        limits: &[Spec],
        now_us: u64,
        asked: ModelHit,
        is_dry: bool,
    ) -> ModelDecision {
        let mut policy: Vec<Position> = limits
            .iter()
            .zip(self.states(limits.len(), now_us))
            .map(|(&spec, stored)| Position::read(spec, stored, now_us, asked))
            .collect();

        let answers: Vec<Answer> = policy.iter().map(Position::answer).collect();
        let allowed = answers.iter().all(Answer::is_allowed);
        let impossible = answers.contains(&Answer::Impossible);
        for limit in &mut policy {
            match (asked.cost, allowed, impossible) {
                _ if is_dry => limit.look(),
                (0, ..) | (_, false, true) => limit.look(),
                (_, true, _) => limit.charge(),
                (_, false, false) => limit.count_denied(),
            }
        }

        let mut numbers: Vec<Numbers> = policy
            .iter()
            .zip(&answers)
            .map(|(limit, &answer)| limit.numbers(answer))
            .collect();
        let wrote = policy.iter().any(|limit| limit.changed);
        if wrote {
            let needs = policy.iter().map(|limit| limit.standing.need_us());
            let need_us = needs.max().unwrap_or(0);
            let keeps_expiry = policy.iter().any(|limit| limit.standing.keeps_expiry());
            let before_us = self.live(now_us).map_or(0, |value| value.expires_us);
            let least_us = if keeps_expiry { before_us } else { 0 };
            let expires_us = expires_us(need_us, now_us, before_us).max(least_us);
            let states = policy.iter().map(Position::store).collect();
            self.write(states, expires_us, now_us);
        } else if let Some(value) = self.live(now_us) {
            let life_us = saturate(value.expires_us - u128::from(now_us));
            for limit in &mut numbers {
                limit.cap(life_us);
            }
        }
        let charged = allowed && asked.cost > 0 && !is_dry;
        let marks = policy.iter().map(Position::mark);
        ModelDecision {
            wrote,
            over: charged && policy.iter().any(Position::is_over),
            marks: if charged { marks.collect() } else { Vec::new() },
            ..ModelDecision::of(limits, numbers)
        }
    }

    fn live(&self, now_us: u64) -> Option<&StoredValue> {
        let value = self.value.as_ref();
        value.filter(|value| u128::from(now_us) < value.expires_us)
    }

    /// What is stored for each of a number of limits, by position.
    pub(super) fn states(&self, count: usize, now_us: u64) -> Vec<Option<State>> {
        let live = self.live(now_us);
        let mut states = live.map_or_else(Vec::new, |value| value.states.clone());
        states.resize(count, None);
        states
    }

    /// Stores a state for each limit of a policy, in front of those of limits that it does not have.
    pub(super) fn write(&mut self, states: Vec<Option<State>>, expires_us: u128, now_us: u64) {
        let (rest, tail) = self.rest(states.len(), now_us);
        let until_us = tail.map_or(0, |tail| tail.until_us);
        self.value = Some(StoredValue {
            states: [states, rest].concat(),
            expires_us: expires_us.max(until_us),
            tail,
        });
    }

    /// Stores changed states, for no shorter than what is stored already.
    pub(super) fn rewrite(
        &mut self,
        states: Vec<Option<State>>,
        need_us: Option<u128>,
        now_us: u64,
    ) {
        let before_us = self.live(now_us).map_or(0, |value| value.expires_us);
        let needed_us = need_us.map_or(0, |need_us| expires_us(need_us, now_us, before_us));
        self.write(states, before_us.max(needed_us), now_us);
    }

    /// The states behind those of `own` limits, and until when they count.
    fn rest(&self, own: usize, now_us: u64) -> (Vec<Option<State>>, Option<Tail>) {
        let Some(value) = self.live(now_us) else {
            return (Vec::new(), None);
        };
        // Without a tail, the last policy had a limit for each state.
        let before = value.tail.unwrap_or(Tail {
            until_us: 0,
            reset_at_us: None,
            known: value.states.len(),
        });
        // The states that the last policy wrote count until the value expires.
        let until_us = if own < before.known {
            before.until_us.max(value.expires_us)
        } else {
            before.until_us
        };
        let tail = Tail {
            until_us,
            known: own,
            ..before
        };
        let mut rest: Vec<Option<State>> = value.states.iter().skip(own).cloned().collect();
        if u128::from(now_us) >= tail.until_us {
            return (Vec::new(), None);
        }
        if rest.iter().all(Option::is_none) {
            rest.clear();
        }
        let is_needed = !rest.is_empty() || tail.reset_at_us.is_some();
        (rest, is_needed.then_some(tail))
    }

    /// When the last reset was that receipts have to know of.
    pub(super) fn reset_at_us(&self, now_us: u64) -> Option<u64> {
        let tail = self.live(now_us)?.tail?;
        tail.reset_at_us
            .filter(|_| u128::from(now_us) < tail.until_us)
    }
}

/// When a value expires that is needed for so long: at the first of the times one second apart that is at least a
/// millisecond behind the need. The times count from the last expiry, or else from a millisecond behind now.
fn expires_us(need_us: u128, now_us: u64, before_us: u128) -> u128 {
    let second_us = 1_000_000;
    let now_us = u128::from(now_us);
    let needed_us = now_us + need_us + 1_000;
    let mut expires_us = if before_us > now_us {
        before_us
    } else {
        now_us + 1_000
    };
    if expires_us < needed_us {
        expires_us += (needed_us - expires_us).div_ceil(second_us) * second_us;
    }
    expires_us - (expires_us - needed_us) / second_us * second_us
}

/// One limit of a policy, during a hit.
struct Position {
    spec: Spec,
    asked: ModelHit,
    stored: Option<State>,
    standing: Box<dyn Standing>,
    changed: bool,
    counted: bool,
}

impl Position {
    fn read(spec: Spec, stored: Option<State>, now_us: u64, asked: ModelHit) -> Self {
        let standing = stand(&spec, stored.as_ref(), now_us, &asked);
        let changed = standing.repaired();
        Self {
            spec,
            asked,
            stored,
            standing,
            changed,
            counted: false,
        }
    }

    fn answer(&self) -> Answer {
        let needs = self.asked.needs(&self.spec);
        if self.asked.is_impossible(&self.spec) {
            Answer::Impossible
        } else if self.asked.cost == 0 || self.standing.fits(needs) {
            Answer::Allowed {
                delay_us: saturate(self.standing.delay_us()),
            }
        } else {
            Answer::Denied {
                retry_after_us: saturate(self.standing.retry_after_us(needs)),
            }
        }
    }

    fn look(&mut self) {
        self.changed = false;
    }

    fn charge(&mut self) {
        self.standing.charge(self.asked.cost.into());
        self.changed = true;
    }

    fn count_denied(&mut self) {
        self.counted = self.standing.count_denied(self.asked.cost.into());
        self.changed |= self.counted;
    }

    /// The numbers after the hit; a denied hit that was counted waits for itself too.
    fn numbers(&self, answer: Answer) -> Numbers {
        let stretch = self.spec.stretch(self.asked.percent);
        Numbers {
            answer: if self.counted { self.answer() } else { answer },
            limit: self.spec.limit(),
            remaining: saturate(self.standing.remaining().saturating_sub(stretch)),
            reset_after_us: saturate(self.standing.reset_after_us()),
        }
    }

    /// Whether more is spent than the limit without its stretch.
    fn is_over(&self) -> bool {
        self.standing.remaining() < self.spec.stretch(self.asked.percent)
    }

    /// What a receipt notes; a debt of 0 when the charge was made at a time ahead of the clock.
    fn mark(&self) -> ModelMark {
        let debt = if self.standing.is_ahead() {
            0
        } else {
            saturate(self.standing.mark())
        };
        ModelMark {
            debt,
            refunded: saturate(self.standing.refunded()),
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

/// Waits of more than 584,000 years, which slow buckets of many tokens reach, all read the same.
fn saturate(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
