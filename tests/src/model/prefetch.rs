//! Prefetched units in exact arithmetic: instances that spend later what the store has charged.
//!
//! Each rule can be broken on purpose with a [`Mistake`], to show that the laws notice it.

use super::{
    ModelMark,
    decision::ModelDecision,
    hit::ModelHit,
    settle::{Change, ModelReceipt},
    spec::Spec,
    stored_value::Model,
};

/// A rule of prefetching that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Every rule holds.
    None,
    /// The age of a block is measured from the reply, not from the sending.
    AgeFromReply,
    /// A unit of a bucket lives one tick too long.
    OneTickShort,
    /// Units of a bucket never expire.
    BucketUnitsStay,
    /// Units of a window outlive it.
    WindowUnitsStay,
    /// All units of a block live as long as its last one.
    PlaceOfTheLastUnit,
    /// Units of a bucket that are refunded count as ahead of others.
    AheadOfRefunds,
    /// Units that a bucket has refilled are returned.
    RefilledUnitsReturned,
    /// Unspent units are returned twice.
    ReturnedTwice,
    /// A block is taken of the headroom of a throttle.
    Headroom,
    /// A slow clock of an instance is not compensated.
    NoMargin,
}

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 10] = [
        Mistake::AgeFromReply,
        Mistake::OneTickShort,
        Mistake::BucketUnitsStay,
        Mistake::WindowUnitsStay,
        Mistake::PlaceOfTheLastUnit,
        Mistake::AheadOfRefunds,
        Mistake::RefilledUnitsReturned,
        Mistake::ReturnedTwice,
        Mistake::Headroom,
        Mistake::NoMargin,
    ];
}

/// Whether a bucket refills a block while it may be spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// It does. Units expire when those before them are refilled, and none is refunded.
    Fast,
    /// It does not. Units expire as if nothing were before them, and the rest is refunded.
    Slow,
}

/// Units that one call charged, and when each expires.
#[derive(Clone, Debug)]
pub struct ModelBlock {
    units: u64,
    spent: u64,
    gone: u64,
    sent_us: u64,
    replied_us: u64,
    charged_at_us: u64,
    bounds: Vec<Bound>,
    receipt: ModelReceipt,
}

/// How one limit gives units back.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Debt {
        ahead: u128,
        unit: u128,
        refill: u128,
        grain_us: u128,
    },
    Window {
        end_us: u64,
    },
}

/// The headroom of the policies of the model, in percent; exact hits and blocks never use it.
pub const HEADROOM: u64 = 20;

impl ModelBlock {
    /// Charges `units` at `now_us` in a call that left `there_us` earlier and is answered `back_us` later. `None` when
    /// the store has fewer units.
    pub fn take(
        store: &mut Model,
        limits: &[Spec],
        units: u64,
        now_us: u64,
        [there_us, back_us]: [u64; 2],
        (speed, mistake): (Speed, Mistake),
    ) -> Option<ModelBlock> {
        let asked = ModelHit {
            room: mistake == Mistake::Headroom,
            ..plain(units)
        };
        let charged = store.hit_with(limits, now_us, asked);
        if !charged.overall.answer.is_allowed() {
            return None;
        }
        let is_ahead_known = speed == Speed::Fast || mistake == Mistake::AheadOfRefunds;
        let marks = charged.marks.iter();
        let bounds = limits.iter().zip(marks).map(|(spec, mark)| {
            let debt = is_ahead_known.then(|| u128::from(mark.debt));
            Bound::new(spec, debt, units, now_us)
        });
        let returnable = |(mark, spec): (&ModelMark, &Spec)| match (speed, spec) {
            (Speed::Fast, Spec::TokenBucket { .. } | Spec::LeakyBucket { .. }) => ModelMark {
                debt: 0,
                refunded: 0,
            },
            _ => *mark,
        };
        Some(ModelBlock {
            units,
            spent: 0,
            gone: 0,
            sent_us: now_us.saturating_sub(there_us),
            replied_us: now_us + back_us,
            charged_at_us: now_us,
            bounds: bounds.collect(),
            receipt: ModelReceipt {
                limits: limits.to_vec(),
                percent: HEADROOM,
                now_us,
                cost: units,
                slot: 0,
                marks: charged.marks.iter().zip(limits).map(returnable).collect(),
            },
        })
    }

    /// The age that the instance reckons with at `now_us`. Its clock is slow by one part in 1,500.
    fn age_us(&self, now_us: u64, mistake: Mistake) -> u64 {
        let from_us = match mistake {
            Mistake::AgeFromReply => self.replied_us,
            _ => self.sent_us,
        };
        let age_us = now_us.saturating_sub(from_us);
        let measured_us = age_us - age_us / 1_500;
        match mistake {
            Mistake::NoMargin => measured_us,
            _ => measured_us + measured_us / 1_024 + 1,
        }
    }

    /// The store's time that a hit of this block is dated with.
    pub fn dated_us(&self, now_us: u64, mistake: Mistake) -> u64 {
        self.charged_at_us + self.age_us(now_us, mistake)
    }

    /// The units that the instance believes it may spend.
    pub fn usable(&self, now_us: u64, mistake: Mistake) -> u64 {
        if now_us < self.replied_us {
            return 0;
        }
        let dated_us = self.dated_us(now_us, mistake);
        self.units - self.gone.max(self.expired(dated_us, mistake))
    }

    /// The units that the store still counts at its time `now_us` and that were not spent.
    pub fn backed(&self, now_us: u64) -> u64 {
        self.units - self.gone.max(self.expired(now_us, Mistake::None))
    }

    fn expired(&self, at_us: u64, mistake: Mistake) -> u64 {
        let charged_at_us = self.charged_at_us;
        let expired = |bound: &Bound| bound.expired(self.units, charged_at_us, at_us, mistake);
        self.bounds.iter().map(expired).max().unwrap_or(self.units)
    }

    /// The units that buckets have refilled at the store's time `at_us`.
    fn refilled(&self, at_us: u64, mistake: Mistake) -> u64 {
        let buckets = self.bounds.iter();
        let buckets = buckets.filter(|bound| matches!(bound, Bound::Debt { .. }));
        let refilled =
            buckets.map(|bound| bound.expired(self.units, self.charged_at_us, at_us, mistake));
        refilled.max().unwrap_or(0)
    }

    /// Spends `cost` units if the instance believes it may.
    pub fn spend(&mut self, cost: u64, now_us: u64, mistake: Mistake) -> bool {
        let usable = self.usable(now_us, mistake);
        if usable >= cost {
            self.gone = self.units - usable + cost;
            self.spent += cost;
        }
        usable >= cost
    }

    /// Returns what hits left to the store.
    pub fn return_to(mut self, store: &mut Model, now_us: u64, mistake: Mistake) {
        let refilled = self.refilled(self.dated_us(now_us, mistake), mistake);
        let actual = if mistake == Mistake::RefilledUnitsReturned {
            self.spent
        } else {
            self.gone.max(refilled)
        };
        let times = if mistake == Mistake::ReturnedTwice {
            2
        } else {
            1
        };
        for _ in 0..times {
            store.settle(&self.receipt, now_us, Change::Settle { actual });
        }
        self.gone = self.units;
    }

    /// A moment at which something ends, for tests that aim at edges.
    pub fn edge_us(&self) -> u64 {
        let edge = |bound: &Bound| match *bound {
            Bound::Window { end_us } => end_us,
            Bound::Debt {
                ahead,
                unit,
                refill,
                grain_us,
            } => {
                let ticks = (ahead + unit * u128::from(self.units)) / refill;
                self.charged_at_us + u64::try_from(ticks * grain_us).unwrap_or(0)
            }
        };
        self.bounds.iter().map(edge).min().unwrap_or(0)
    }
}

impl Bound {
    fn new(spec: &Spec, debt: Option<u128>, units: u64, now_us: u64) -> Bound {
        let period_us = spec.period_us();
        match *spec {
            Spec::TokenBucket { refill, .. } | Spec::LeakyBucket { refill, .. } => {
                let grain_us = spec.throttled_grain_us(HEADROOM).expect("a valid limit");
                let unit = u128::from(period_us / grain_us);
                Bound::Debt {
                    ahead: debt.map_or(0, |debt| debt - u128::from(units) * unit),
                    unit,
                    refill: u128::from(refill),
                    grain_us: u128::from(grain_us),
                }
            }
            _ => Bound::Window {
                end_us: now_us - now_us % period_us + period_us,
            },
        }
    }

    fn expired(&self, units: u64, charged_at_us: u64, at_us: u64, mistake: Mistake) -> u64 {
        match *self {
            Bound::Window { end_us } => {
                let is_over = at_us >= end_us && mistake != Mistake::WindowUnitsStay;
                if is_over { units } else { 0 }
            }
            Bound::Debt { .. } if mistake == Mistake::BucketUnitsStay => 0,
            Bound::Debt {
                ahead,
                unit,
                refill,
                grain_us,
            } => {
                let tick = |us: u64| u128::from(us) / grain_us;
                let mut elapsed = tick(at_us).saturating_sub(tick(charged_at_us));
                if mistake == Mistake::OneTickShort {
                    elapsed = elapsed.saturating_sub(1);
                }
                let refilled = (elapsed * refill).saturating_sub(ahead);
                let expired = u64::try_from(refilled.div_ceil(unit)).unwrap_or(u64::MAX);
                if mistake == Mistake::PlaceOfTheLastUnit && expired < units {
                    return 0;
                }
                expired.min(units)
            }
        }
    }
}

/// A hit on the plain limits of a policy with headroom.
pub const fn plain(cost: u64) -> ModelHit {
    ModelHit {
        cost,
        percent: HEADROOM,
        room: false,
        slot: 0,
    }
}

/// The hits of cost 1 that the exact model does not let pass, of those that passed at these times.
pub fn beyond(limits: &[Spec], passed_us: &[u64]) -> usize {
    let mut passed_us = passed_us.to_vec();
    passed_us.sort_unstable();
    let mut exact = Model::new();
    let is_beyond = |now_us: &u64| {
        let decision = exact.hit(limits, *now_us, 1);
        !decision.overall.answer.is_allowed()
    };
    passed_us.into_iter().filter(is_beyond).count()
}

/// The units that the store has left of all limits.
pub fn left(store: &mut Model, limits: &[Spec], now_us: u64) -> u64 {
    let seen: ModelDecision = store.hit_with(limits, now_us, plain(0));
    let left = seen.limits.iter().map(|limit| limit.remaining);
    left.min().unwrap_or(0)
}
