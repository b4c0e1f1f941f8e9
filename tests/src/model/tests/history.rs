//! The model against a list of everything that ever passed, which never expires.

use crate::{
    model::{Answer, Model, Spec},
    random::Random,
    traces::{Aim, Trace},
};

/// What passed: the tick and the cost.
type History = [(u128, u128)];

#[test]
fn the_model_agrees_with_all_that_ever_passed() {
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let spec = Trace::new(seed, Aim::at(random.one_of(&[0, 1, 2, 3, 4])))
            .next_hit()
            .limits[0];
        if !matches!(
            spec,
            Spec::SlidingWindowLog {
                count_denied: true,
                ..
            }
        ) {
            replay(spec, &mut random);
        }
    }
}

fn replay(spec: Spec, random: &mut Random) {
    let grain = spec
        .grain_us()
        .expect("the generator makes limits that the design accepts");
    let limit = u128::from(spec.limit());
    let mut now_us = random.range(0, 1 << 50);
    let mut history = Vec::new();
    let mut model = Model::new();

    for _ in 0..60 {
        now_us += match random.range(1, 8) {
            1..4 => 0,
            4..8 => random.range(0, spec.period_us() / 2 + 1),
            _ => random.range(0, spec.period_us() * 4),
        };
        let most = if random.one_in(2) {
            spec.limit()
        } else {
            spec.limit() / 2
        };
        let cost = random.range(0, most);
        let tick = u128::from(now_us / grain);
        let (spent, fits) = count(spec, &history, tick, cost.into());

        let decision = model.hit(&[spec], now_us, cost);

        let allowed = matches!(decision.overall.answer, Answer::Allowed { .. });
        let charged = if fits { u128::from(cost) } else { 0 };
        assert_eq!(allowed, fits, "{spec:?} at {now_us}");
        assert_eq!(
            u128::from(decision.overall.remaining),
            limit - spent - charged,
            "{spec:?}"
        );
        assert_eq!(
            decision.overall.reset_after_us == 0,
            spent + charged == 0,
            "{spec:?}"
        );
        if charged > 0 {
            history.push((tick, charged));
        }
    }
}

/// What a history leaves spent, in whole units rounded up, and whether a cost fits on top.
fn count(spec: Spec, history: &History, now: u128, cost: u128) -> (u128, bool) {
    let grain = spec
        .grain_us()
        .expect("the generator makes limits that the design accepts");
    let (limit, period) = (
        u128::from(spec.limit()),
        u128::from(spec.period_us() / grain),
    );
    let spent_while = |counts: &dyn Fn(u128) -> bool| -> u128 {
        history
            .iter()
            .filter(|(tick, _)| counts(*tick))
            .map(|(_, cost)| cost)
            .sum()
    };
    // Everything below is in parts, of which a unit has as many as the period has ticks.
    let parts = match spec {
        Spec::TokenBucket { refill, .. } | Spec::LeakyBucket { refill, .. } => {
            arrival_curve(history, now, period, refill.into())
        }
        Spec::FixedWindow { .. } => spent_while(&|tick| tick / period == now / period) * period,
        Spec::SlidingWindowLog { .. } => spent_while(&|tick| tick + period > now) * period,
        Spec::SlidingWindowCounter { .. } => {
            let cur = spent_while(&|tick| tick / period == now / period);
            let prev = spent_while(&|tick| tick / period + 1 == now / period);
            cur * period + prev * (period - now % period)
        }
        Spec::Concurrency { .. } | Spec::PenaltyBox { .. } => {
            unreachable!("the generator makes limits that spend what is asked")
        }
    };
    (
        parts.div_ceil(period),
        parts + cost * period <= limit * period,
    )
}

/// A bucket holds what passed since some hit, less the refill since then, at its worst.
fn arrival_curve(history: &History, now: u128, period: u128, refill: u128) -> u128 {
    let mut passed = 0;
    let since = |&(tick, cost): &(u128, u128)| {
        passed += cost * period;
        passed.saturating_sub((now - tick) * refill)
    };
    history.iter().rev().map(since).max().unwrap_or(0)
}
