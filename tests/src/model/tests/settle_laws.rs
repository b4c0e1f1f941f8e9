//! What settling may never do, and what slots and penalty boxes always do.

use std::collections::HashMap;

use crate::{
    model::{
        Answer, Change, Model, ModelDecision, ModelHit, ModelMark, ModelReceipt, Numbers, Spec,
    },
    random::Random,
    traces::{Aim, Step, Trace, TracedHit},
};

const REFUND: Change = Change::Settle { actual: 0 };
const STEADY: Aim = Aim {
    changes: false,
    steps_back: false,
    settles: false,
    resets: false,
    limits: (1, 3),
    ..Aim::EVERYTHING
};

/// The hits of a trace, each with a slot of its own, and what was decided.
fn run(seed: u64, aim: Aim, count: u64) -> Vec<(TracedHit, ModelDecision)> {
    let mut trace = Trace::new(seed, aim);
    let mut model = Model::new();
    (0..count)
        .map(|slot| {
            let hit = TracedHit {
                slot,
                ..trace.next_hit()
            };
            let decision = model.hit_with(&hit.limits, hit.now_us, hit.asked());
            trace.learn(decision.clone());
            (hit, decision)
        })
        .collect()
}

fn receipt(hit: &TracedHit, decision: &ModelDecision) -> ModelReceipt {
    ModelReceipt {
        limits: hit.limits.clone(),
        percent: hit.percent,
        now_us: hit.now_us,
        cost: hit.cost,
        marks: decision.marks.clone(),
        slot: hit.slot,
    }
}

fn look(model: &Model, hit: &TracedHit, now_us: u64) -> Vec<Numbers> {
    let look = ModelHit {
        cost: 0,
        ..hit.asked()
    };
    model.clone().hit_with(&hit.limits, now_us, look).limits
}

fn counts_denied(hit: &TracedHit) -> bool {
    hit.limits.iter().any(|spec| {
        matches!(
            spec,
            Spec::SlidingWindowLog {
                count_denied: true,
                ..
            }
        )
    })
}

#[test]
fn a_refund_at_once_restores_the_answers_of_before() {
    let mut compared = 0;
    for seed in 0..2_000 {
        let steps_back = seed % 2 == 0;
        let aim = Aim {
            steps_back,
            ..STEADY
        };
        let mut model = Model::new();
        for (hit, decision) in run(seed, aim, 30) {
            let before = model.clone();
            model.hit_with(&hit.limits, hit.now_us, hit.asked());
            if decision.marks.is_empty() || decision.marks.iter().any(|mark| mark.debt == 0) {
                continue;
            }

            let mut refunded = model.clone();
            refunded.settle(&receipt(&hit, &decision), hit.now_us, REFUND);

            let period_us = hit.limits[0].period_us();
            let later = [0, 1, period_us / 2, period_us, 2 * period_us - 1];
            // A clock that stepped back is still to catch up with what was not charged.
            for wait_us in if steps_back { &later[..1] } else { &later[..] } {
                let now_us = hit.now_us + wait_us;
                let (before, after) = (look(&before, &hit, now_us), look(&refunded, &hit, now_us));
                assert_eq!(before, after, "{hit:?} after {wait_us}");
            }
            compared += 1;
        }
    }
    assert!(compared > 10_000, "{compared}");
}

/// The same past in two worlds: one hit is made in only one of them.
#[derive(Default)]
struct World {
    model: Model,
    /// The receipts of hits that passed, by their place in the trace.
    receipts: HashMap<usize, ModelReceipt>,
}

impl World {
    fn hit(&mut self, place: usize, hit: &TracedHit) -> bool {
        let decision = self.model.hit_with(&hit.limits, hit.now_us, hit.asked());
        if !decision.marks.is_empty() {
            self.receipts.insert(place, receipt(hit, &decision));
        }
        decision.overall.answer.is_allowed()
    }

    fn settle(&mut self, place: usize, now_us: u64, actual: u64) {
        if let Some(receipt) = self.receipts.remove(&place) {
            let change = Change::Settle {
                actual: actual.min(receipt.cost),
            };
            self.model.settle(&receipt, now_us, change);
        }
    }
}

#[test]
fn a_refund_leaves_no_more_than_if_the_hit_had_never_been_made() {
    let mut compared = 0;
    for seed in 0..6_000 {
        let mut random = Random::new(seed);
        // Only buckets remember what was refunded.
        let aim = if seed % 2 == 0 {
            STEADY
        } else {
            STEADY.only(0)
        };
        let hits = run(seed, aim, 20);
        let skipped = random.one_of(&[0, 1, 2, 5, 10]);
        let spent = &hits[skipped].0;
        // A log that counts denials cannot tell them from a hit of the same tick.
        if counts_denied(spent) {
            continue;
        }
        let (mut with, mut without) = (World::default(), World::default());
        for (place, (hit, _)) in hits.iter().enumerate() {
            // Earlier hits give back what they have charged, and sometimes all is forgotten. Later ones do not:
            // how cautious their refunds are depends on the hit that is skipped.
            for other in 0..skipped.min(place) {
                let actual = random.one_of(&[0, 0, 1]);
                if random.one_in(6) {
                    with.settle(other, hit.now_us, actual);
                    without.settle(other, hit.now_us, actual);
                }
            }
            if random.one_in(30) {
                with.model.reset(hit.now_us);
                without.model.reset(hit.now_us);
            }
            let is_allowed = with.hit(place, hit);
            if place == skipped {
                continue;
            }
            if without.hit(place, hit) != is_allowed {
                break;
            }
            let Some(receipt) = with.receipts.get(&skipped) else {
                continue;
            };
            let mut refunded = with.model.clone();
            let actual = random.one_of(&[0, 0, spent.cost / 2]);
            refunded.settle(receipt, hit.now_us, Change::Settle { actual });
            let pairs = look(&refunded, hit, hit.now_us).into_iter().zip(look(
                &without.model,
                hit,
                hit.now_us,
            ));
            for (refunded, without) in pairs {
                assert!(
                    refunded.remaining <= without.remaining,
                    "seed {seed}: {spent:?} {hit:?}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 5_000, "{compared}");
}

#[test]
fn a_refund_of_what_time_has_forgiven_credits_nothing() {
    let mut compared = 0;
    for seed in 0..2_000 {
        let hits = run(seed, STEADY, 20);
        let mut model = Model::new();
        for (place, (hit, _)) in hits.iter().enumerate() {
            model.hit_with(&hit.limits, hit.now_us, hit.asked());
            for (spent, decision) in &hits[..place] {
                if decision.marks.is_empty() || !is_forgiven(spent, decision, hit.now_us) {
                    continue;
                }
                let before = look(&model, hit, hit.now_us);
                let mut refunded = model.clone();
                refunded.settle(&receipt(spent, decision), hit.now_us, REFUND);
                assert_eq!(
                    look(&refunded, hit, hit.now_us),
                    before,
                    "{spent:?} {hit:?}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 5_000, "{compared}");
}

/// Whether no limit holds anything of a hit any more.
fn is_forgiven(spent: &TracedHit, decision: &ModelDecision, now_us: u64) -> bool {
    let forgiven = |(spec, mark): (&Spec, &ModelMark)| {
        let period_us = spec.period_us();
        let grain_us = spec.throttled_grain_us(spent.percent).unwrap_or(1);
        let windows = now_us / period_us - spent.now_us / period_us;
        let ticks = now_us / grain_us - spent.now_us / grain_us;
        match *spec {
            Spec::TokenBucket { refill, .. } | Spec::LeakyBucket { refill, .. } => {
                ticks >= mark.debt.div_ceil(refill)
            }
            Spec::FixedWindow { .. } => windows >= 1,
            Spec::SlidingWindowCounter { .. } => windows >= 2,
            Spec::SlidingWindowLog { .. } | Spec::Concurrency { .. } => {
                ticks >= period_us / grain_us
            }
            Spec::PenaltyBox { .. } => true,
        }
    };
    spent.limits.iter().zip(&decision.marks).all(forgiven)
}

#[test]
fn settling_keeps_what_remains_within_the_limit() {
    let mut settled = 0;
    for seed in 0..3_000 {
        let mut trace = Trace::new(seed, Aim::EVERYTHING);
        let mut model = Model::new();
        let mut last: Option<TracedHit> = None;
        for _ in 0..50 {
            match trace.next_step() {
                Step::Hit(hit) => {
                    trace.learn(model.hit_with(&hit.limits, hit.now_us, hit.asked()));
                    last = Some(hit);
                }
                Step::Reset { now_us } => model.reset(now_us),
                Step::Settle(settle) => {
                    let before = model.clone();
                    let done = model.settle(&settle.receipt, settle.now_us, settle.change);
                    assert!(done.wrote || model == before, "{settle:?}");
                    let hit = last.as_ref().expect("a receipt is of an earlier hit");
                    for limit in look(&model, hit, settle.now_us) {
                        assert!(limit.remaining <= limit.limit, "{settle:?} {limit:?}");
                        let whole = limit.remaining == limit.limit;
                        assert!(whole || limit.reset_after_us > 0, "{settle:?} {limit:?}");
                    }
                    settled += u64::from(done.wrote);
                }
            }
        }
    }
    assert!(settled > 5_000, "{settled}");
}

#[test]
fn no_more_slots_are_live_than_the_ceiling() {
    let aim = Aim {
        settles: true,
        boxes: false,
        ..STEADY
    }
    .only(5);
    let mut full = 0;
    for seed in 0..2_000 {
        let mut trace = Trace::new(seed, aim);
        let mut model = Model::new();
        let mut ends: HashMap<u64, u64> = HashMap::new();
        for _ in 0..50 {
            match trace.next_step() {
                Step::Hit(hit) => {
                    let decision = model.hit_with(&hit.limits, hit.now_us, hit.asked());
                    let (spec, percent) = (hit.limits[0], hit.percent);
                    ends.retain(|_, end| *end > hit.now_us);
                    if !decision.marks.is_empty() {
                        ends.insert(hit.slot, hit.now_us + spec.period_us());
                    }
                    let live = ends.len() as u64;
                    assert!(u128::from(live) <= spec.ceiling(percent), "{hit:?}");
                    let remaining = spec.limit().saturating_sub(live);
                    assert_eq!(decision.overall.remaining, remaining, "{hit:?}");
                    full += u64::from(remaining == 0);
                    trace.learn(decision);
                }
                Step::Reset { now_us } => {
                    model.reset(now_us);
                    ends.clear();
                }
                Step::Settle(settle) => {
                    let (receipt, now_us) = (settle.receipt, settle.now_us);
                    let done = model.settle(&receipt, now_us, settle.change);
                    ends.retain(|_, end| *end > now_us);
                    match settle.change {
                        REFUND | Change::Release => {
                            ends.remove(&receipt.slot);
                        }
                        Change::Renew => {
                            assert_eq!(done.held, ends.contains_key(&receipt.slot));
                            let lease_us = receipt.limits[0].period_us();
                            ends.entry(receipt.slot).and_modify(|end| {
                                *end = (*end).max(now_us + lease_us);
                            });
                        }
                        Change::Settle { .. } => assert!(!done.wrote),
                    }
                }
            }
        }
    }
    assert!(full > 5_000, "{full}");
}

#[test]
fn exactly_the_configured_denials_within_the_period_start_a_block() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let (denials, growing) = (random.range(1, 6), random.one_in(2));
        let period_us = 1_000 * random.range(2, 100_000);
        let refusal_us = 1_000 * random.range(1, 100_000);
        let limits = [
            Spec::Concurrency {
                limit: 1,
                lease_us: 86_400_000_000,
            },
            Spec::PenaltyBox {
                denials,
                period_us,
                refusal_us,
                growing,
            },
        ];
        let mut model = Model::new();
        let mut now_us = random.range(0, 1 << 50);
        let held = model.hit_with(&limits, now_us, by(1));
        assert!(held.overall.answer.is_allowed());

        let mut refused_us = refusal_us;
        for _ in 0..4 {
            let first_tick = now_us / 1_000;
            for denial in 1..=denials {
                let answer = model.hit_with(&limits, now_us, by(2)).limits[1].answer;
                if denial < denials {
                    assert!(answer.is_allowed(), "{denial} of {limits:?}");
                    // The last microsecond in which the first denial counts.
                    let last_us = (first_tick + period_us / 1_000) * 1_000 - 1;
                    now_us = random.one_of(&[now_us, last_us]);
                } else {
                    let end_us = (now_us / 1_000) * 1_000 + refused_us;
                    let retry_after_us = end_us - now_us;
                    assert_eq!(answer, Answer::Denied { retry_after_us }, "{limits:?}");
                    assert_eq!(passes_box(&model, &limits, end_us - 1), (false, false));
                    assert_eq!(passes_box(&model, &limits, end_us), (true, false));
                    now_us = end_us;
                }
            }
            if growing {
                refused_us *= 2;
            }
        }
        // A count that is over begins anew.
        let over_us = now_us + period_us;
        model.hit_with(&limits, now_us, by(2));
        let numbers = look_at_box(&model, &limits, over_us);
        assert!(denials == 1 || numbers.remaining == denials, "{limits:?}");
    }
}

fn by(slot: u64) -> ModelHit {
    ModelHit {
        slot,
        ..ModelHit::hard(1)
    }
}

/// Whether the holder of the slot passes, and whether that is noted in the box.
fn passes_box(model: &Model, limits: &[Spec], now_us: u64) -> (bool, bool) {
    let decision = model.clone().hit_with(limits, now_us, by(1));
    let counted = decision.limits[1].remaining != limits[1].limit();
    let passes = decision.overall.answer.is_allowed();
    (passes, passes && counted)
}

fn look_at_box(model: &Model, limits: &[Spec], now_us: u64) -> Numbers {
    model.clone().hit(limits, now_us, 0).limits[1]
}
