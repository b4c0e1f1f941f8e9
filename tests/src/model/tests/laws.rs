//! The laws of the design, over limits that change and a clock that steps back.

use crate::{
    model::{Answer, Model, ModelDecision, ModelHit, Spec},
    random::Random,
    traces::{Aim, Step, Trace, TracedHit},
};

/// What a policy can have and what can follow a hit, for one limit at a time.
const ONE_OF_EVERYTHING: Aim = Aim {
    limits: (1, 1),
    ..Aim::EVERYTHING
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
        law_2(hit, decision);
        law_3(after, hit, decision);
        law_4(decision);
    });
}

#[test]
fn retry_after_is_exact_for_everything() {
    traces_of(2_000, Aim::EVERYTHING, &|before, after, hit, decision| {
        law_1(before, after, hit, decision);
        law_2(hit, decision);
        law_3(after, hit, decision);
        law_4(decision);
    });
}

/// While versions or tiers of a policy alternate, each limit counts what it would count alone.
#[test]
fn a_limit_admits_no_more_while_policies_alternate() {
    let aim = Aim {
        limits: (2, 4),
        changes: false,
        steps_back: false,
        ..Aim::ANYTHING
    };
    let (mut admitted, mut denied) = (0_u64, 0_u64);
    for seed in 0..4_000 {
        let (mut trace, mut random) = (Trace::new(seed, aim), Random::new(seed));
        let mut model = Model::new();
        let mut alone = vec![Model::new(); 4];
        for _ in 0..60 {
            let whole = trace.next_hit();
            if random.one_in(20) {
                model.reset(whole.now_us);
                for limit in &mut alone {
                    limit.reset(whole.now_us);
                }
            }
            let counts: Vec<usize> = (1..=whole.limits.len()).collect();
            let mut hit = whole.clone();
            hit.limits.truncate(random.one_of(&counts));
            let decision = model.hit_with(&hit.limits, hit.now_us, hit.asked());
            let is_allowed = decision.overall.answer.is_allowed();
            admitted += u64::from(is_allowed);
            denied += u64::from(!is_allowed);
            for (position, spec) in hit.limits.iter().enumerate() {
                let (limit, spec) = (&mut alone[position], std::slice::from_ref(spec));
                let cost = if is_allowed { hit.cost } else { 0 };
                let own = limit.hit(spec, hit.now_us, cost).overall;
                assert!(own.answer.is_allowed(), "seed {seed}: {hit:?} {position}");
                let remaining = decision.limits[position].remaining;
                let exactly = !counts_denied(&spec[0]);
                assert!(
                    remaining <= own.remaining && (remaining == own.remaining || !exactly),
                    "seed {seed}: {remaining} of {own:?} left at {position} of {hit:?}"
                );
            }
            trace.learn(decision);
        }
    }
    assert!(denied > 10_000, "{admitted} {denied}");
}

#[test]
fn no_step_back_refills() {
    let hard = Aim {
        limits: (1, 1),
        ..Aim::ANYTHING
    };
    for aim in [hard, ONE_OF_EVERYTHING] {
        traces_of(1_000, aim, &|_, after, hit, _| {
            let look = |now_us| left(after, hit, now_us);
            let period_us = hit.limits[0].period_us();
            for back_us in [1, period_us / 2, period_us, period_us + 1, 3 * period_us] {
                let earlier = look(hit.now_us.saturating_sub(back_us));
                let mut pairs = earlier.iter().zip(look(hit.now_us));
                assert!(pairs.all(|(earlier, now)| *earlier <= now), "{hit:?}");
            }
        });
    }
}

#[test]
fn no_step_back_adds_more_than_a_period_to_a_wait() {
    let changing = Aim {
        limits: (1, 1),
        ..Aim::ANYTHING
    };
    // A penalty box goes by its refusal, and a slot by the longest lease among those held.
    let unchanged = Aim {
        changes: false,
        boxes: false,
        ..ONE_OF_EVERYTHING
    };
    for aim in [changing, unchanged] {
        traces_of(1_000, aim, &|_, after, hit, decision| {
            adds_no_more_than_a_period(after, hit, decision);
        });
    }
}

fn adds_no_more_than_a_period(after: &Model, hit: &TracedHit, decision: &ModelDecision) {
    if decision.marks.is_empty() {
        return;
    }
    let spec = hit.limits[0];
    let asked = ModelHit {
        slot: u64::MAX,
        ..hit.asked()
    };
    let wait = |now_us| {
        let retry = after.clone().hit_with(&hit.limits, now_us, asked);
        wait_us(&retry.overall.answer)
    };
    // Within a coarse tick the real time may be up to one grain ahead.
    let grain_us = spec.throttled_grain_us(hit.percent).unwrap_or(1);
    let most_us = wait(hit.now_us) + spec.period_us() + grain_us;
    for periods in [1, 2, 3, 5, 100] {
        let back_us = periods * spec.period_us() / 2;
        assert!(
            wait(hit.now_us.saturating_sub(back_us)) <= most_us,
            "{hit:?}"
        );
    }
}

type Law<'a> = &'a dyn Fn(&Model, &Model, &TracedHit, &ModelDecision);

/// Runs random traces of hard limits.
fn traces(count: u64, most_limits: u64, law: Law<'_>) {
    let aim = Aim {
        limits: (1, most_limits),
        ..Aim::ANYTHING
    };
    traces_of(count, aim, law);
}

/// Runs random traces, and shows the law the value before and after each hit.
fn traces_of(count: u64, aim: Aim, law: Law<'_>) {
    for seed in 0..count {
        let mut trace = Trace::new(seed, aim);
        let mut model = Model::new();
        for _ in 0..50 {
            match trace.next_step() {
                Step::Hit(hit) => {
                    let before = model.clone();
                    let decision = model.hit_with(&hit.limits, hit.now_us, hit.asked());
                    law(&before, &model, &hit, &decision);
                    trace.learn(decision);
                }
                Step::Settle(settle) => {
                    model.settle(&settle.receipt, settle.now_us, settle.change);
                }
                Step::Reset { now_us } => model.reset(now_us),
            }
        }
    }
}

/// A denied hit spends nothing, and a look writes nothing.
fn law_1(before: &Model, after: &Model, hit: &TracedHit, decision: &ModelDecision) {
    assert!(decision.wrote || before == after, "{hit:?}");
    assert!(!(decision.wrote && hit.cost == 0), "{hit:?}");
    let allowed = decision.overall.answer.is_allowed();
    assert!(!allowed || decision.wrote == (hit.cost > 0), "{hit:?}");
    assert_eq!(decision.marks.is_empty(), !allowed || hit.cost == 0);
    if !allowed {
        let pairs = left(before, hit, hit.now_us)
            .into_iter()
            .zip(left(after, hit, hit.now_us));
        for ((before, after), spec) in pairs.zip(&hit.limits) {
            assert!(before == after || counts_denied(spec), "{hit:?}");
        }
    }
}

/// What remains of each limit.
fn left(model: &Model, hit: &TracedHit, now_us: u64) -> Vec<u64> {
    let look = ModelHit {
        cost: 0,
        ..hit.asked()
    };
    let numbers = model.clone().hit_with(&hit.limits, now_us, look).limits;
    numbers.iter().map(|limit| limit.remaining).collect()
}

/// One limit speaks, and the delay is the longest.
fn law_2(hit: &TracedHit, decision: &ModelDecision) {
    let binding = decision.limits[decision.binding];
    let answers = || decision.limits.iter().map(|limit| limit.answer);
    match decision.overall.answer {
        Answer::Allowed { .. } => {
            assert!(!is_box(&hit.limits[decision.binding]), "{hit:?}");
            for (spec, limit) in hit.limits.iter().zip(&decision.limits) {
                assert!(is_box(spec) || limit.remaining >= binding.remaining);
            }
            assert_eq!(
                answers().max_by_key(delay_us),
                Some(decision.overall.answer)
            );
        }
        Answer::Denied { .. } => {
            assert!(!answers().any(|answer| answer == Answer::Impossible));
            assert_eq!(
                answers().map(|answer| wait_us(&answer)).max(),
                Some(wait_us(&binding.answer))
            );
        }
        Answer::Impossible => assert_eq!(binding.answer, Answer::Impossible),
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
            .hit_with(&hit.limits, hit.now_us + wait_us, hit.asked());
        retry.overall.answer.is_allowed()
    };
    assert!(retry_after_us > 0, "{hit:?} {decision:?}");
    let searched = (0..retry_after_us.min(60)).chain([retry_after_us / 2, retry_after_us - 1]);
    for earlier in searched {
        assert!(!passes(earlier), "{earlier} {hit:?} {decision:?} {after:?}");
    }
    if holds_without_room(after, hit) {
        return;
    }
    assert!(passes(retry_after_us), "{hit:?} {decision:?} {after:?}");
}

/// Whether the hit passes a concurrency limit only as long as the lease that it holds.
fn holds_without_room(model: &Model, hit: &TracedHit) -> bool {
    let answers = |slot| {
        let asked = ModelHit {
            slot,
            ..hit.asked()
        };
        let decision = model.clone().hit_with(&hit.limits, hit.now_us, asked);
        decision.limits.into_iter().map(|limit| limit.answer)
    };
    let stranger = answers(u64::MAX);
    let mut places = hit.limits.iter().zip(answers(hit.slot).zip(stranger));
    places.any(|(spec, (holder, stranger))| {
        matches!(spec, Spec::Concurrency { .. }) && holder.is_allowed() && !stranger.is_allowed()
    })
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
    let log_counts = matches!(
        spec,
        Spec::SlidingWindowLog {
            count_denied: true,
            ..
        }
    );
    log_counts || is_box(spec)
}

fn is_box(spec: &Spec) -> bool {
    matches!(spec, Spec::PenaltyBox { .. })
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
