//! A slice: units that one prefetch call charged, and the moment at which each of them is void.
//!
//! A unit is void as soon as the exact limiter would have given it back. Every hit that spends a live unit is
//! therefore one that the exact limiter would let pass at the same moment (`docs/guides/prefetch.md`).

use smallvec::SmallVec;

use crate::{
    algorithm::{Period, WireState},
    limit::Limit,
    time::Timestamp,
};

/// Units that one call charged beyond its hit, in the order in which time gives them back.
///
/// - `next` counts the units that are gone, spent or void. Unit `next` is the first that may be spent.
/// - All moments are times of the store's clock, estimated so that they are never too early.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    units: u64,
    next: u64,
    /// Units that were void before they were spent, until [`take_void`](Slice::take_void) reads them.
    void: u64,
    charged_at: Timestamp,
    /// One bound for each limit of the policy; the first that ends a unit counts.
    bounds: SmallVec<[SliceBound; 1]>,
}

/// How one limit gives the units of a slice back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceBound {
    /// A bucket: time forgives the oldest debt first, so a unit is void when the debt in front of it is forgiven.
    Debt {
        /// The debt in front of the first unit. A unit is worth `period.ticks` of debt.
        ahead: u64,
        /// The debt that each tick forgives.
        refill: u64,
        period: Period,
        /// The tick of the charge.
        from: u64,
    },
    /// A window or a counter: all units are void when the window ends in which they were charged.
    Window { end: Timestamp },
}

impl SliceBound {
    /// The bound of a slice that was charged at `now`, behind `cost` units on a limit with this state.
    ///
    /// Returns `None` for a limit that cannot be prefetched.
    pub(super) fn new(
        limit: &Limit,
        state: WireState,
        cost: u64,
        now: Timestamp,
    ) -> Option<SliceBound> {
        let period = limit.period_ticks();
        let [at, debt, ..] = state;
        match limit {
            Limit::TokenBucket(_) | Limit::LeakyBucket(_) => Some(SliceBound::Debt {
                ahead: debt + cost * period.ticks,
                refill: limit.per_period(),
                period,
                from: period.tick(now),
            }),
            Limit::FixedWindow(_) | Limit::SlidingWindowCounter(_) => Some(SliceBound::Window {
                end: period.window_end(at),
            }),
            _ => None,
        }
    }

    /// How many units of a slice of `units` are void.
    fn gone(&self, units: u64, now: Timestamp) -> u64 {
        match *self {
            SliceBound::Debt {
                ahead,
                refill,
                period,
                from,
            } => {
                let elapsed = period.tick(now).saturating_sub(from);
                let forgiven = elapsed.saturating_mul(refill).saturating_sub(ahead);
                forgiven.div_ceil(period.ticks).min(units)
            }
            SliceBound::Window { end } if now < end => 0,
            SliceBound::Window { .. } => units,
        }
    }

    /// The first moment at which all of `units` are void.
    fn lapses_at(&self, units: u64) -> Timestamp {
        match *self {
            SliceBound::Debt {
                ahead,
                refill,
                period,
                from,
            } => {
                let in_front = ahead + units.saturating_sub(1) * period.ticks;
                period.start_of(from + in_front / refill + 1)
            }
            SliceBound::Window { end } => end,
        }
    }
}

impl Slice {
    /// A slice of `units` that were charged at `charged_at`.
    pub(super) fn new(
        units: u64,
        charged_at: Timestamp,
        bounds: impl IntoIterator<Item = SliceBound>,
    ) -> Slice {
        Slice {
            units,
            next: 0,
            void: 0,
            charged_at,
            bounds: bounds.into_iter().collect(),
        }
    }

    /// Spends `cost` units if as many are live, and none otherwise.
    #[inline]
    pub(super) fn try_spend(&mut self, cost: u64, now: Timestamp) -> bool {
        self.drop_void(now);
        let is_enough = cost <= self.units - self.next;
        if is_enough {
            self.next += cost;
        }
        is_enough
    }

    /// Takes back `units` that were spent, as if they had not been.
    ///
    /// It does so only while no unit of the slice is void. Every hit since could then have spent the units instead of its
    /// own, so the slice has as many left as if the refunded hit had never come.
    pub(super) fn try_unspend(&mut self, units: u64, now: Timestamp) -> bool {
        let is_whole = (self.bounds.iter()).all(|bound| bound.gone(self.units, now) == 0);
        let is_spent = units <= self.next;
        if is_whole && is_spent {
            self.next -= units;
        }
        is_whole && is_spent
    }

    /// The units that may still be spent.
    #[inline]
    pub(super) fn usable(&mut self, now: Timestamp) -> u64 {
        self.drop_void(now);
        self.units - self.next
    }

    /// The units that were not spent. Some may be void since the last look.
    #[inline]
    pub(super) const fn unspent(&self) -> u64 {
        self.units - self.next
    }

    /// The first moment at which no unit is live, whatever is spent until then.
    pub(super) fn lapses_at(&self) -> Timestamp {
        let lapses = self.bounds.iter().map(|bound| bound.lapses_at(self.units));
        lapses.min().unwrap_or_default()
    }

    /// When the slice was charged, by the store's clock.
    pub(super) const fn charged_at(&self) -> Timestamp {
        self.charged_at
    }

    /// Whether a limit of the slice counts by windows, so that units can be returned to the store.
    pub(super) fn has_window(&self) -> bool {
        let is_window = |bound: &SliceBound| matches!(bound, SliceBound::Window { .. });
        self.bounds.iter().any(is_window)
    }

    /// The units that became void unspent since the last call.
    pub(super) fn take_void(&mut self) -> u64 {
        std::mem::take(&mut self.void)
    }

    /// Takes units out that the limit has given back.
    fn drop_void(&mut self, now: Timestamp) {
        let gone = self.bounds.iter().map(|bound| bound.gone(self.units, now));
        let gone = gone.max().unwrap_or(self.units);
        self.void += gone.saturating_sub(self.next);
        self.next = self.next.max(gone);
    }
}

#[cfg(test)]
mod tests;
