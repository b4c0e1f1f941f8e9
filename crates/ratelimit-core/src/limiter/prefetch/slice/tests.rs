use proptest::prelude::*;

use super::*;
use crate::algorithm::Grain;

/// The naive slice: a list of units, each with the first moment at which it is void.
struct NaiveSlice {
    void_at: Vec<Timestamp>,
    is_spent: Vec<bool>,
}

impl NaiveSlice {
    fn new(units: u64, bounds: &[SliceBound]) -> NaiveSlice {
        let void_at = |place| bounds.iter().map(|bound| void_at(bound, place)).min();
        let void_at: Vec<_> = (0..units).map(|place| void_at(place).unwrap()).collect();
        NaiveSlice {
            is_spent: vec![false; void_at.len()],
            void_at,
        }
    }

    /// The places of the units that may be spent.
    fn live(&self, now: Timestamp) -> Vec<usize> {
        let is_live = |place: &usize| now < self.void_at[*place] && !self.is_spent[*place];
        (0..self.void_at.len()).filter(is_live).collect()
    }

    fn try_spend(&mut self, cost: u64, now: Timestamp) -> bool {
        let live = self.live(now);
        let is_enough = live.len() as u64 >= cost;
        if is_enough {
            let taken = live.into_iter().take(usize::try_from(cost).unwrap());
            taken.for_each(|place| self.is_spent[place] = true);
        }
        is_enough
    }
}

/// The first moment at which a unit is void, tick by tick.
fn void_at(bound: &SliceBound, place: u64) -> Timestamp {
    match *bound {
        SliceBound::Window { end } => end,
        SliceBound::Debt {
            ahead,
            refill,
            period,
            from,
        } => {
            let in_front = u128::from(ahead) + u128::from(place) * u128::from(period.ticks);
            let is_void = |elapsed: &u64| u128::from(*elapsed) * u128::from(refill) > in_front;
            let elapsed = (0..u64::MAX).find(is_void).unwrap();
            Timestamp::from_micros((from + elapsed) * period.grain.micros())
        }
    }
}

fn bounds() -> impl Strategy<Value = SliceBound> {
    let grain = prop_oneof![Just(Grain::Microsecond), Just(Grain::Millisecond)];
    let debt = (0..200_u64, 1..40_u64, 1..60_u64, grain, 0..50_u64);
    let debt = debt.prop_map(|(ahead, refill, ticks, grain, from)| SliceBound::Debt {
        ahead,
        refill,
        period: Period { ticks, grain },
        from,
    });
    let window = (0..100_000_u64).prop_map(|end| SliceBound::Window {
        end: Timestamp::from_micros(end),
    });
    prop_oneof![3 => debt, 1 => window]
}

/// A pause in microseconds, and the units to spend.
fn steps() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let pause = prop_oneof![0..5_u64, 0..300_u64, 0..20_000_u64];
    prop::collection::vec((pause, 0..6_u64), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_slice_spends_as_a_list_of_units_with_a_void_time_each(
        units in 1..60_u64,
        bounds in prop::collection::vec(bounds(), 1..4),
        steps in steps(),
    ) {
        let start = Timestamp::from_micros(0);
        let mut slice = Slice::new(units, start, bounds.iter().copied());
        let mut naive = NaiveSlice::new(units, &bounds);
        let (mut now, mut spent) = (start, 0);
        for (pause, cost) in steps {
            now = Timestamp::from_micros(now.as_micros() + pause);
            let passes = slice.try_spend(cost, now);
            prop_assert_eq!(passes, naive.try_spend(cost, now));
            spent += if passes { cost } else { 0 };
            prop_assert_eq!(slice.usable(now), naive.live(now).len() as u64);
        }
        let void = slice.take_void();
        prop_assert_eq!(spent + void + slice.usable(now), units, "each unit is spent, void or usable");
        let last = slice.lapses_at();
        let before = Timestamp::from_micros(last.as_micros().saturating_sub(1));
        let mut fresh = Slice::new(units, start, bounds.iter().copied());
        if before >= start && last > start {
            prop_assert!(fresh.usable(before) > 0);
        }
        prop_assert_eq!(fresh.usable(last), 0);
    }

    #[test]
    fn a_slice_with_a_refund_has_what_it_had_if_the_refunded_hit_had_never_come(
        units in 1..60_u64,
        bounds in prop::collection::vec(bounds(), 1..4),
        steps in steps(),
        refunded in 0..8_usize,
    ) {
        let start = Timestamp::from_micros(0);
        let mut slice = Slice::new(units, start, bounds.iter().copied());
        let mut without = slice.clone();
        let (mut now, mut cost_of_refunded) = (start, 0);
        for (index, (pause, cost)) in steps.into_iter().enumerate() {
            now = Timestamp::from_micros(now.as_micros() + pause);
            let passes = slice.try_spend(cost, now);
            if index == refunded && passes {
                cost_of_refunded = cost;
            } else if passes {
                prop_assert!(without.try_spend(cost, now));
            }
        }
        let is_refunded = slice.try_unspend(cost_of_refunded, now);
        if is_refunded {
            prop_assert_eq!(slice.usable(now), without.usable(now));
        } else {
            prop_assert!(slice.usable(now) <= without.usable(now));
        }
    }
}
