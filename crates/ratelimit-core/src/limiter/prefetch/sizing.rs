//! The size of a slice, from estimates of the demand, of the fleet and of the round trip.
//!
//! Whole numbers only: rates are units per second, spans are microseconds. The estimates decide how much is
//! prefetched and when; no law depends on them.

use smallvec::SmallVec;

use crate::{limit::Limit, store::PrefetchRequest};

/// The longest time for which a slice is meant: 1 s.
pub(super) const MAX_HOLD: u64 = 1_000_000;
/// The fewest units that are worth a call.
pub(super) const MIN_UNITS: u64 = 4;
/// Hits for which one call is meant at most.
const HITS_PER_CALL: u64 = 2_000;
/// Added to one and a half round trips, so that the next call starts in time: 2.5 ms, or an eighth of a hold. Timers of
/// tokio tick once in a millisecond, and a busy runtime polls a task later.
const WAKE_UP: u64 = 2_500;
/// Round trips below this count as this where outliers are cut: 0.1 ms.
const MIN_RTT: u64 = 100;
/// Microseconds in a second.
const SECOND: u64 = 1_000_000;

/// The estimates of one hot key, and the sizes that follow from them.
///
/// With `cap` the share of a limit, `R` what it gives, `F` what the fleet spends and `D` what is wanted here, in units
/// per second:
///
/// ```text
/// hold         = min(1 s, cap / max(F, R))                 of several limits the shortest
/// prefetchable : 2 rtt <= hold and cap >= 4
/// hot          : D hold >= 4, cold below 2
/// horizon      = max(min(3 rtt, hold), min(hold, 2,000 hits / D, time since the key became hot))
/// want         = min(cap, D horizon)
/// ```
#[derive(Clone, Debug)]
pub(super) struct Sizing {
    limits: SmallVec<[LimitRate; 1]>,
    share_percent: u32,
    /// The usual cost of a hit, which turns hits into units.
    cost: u64,
    /// `D`: units per second that are wanted here, denied ones included.
    demand: u64,
    /// The round trip in microseconds, 0 before the first.
    rtt: u64,
}

/// The numbers of one limit.
#[derive(Clone, Copy, Debug)]
struct LimitRate {
    cap: u64,
    /// `R`: units per second that the limit gives.
    rate: u64,
    /// `F`: units per second that all instances charge.
    fleet: u64,
}

impl Sizing {
    /// The sizes of a key under `limits`, of which `share_percent` may be prefetched, before anything was measured.
    pub(super) fn new<'a>(
        limits: impl Iterator<Item = &'a Limit>,
        share_percent: u32,
        cost: u64,
    ) -> Sizing {
        let rate_of = |limit: &Limit| LimitRate {
            cap: PrefetchRequest::cap_of(limit.capacity(), share_percent),
            rate: per_second(limit.per_period(), limit.period_ticks().micros()),
            fleet: 0,
        };
        Sizing {
            limits: limits.map(rate_of).collect(),
            share_percent,
            cost,
            demand: 0,
            rtt: 0,
        }
    }

    /// Adds a sample of the demand: `units` were wanted in `span` microseconds.
    pub(super) fn observe_demand(&mut self, units: u64, span: u64) {
        let sample = per_second(units, span);
        self.demand = match self.demand {
            0 => sample,
            known => known.midpoint(sample),
        };
    }

    /// Adds a sample of the units that all instances charged to the limit `index`.
    pub(super) fn observe_fleet(&mut self, index: usize, units: u64, span: u64) {
        let sample = per_second(units, span);
        if let Some(limit) = self.limits.get_mut(index) {
            limit.fleet = match limit.fleet {
                0 => sample,
                known => known.midpoint(sample),
            };
        }
    }

    /// Adds a sample of the round trip, which counts by a quarter and as twice the estimate at most: a few slow calls
    /// change little.
    pub(super) fn observe_round_trip(&mut self, micros: u64) {
        self.rtt = match self.rtt {
            0 => micros,
            known => (3 * known + micros.min(2 * known.max(MIN_RTT))) / 4,
        };
    }

    /// The time for which a slice is meant, in microseconds.
    pub(super) fn hold(&self) -> u64 {
        let hold = |limit: &LimitRate| span_of(limit.cap, limit.rate.max(limit.fleet));
        self.limits.iter().map(hold).fold(MAX_HOLD, u64::min)
    }

    /// The share of the smallest limit.
    pub(super) fn cap(&self) -> u64 {
        let caps = self.limits.iter().map(|limit| limit.cap);
        caps.min().unwrap_or(0)
    }

    /// The share of the limit `index`.
    pub(super) fn cap_of(&self, index: usize) -> u64 {
        self.limits.get(index).map_or(0, |limit| limit.cap)
    }

    /// Whether two round trips fit into a hold, and the share is worth a call.
    pub(super) fn is_prefetchable(&self) -> bool {
        2 * self.rtt <= self.hold() && self.cap() >= MIN_UNITS
    }

    /// Whether a slice would live for less than half a round trip after it arrives.
    ///
    /// A key that is prefetched stays so up to here: a few slow calls do not switch it off.
    pub(super) fn is_too_far(&self) -> bool {
        3 * self.rtt > 2 * self.hold()
    }

    /// The smallest share, in percent, with which the key could be prefetched at this round trip.
    pub(super) fn needed_percent(&self) -> u64 {
        let needed = |limit: &LimitRate| {
            let units = units_in(limit.rate.max(limit.fleet), 2 * self.rtt);
            let whole = limit.cap.saturating_mul(100) / u64::from(self.share_percent.max(1));
            units.saturating_mul(100).div_ceil(whole.max(1))
        };
        self.limits.iter().map(needed).max().unwrap_or(0)
    }

    /// Whether too little is wanted for a slice to be worth a call.
    pub(super) fn is_cold(&self) -> bool {
        units_in(self.demand, self.hold()) < MIN_UNITS / 2
    }

    /// The units that are wanted here in a hold.
    pub(super) fn demand_in_hold(&self) -> u64 {
        units_in(self.demand, self.hold())
    }

    /// The time that the next slice should cover, for a key that has been hot for `watched` microseconds.
    ///
    /// A slice arrives one round trip after its charge, and the next one a round trip later. The third round trip is
    /// for calls that take longer.
    pub(super) fn horizon(&self, watched: u64) -> u64 {
        let by_hits = span_of(HITS_PER_CALL.saturating_mul(self.cost), self.demand);
        let shortest = self.rtt.saturating_mul(3).min(self.hold());
        let longest = self.hold().min(by_hits).min(watched);
        longest.max(shortest).clamp(1, MAX_HOLD)
    }

    /// The request for a slice.
    ///
    /// - While the budget is scarce, the `usable` units that are left are not asked for again.
    /// - Nor are they where the window ends within the horizon, in `window_left` microseconds: units that are not spent
    ///   until then are void.
    pub(super) fn request(
        &self,
        watched: u64,
        usable: u64,
        is_scarce: bool,
        window_left: Option<u64>,
    ) -> PrefetchRequest {
        let horizon = self.horizon(watched);
        let ends = window_left.filter(|left| *left < horizon);
        let horizon = ends.unwrap_or(horizon);
        let want = units_in(self.demand, horizon).max(MIN_UNITS);
        let on_hand = if is_scarce || ends.is_some() {
            usable
        } else {
            0
        };
        let want = want.min(self.cap()).saturating_sub(on_hand);
        PrefetchRequest::new(want, self.share_percent)
            .horizon_micros(horizon)
            .min_life_micros(self.rtt + self.rtt / 2)
            .scarce(is_scarce)
    }

    /// The time in which twice the fewest units that are worth a call are wanted, at most an eighth of a hold, in
    /// microseconds.
    pub(super) fn shortest_slice(&self) -> u64 {
        span_of(2 * MIN_UNITS, self.demand).min(self.hold() / 8)
    }

    /// The time before a slice ends at which the next call has to leave, in microseconds.
    pub(super) fn lead(&self) -> u64 {
        self.rtt + self.rtt / 2 + WAKE_UP.max(self.hold() / 8)
    }

    /// The round trip, in microseconds.
    pub(super) const fn rtt(&self) -> u64 {
        self.rtt
    }

    /// The units at which the next call has to leave, at most half of a slice of `units`.
    pub(super) fn low_water(&self, units: u64) -> u64 {
        units_in(self.demand, self.lead()).min(units / 2)
    }
}

/// `units` in `span` microseconds, as units per second.
fn per_second(units: u64, span: u64) -> u64 {
    scaled(units, SECOND, span)
}

/// The units that a rate gives in `span` microseconds.
fn units_in(rate: u64, span: u64) -> u64 {
    scaled(rate, span, SECOND)
}

/// The microseconds in which a rate gives `units`.
fn span_of(units: u64, rate: u64) -> u64 {
    scaled(units, SECOND, rate)
}

/// `a x b / c`, rounded down and saturating; a division by 0 saturates as well.
fn scaled(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let quotient = product.checked_div(u128::from(c));
    quotient.map_or(u64::MAX, |quotient| {
        u64::try_from(quotient).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizing(limit: &str, share: u32, demand: u64, rtt: u64) -> Sizing {
        let limit: Limit = limit.parse().unwrap();
        let mut sizing = Sizing::new([&limit].into_iter(), share, 1);
        sizing.observe_demand(demand, SECOND);
        sizing.observe_round_trip(rtt);
        sizing
    }

    #[test]
    fn a_hold_is_the_time_in_which_the_share_is_spent_or_comes_back() {
        let mut busy = sizing("100000/s", 5, 40_000, 200);
        assert_eq!((busy.cap(), busy.hold()), (5_000, 50_000));
        busy.observe_fleet(0, 200_000, SECOND);
        assert_eq!(busy.hold(), 25_000);
        assert_eq!(sizing("100/min", 5, 10, 200).hold(), MAX_HOLD);
    }

    #[test]
    fn a_slice_covers_no_more_time_than_its_key_was_watched_nor_more_than_2000_hits() {
        let busy = sizing("100000/s", 5, 50_000, 200);
        assert_eq!(busy.horizon(3_000), 3_000);
        assert_eq!(busy.horizon(MAX_HOLD), 40_000, "2,000 hits at 50,000/s");
        assert_eq!(busy.horizon(0), 600, "three round trips");
        let far = sizing("100000/s", 5, 50_000, 20_000);
        assert_eq!(far.horizon(MAX_HOLD), 50_000, "a hold");
    }

    #[test]
    fn a_far_store_needs_a_larger_share() {
        let far = sizing("100000/s", 5, 50_000, 80_000);
        assert!(!far.is_prefetchable());
        assert_eq!(far.needed_percent(), 16);
        assert!(sizing("100000/s", 16, 50_000, 80_000).is_prefetchable());
    }

    #[test]
    fn a_slow_call_does_not_end_prefetching_over_a_far_link() {
        let mut far = sizing("100000/s", 5, 50_000, 20_000);
        far.observe_round_trip(400_000);
        assert!(!far.is_too_far());
        (0..10).for_each(|_| far.observe_round_trip(40_000));
        assert!(far.is_too_far());
    }

    #[test]
    fn a_share_below_four_units_is_not_worth_a_call() {
        assert!(!sizing("60/min", 5, 100, 200).is_prefetchable());
    }

    proptest! {
        #[test]
        fn a_request_never_wants_more_than_the_share(
            limit in 1..1_000_000_u64,
            share in 1..50_u32,
            demand in 0..10_000_000_u64,
            rtt in 0..100_000_u64,
            watched in 0..2_000_000_u64,
            usable in 0..1_000_u64,
        ) {
            let sizing = sizing(&format!("{limit}/s"), share, demand, rtt);
            let request = sizing.request(watched, usable, false, None);
            prop_assert!(request.want() <= limit * u64::from(share) / 100);
            prop_assert!(sizing.hold() <= MAX_HOLD);
            prop_assert!(sizing.low_water(request.want()) <= request.want() / 2);
        }
    }
}
