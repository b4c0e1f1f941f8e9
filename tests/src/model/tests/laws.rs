//! The laws of the design, over limits that change and a clock that steps back.

use crate::{
    model::{Answer, Model, ModelDecision, Spec},
    traces::{Aim, Trace, TracedHit},
};

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

type Law<'a> = &'a dyn Fn(&Model, &Model, &TracedHit, &ModelDecision);

/// Runs random traces, and shows the law the value before and after each hit.
fn traces(count: u64, most_limits: u64, law: Law<'_>) {
    let aim = Aim {
        limits: (1, most_limits),
        ..Aim::ANYTHING
    };
    for seed in 0..count {
        let mut trace = Trace::new(seed, aim);
        let mut model = Model::new();
        for _ in 0..50 {
            let hit = trace.next_hit();
            let before = model.clone();
            let decision = model.hit(&hit.limits, hit.now_us, hit.cost);
            law(&before, &model, &hit, &decision);
            trace.learn(decision);
        }
    }
}

/// A denied hit spends nothing, and a look writes nothing.
fn law_1(before: &Model, after: &Model, hit: &TracedHit, decision: &ModelDecision) {
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
fn law_3(after: &Model, hit: &TracedHit, decision: &ModelDecision) {
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
