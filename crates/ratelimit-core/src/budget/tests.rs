use proptest::prelude::*;

use super::*;
use crate::policy::{Overdraft, Policy, Throttle};

const START: u64 = 1_700_000_000_000_000;

/// Small and large buckets in each grain, and limits that only the general path charges.
const LIMITS: &[&str] = &[
    "1/s",
    "2/ms",
    "3/s",
    "3/s burst 7",
    "3/s burst 30",
    "7/min burst 3",
    "5/h",
    "1000000/d",
    "1000000/366d",
    "9007199254/s",
    "leaky_bucket 3/s",
    "fixed_window 3/s",
    "sliding_window_log 3/s",
    "sliding_window_counter 3/s",
    "3/s; 5/min",
];

fn policies() -> impl Strategy<Value = Policy> {
    let percents = prop_oneof![4 => Just(0), 1 => Just(50)];
    (prop::sample::select(LIMITS), percents).prop_map(|(limits, percent)| {
        let policy = Policy::parse("api", limits).expect("limits that are well formed");
        let soft = policy.with_throttle(Throttle::Soft { percent });
        soft.unwrap_or(policy)
    })
}

/// Clock steps of every magnitude, forward and back, and sometimes a change of the policy.
fn steps() -> impl Strategy<Value = Vec<(i64, HitParams, Option<Policy>)>> {
    let pause = prop_oneof![
        Just(0),
        1..2_000_i64,
        1..2_000_000_i64,
        1..10_000_000_i64,
        1..100_000_000_000_i64,
        -2_000_000..0_i64,
        -100_000_000_000..0_i64,
    ];
    let mode = prop_oneof![5 => Just(HitMode::Charge), 1 => Just(HitMode::DryRun)];
    let overdraft = prop_oneof![Just(Overdraft::Allowed), Just(Overdraft::Refused)];
    let params = (0..9_u64, mode, overdraft).prop_map(|(cost, mode, overdraft)| HitParams {
        cost,
        slot: 0,
        overdraft,
        mode,
    });
    let other = prop_oneof![3 => Just(None), 1 => policies().prop_map(Some)];
    prop::collection::vec((pause, params, other), 1..40)
}

/// Decides a hit by the general path.
fn general(budget: &mut Budget, group: &LimitGroup, params: HitParams, now: Timestamp) -> Charged {
    let effect = effect_of(budget.fit(group, now, params), params);
    let mut limits = ChargedLimits::new();
    budget.apply(group, now, params, |_| effect, &mut limits);
    Charged::from_limits(now, &mut limits)
}

/// Decides a hit by a fast path if possible. Returns the answer, and whether that of token buckets made it.
fn fast(
    budget: &mut Budget,
    group: &LimitGroup,
    params: HitParams,
    now: Timestamp,
) -> (Charged, bool) {
    if let Some(charged) = budget.try_charge_fast(group, params, now) {
        return (charged, true);
    }
    let effect = |fit| effect_of(fit, params);
    let charged = match budget.apply_single(group, now, params, effect) {
        Some((limit, _)) => Charged::of_limit(limit.decision, limit.mark, now),
        None => general(budget, group, params, now),
    };
    (charged, false)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_fast_paths_charge_as_the_general_path(
        first in policies(),
        steps in steps(),
    ) {
        let (mut policy, mut now) = (first, START);
        let (mut own, mut other_budget) = (Budget::default(), Budget::default());

        for (pause, params, other) in steps {
            policy = other.unwrap_or(policy);
            now = now.saturating_add_signed(pause);
            let (group, moment) = (&policy.groups()[0], Timestamp::from_micros(now));
            let (charged, was_fast) = fast(&mut own, group, params, moment);
            let expected = general(&mut other_budget, group, params, moment);

            prop_assert_eq!(&charged.decision, &expected.decision);
            prop_assert_eq!(&charged.marks, &expected.marks);
            prop_assert_eq!(format!("{own:?}"), format!("{other_budget:?}"));
            prop_assert!(!was_fast || charged.decision.remaining > 0);
        }
    }
}

#[test]
fn a_plain_hit_on_a_known_key_takes_the_fast_path() {
    let policy = Policy::parse("api", "100/s").unwrap();
    let group = &policy.groups()[0];
    let params = |cost, mode| HitParams {
        cost,
        slot: 0,
        overdraft: Overdraft::Allowed,
        mode,
    };
    let mut budget = Budget::default();
    let mut is_fast = |cost, mode, now| {
        let now = Timestamp::from_micros(START + now);
        fast(&mut budget, group, params(cost, mode), now).1
    };

    assert!(!is_fast(1, HitMode::Charge, 0), "a new key");
    assert!(is_fast(1, HitMode::Charge, 0));
    assert!(is_fast(5, HitMode::Charge, 1_000));
    assert!(!is_fast(0, HitMode::Charge, 1_000), "a peek");
    assert!(!is_fast(1, HitMode::DryRun, 1_000), "a dry run");
    assert!(!is_fast(1, HitMode::Charge, 999), "the clock went back");
    assert!(
        !is_fast(94, HitMode::Charge, 1_000),
        "nothing would be left"
    );
    assert!(!is_fast(1, HitMode::Charge, 3_600_000_000), "it expired");
}
