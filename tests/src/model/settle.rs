//! Giving back or charging afterwards.

use super::{
    bucket::Bucket,
    concurrency::ConcurrencyState,
    decision::ModelMark,
    hit::ModelHit,
    spec::Spec,
    state::{State, stand},
    stored_value::Model,
    tick::LimitClock,
};

/// What is kept of an allowed hit, to settle it later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelReceipt {
    /// The policy's limits at the time.
    pub limits: Vec<Spec>,
    /// What the policy's throttle mode added at the time.
    pub percent: u64,
    /// When.
    pub now_us: u64,
    /// How much was charged.
    pub cost: u64,
    /// What each limit noted.
    pub marks: Vec<ModelMark>,
    /// Who holds the slot.
    pub slot: u64,
}

/// What becomes of an allowed hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It cost something else in the end.
    Settle {
        /// What it cost.
        actual: u64,
    },
    /// Its slot is free.
    Release,
    /// Its slot is held for another lease.
    Renew,
}

/// What settling did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Whether every slot that was to be renewed was still held; true of any other change.
    pub held: bool,
    /// Whether the value was written.
    pub wrote: bool,
}

/// What is given back of one limit's charge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refund {
    /// How much.
    pub(super) units: u128,
    /// What the charge cost.
    pub(super) cost: u128,
    /// What the limit noted.
    pub(super) mark: u128,
    /// What the limit had refunded by then.
    pub(super) refunded: u128,
    /// When it was charged, in the limit's ticks.
    pub(super) tick: u128,
}

impl Model {
    /// Changes what an allowed hit has charged.
    ///
    /// # Panics
    ///
    /// When the receipt is not of an allowed hit.
    pub fn settle(&mut self, receipt: &ModelReceipt, now_us: u64, change: Change) -> Settled {
        let mut states = self.states(receipt.limits.len(), now_us);
        let reset_at_us = self.reset_at_us(now_us);
        let places: Vec<Place<'_>> = (0..receipt.limits.len())
            .map(|position| Place {
                receipt,
                position,
                now_us,
                reset_at_us,
                stored: states[position].as_ref(),
            })
            .collect();

        let held = change != Change::Renew || places.iter().all(Place::is_held);
        let changed: Vec<Option<After>> = places.iter().map(|place| place.after(change)).collect();
        let wrote = changed.iter().any(Option::is_some);
        if wrote {
            let need_us = changed
                .iter()
                .flatten()
                .filter_map(|after| after.need_us)
                .max();
            for (position, after) in changed.into_iter().enumerate() {
                if let Some(after) = after {
                    states[position] = Some(after.state);
                }
            }
            self.rewrite(states, need_us, now_us);
        }
        Settled { held, wrote }
    }
}

impl ModelReceipt {
    /// The hit as it was asked, of a signal that says there is room.
    fn asked(&self) -> ModelHit {
        ModelHit {
            cost: self.cost,
            percent: self.percent,
            room: true,
            slot: self.slot,
        }
    }
}

/// What is stored after a change, and how long that is needed where it prolongs the value.
struct After {
    state: State,
    need_us: Option<u128>,
}

impl After {
    /// What was given back prolongs nothing.
    const fn less(state: State) -> Self {
        let need_us = None;
        Self { state, need_us }
    }
}

/// One limit of a receipt, and what is stored in its place now.
struct Place<'a> {
    receipt: &'a ModelReceipt,
    position: usize,
    now_us: u64,
    reset_at_us: Option<u64>,
    stored: Option<&'a State>,
}

impl Place<'_> {
    /// What is stored here after a change, if it is anything else.
    fn after(&self, change: Change) -> Option<After> {
        let cost = self.receipt.cost;
        match change {
            Change::Settle { actual } if actual < cost => self.refunded(actual).map(After::less),
            Change::Settle { actual } if actual > cost => self.charged_more(actual - cost),
            Change::Settle { .. } => None,
            Change::Release => self.released().map(After::less),
            Change::Renew => self.renewed(),
        }
    }

    fn released(&self) -> Option<State> {
        self.slots()?
            .released(self.receipt.slot)
            .map(State::Concurrency)
    }

    fn renewed(&self) -> Option<After> {
        let (slot, now) = (self.receipt.slot, u128::from(self.now_us));
        let lease = u128::from(self.spec().period_us());
        let slots = self.slots()?.renewed(slot, now, lease)?;
        let need_us = Some(slots.ends_after(slot, now));
        let state = State::Concurrency(slots);
        Some(After { state, need_us })
    }

    fn refunded(&self, actual: u64) -> Option<State> {
        let (clock, ceiling) = (self.clock(), self.ceiling());
        // A policy that has gained limits since noted nothing of them.
        let mark = self.receipt.marks.get(self.position);
        let mark = mark.copied().unwrap_or_default();
        let refund = Refund {
            units: u128::from(self.receipt.cost - actual),
            cost: u128::from(self.receipt.cost),
            mark: u128::from(mark.debt),
            refunded: u128::from(mark.refunded),
            tick: u128::from(self.receipt.now_us) / clock.grain,
        };
        if let Spec::Concurrency { .. } = self.spec() {
            return (actual == 0).then(|| self.released()).flatten();
        }
        let is_forgotten = self
            .reset_at_us
            .is_some_and(|reset_at_us| self.receipt.now_us <= reset_at_us);
        if refund.mark == 0 || is_forgotten {
            return None;
        }
        match (self.spec(), self.stored?) {
            (Spec::TokenBucket { refill, .. }, State::TokenBucket(state)) => {
                let bucket = Bucket::read(clock, ceiling, refill, Some(state)).token();
                bucket.refunded(state, &refund)
            }
            (Spec::LeakyBucket { refill, police, .. }, State::LeakyBucket(state)) => {
                let bucket = Bucket::read(clock, ceiling, refill, Some(state)).leaky(police);
                bucket.refunded(state, &refund)
            }
            (Spec::FixedWindow { .. }, State::FixedWindow(state)) => {
                state.refunded(&clock, &refund).map(State::FixedWindow)
            }
            (Spec::SlidingWindowLog { .. }, State::SlidingWindowLog(state)) => {
                let log = state.refunded(&clock, &refund);
                log.map(State::SlidingWindowLog)
            }
            (Spec::SlidingWindowCounter { .. }, State::SlidingWindowCounter(state)) => {
                let counter = state.refunded(&clock, &refund);
                counter.map(State::SlidingWindowCounter)
            }
            _ => None,
        }
    }

    fn charged_more(&self, extra: u64) -> Option<After> {
        let spec = self.spec();
        let of_another_algorithm = self.stored.is_some_and(|state| !state.is_of(&spec));
        let takes_no_extra = matches!(spec, Spec::Concurrency { .. } | Spec::PenaltyBox { .. });
        if of_another_algorithm || takes_no_extra {
            return None;
        }
        let mut standing = stand(&spec, self.stored, self.now_us, &self.receipt.asked());
        let units = u128::from(extra).min(standing.remaining());
        if units == 0 {
            return None;
        }
        standing.charge(units);
        Some(After {
            state: standing.store(),
            need_us: Some(standing.need_us()),
        })
    }

    /// The slots of a concurrency limit, if there are any here.
    fn slots(&self) -> Option<&ConcurrencyState> {
        match (self.spec(), self.stored?) {
            (Spec::Concurrency { .. }, State::Concurrency(state)) => Some(state),
            _ => None,
        }
    }

    /// Whether the slot is held, if this limit is one that gives slots.
    fn is_held(&self) -> bool {
        let gives_slots = matches!(self.spec(), Spec::Concurrency { .. });
        let (slot, now) = (self.receipt.slot, u128::from(self.now_us));
        !gives_slots || self.slots().is_some_and(|slots| slots.is_held(slot, now))
    }

    fn spec(&self) -> Spec {
        self.receipt.limits[self.position]
    }

    fn clock(&self) -> LimitClock {
        LimitClock::new(&self.spec(), self.receipt.percent, self.now_us)
    }

    fn ceiling(&self) -> u128 {
        self.spec().ceiling(self.receipt.percent)
    }
}
