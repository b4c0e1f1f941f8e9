//! The laws of the design, over limits that change and a clock that steps back.

use std::mem;

use super::random::Random;
use crate::model::{Answer, Model, ModelDecision, Spec};

#[test]
fn retry_after_is_exact_for_one_limit() {
    traces(1_000, 1, &|before, after, hit, decision| {
        law_1(before, after, hit, decision);
        law_3(after, hit, decision);
        law_4(decision);
    });
}

#[test]
fn retry_after_is_exact_for_policies() {
    traces(1_000, 3, &|before, after, hit, decision| {
        law_1(before, after, hit, decision);
        law_2(decision);
        law_3(after, hit, decision);
        law_4(decision);
    });
}

#[test]
fn no_step_back_refills() {
    traces(1_000, 1, &|_, after, hit, _| {
        let look = |now_us| after.clone().hit(&hit.limits, now_us, 0).overall.remaining;
        let period_us = hit.limits[0].period_us();
        for back_us in [1, period_us / 2, period_us, period_us + 1, 3 * period_us] {
            assert!(
                look(hit.now_us.saturating_sub(back_us)) <= look(hit.now_us),
                "{hit:?}"
            );
        }
    });
}

#[test]
fn no_step_back_adds_more_than_a_period_to_a_wait() {
    traces(1_000, 1, &|_, after, hit, decision| {
        let (spec, charged) = (hit.limits[0], decision.wrote && hit.cost > 0);
        if !charged || !matches!(decision.overall.answer, Answer::Allowed { .. }) {
            return;
        }
        let wait = |now_us| {
            let answer = after
                .clone()
                .hit(&hit.limits, now_us, hit.cost)
                .overall
                .answer;
            wait_us(&answer)
        };
        // Within a coarse tick the real time may be up to one grain ahead.
        let most_us = wait(hit.now_us) + spec.period_us() + spec.grain_us().unwrap_or(1);
        for periods in [1, 2, 3, 5, 100] {
            let back_us = periods * spec.period_us() / 2;
            assert!(
                wait(hit.now_us.saturating_sub(back_us)) <= most_us,
                "{hit:?}"
            );
        }
    });
}

#[derive(Debug)]
struct Hit {
    limits: Vec<Spec>,
    now_us: u64,
    cost: u64,
}

type Law<'a> = &'a dyn Fn(&Model, &Model, &Hit, &ModelDecision);

/// Runs random traces, and shows the law the value before and after each hit.
fn traces(count: u64, most_limits: u64, law: Law<'_>) {
    for seed in 0..count {
        let mut random = Random::new(seed);
        let scale_us = match seed % 5 {
            0 => 1,
            1 => 250,
            2 => 1_000,
            3 => 333_000,
            _ => 86_400_000_000,
        };
        let coarse = seed % 7 == 0;
        let mut now_us = random.range(0, 1 << 52);
        let mut limits = policy(&mut random, most_limits, scale_us, coarse);
        let mut model = Model::new();

        for _ in 0..50 {
            match random.range(1, 12) {
                1 => limits = policy(&mut random, most_limits, scale_us, coarse),
                2 => {
                    let changed = random.range(0, limits.len() as u64 - 1);
                    let changed = usize::try_from(changed).expect("a position");
                    limits[changed] = other_numbers(&mut random, limits[changed], scale_us, coarse);
                }
                _ => {}
            }
            now_us = step(&mut random, now_us, limits[0].period_us());
            let most = limits.iter().map(Spec::limit).min().unwrap_or(1);
            let beyond = u64::from(random.one_in(4));
            let cost = random.range(0, most + beyond);
            let hit = Hit {
                limits: limits.clone(),
                now_us,
                cost,
            };
            let before = model.clone();
            let decision = model.hit(&limits, now_us, cost);
            law(&before, &model, &hit, &decision);
        }
    }
}

fn policy(random: &mut Random, most: u64, scale_us: u64, coarse: bool) -> Vec<Spec> {
    (0..random.range(1, most))
        .map(|_| limit(random, scale_us, coarse))
        .collect()
}

fn limit(random: &mut Random, scale_us: u64, coarse: bool) -> Spec {
    if coarse && random.one_in(2) {
        random.coarse()
    } else {
        random.small(scale_us)
    }
}

/// The same algorithm with other numbers.
fn other_numbers(random: &mut Random, spec: Spec, scale_us: u64, coarse: bool) -> Spec {
    loop {
        let other = limit(random, scale_us, coarse);
        if mem::discriminant(&other) == mem::discriminant(&spec) {
            return other;
        }
    }
}

fn step(random: &mut Random, now_us: u64, period_us: u64) -> u64 {
    match random.range(1, 12) {
        1..5 => now_us,
        5..9 => now_us + random.range(0, period_us / 2 + 1),
        9 => now_us + random.range(0, 3 * period_us),
        10 => now_us.saturating_sub(random.range(0, period_us)),
        11 => now_us.saturating_sub(random.range(0, 4 * period_us)),
        _ => now_us + 1,
    }
}

/// A denied hit spends nothing, and a look writes nothing.
fn law_1(before: &Model, after: &Model, hit: &Hit, decision: &ModelDecision) {
    assert!(decision.wrote || before == after, "{hit:?}");
    assert!(!(decision.wrote && hit.cost == 0), "{hit:?}");
    let allowed = matches!(decision.overall.answer, Answer::Allowed { .. });
    assert!(!allowed || decision.wrote == (hit.cost > 0), "{hit:?}");
    if !allowed && !hit.limits.iter().any(counts_denied) {
        let look = |model: &Model| model.clone().hit(&hit.limits, hit.now_us, 0).limits;
        let left = |model| {
            look(model)
                .iter()
                .map(|limit| limit.remaining)
                .collect::<Vec<_>>()
        };
        assert_eq!(left(before), left(after), "{hit:?}");
    }
}

/// One limit speaks, and the delay is the longest.
fn law_2(decision: &ModelDecision) {
    let speaker = decision.limits[decision.speaker];
    let answers = || decision.limits.iter().map(|limit| limit.answer);
    match decision.overall.answer {
        Answer::Allowed { .. } => {
            assert!(
                decision
                    .limits
                    .iter()
                    .all(|limit| limit.remaining >= speaker.remaining)
            );
            assert_eq!(
                answers().max_by_key(delay_us),
                Some(decision.overall.answer)
            );
        }
        Answer::Denied { .. } => {
            assert!(!answers().any(|answer| answer == Answer::Impossible));
            assert_eq!(
                answers().map(|answer| wait_us(&answer)).max(),
                Some(wait_us(&speaker.answer))
            );
        }
        Answer::Impossible => assert_eq!(speaker.answer, Answer::Impossible),
    }
}

/// The same hit passes after exactly `retry_after`, and not one microsecond earlier.
fn law_3(after: &Model, hit: &Hit, decision: &ModelDecision) {
    let Answer::Denied { retry_after_us } = decision.overall.answer else {
        return;
    };
    let passes = |wait_us: u64| {
        let retry = after
            .clone()
            .hit(&hit.limits, hit.now_us + wait_us, hit.cost);
        matches!(retry.overall.answer, Answer::Allowed { .. })
    };
    assert!(retry_after_us > 0, "{hit:?} {decision:?}");
    let searched = (0..retry_after_us.min(60)).chain([retry_after_us / 2, retry_after_us - 1]);
    for earlier in searched {
        assert!(!passes(earlier), "{earlier} {hit:?} {decision:?}");
    }
    assert!(passes(retry_after_us), "{hit:?} {decision:?} {after:?}");
}

/// What remains is never more than the limit.
fn law_4(decision: &ModelDecision) {
    for limit in &decision.limits {
        assert!(limit.remaining <= limit.limit, "{limit:?}");
        assert!(
            limit.remaining == limit.limit || limit.reset_after_us > 0,
            "{limit:?}"
        );
    }
}

fn counts_denied(spec: &Spec) -> bool {
    matches!(
        spec,
        Spec::SlidingWindowLog {
            count_denied: true,
            ..
        }
    )
}

fn delay_us(answer: &Answer) -> u64 {
    match *answer {
        Answer::Allowed { delay_us } => delay_us,
        _ => 0,
    }
}

fn wait_us(answer: &Answer) -> u64 {
    match *answer {
        Answer::Denied { retry_after_us } => retry_after_us,
        _ => 0,
    }
}
