//! Examples of throttle modes, slots, penalty boxes and settling that were worked out by hand.

use crate::model::{Answer, Change, Model, ModelDecision, ModelHit, ModelReceipt, Settled, Spec};

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const ALLOWED: Answer = Answer::Allowed { delay_us: 0 };
const REFUND: Change = Change::Settle { actual: 0 };

fn denied(seconds: u64) -> Answer {
    Answer::Denied {
        retry_after_us: seconds * SECOND,
    }
}

fn window(limit: u64) -> Spec {
    Spec::FixedWindow {
        limit,
        period_us: MINUTE,
    }
}

fn bucket(capacity: u64) -> Spec {
    Spec::TokenBucket {
        capacity,
        refill: 1,
        period_us: SECOND,
    }
}

fn log(limit: u64) -> Spec {
    Spec::SlidingWindowLog {
        limit,
        period_us: MINUTE,
        count_denied: false,
    }
}

fn counter(limit: u64) -> Spec {
    Spec::SlidingWindowCounter {
        limit,
        period_us: MINUTE,
    }
}

fn slots(limit: u64, lease_seconds: u64) -> Spec {
    Spec::Concurrency {
        limit,
        lease_us: lease_seconds * SECOND,
    }
}

fn penalty_box(denials: u64, growing: bool) -> Spec {
    Spec::PenaltyBox {
        denials,
        period_us: 10 * SECOND,
        refusal_us: 30 * SECOND,
        growing,
    }
}

fn elastic(cost: u64, room: bool) -> ModelHit {
    ModelHit {
        percent: 50,
        room,
        ..ModelHit::hard(cost)
    }
}

fn by(slot: u64) -> ModelHit {
    ModelHit {
        slot,
        ..ModelHit::hard(1)
    }
}

fn heard(decision: &ModelDecision) -> (Answer, u64, bool) {
    let overall = decision.overall;
    (overall.answer, overall.remaining, decision.over)
}

fn receipt(
    limits: &[Spec],
    now_us: u64,
    asked: ModelHit,
    decision: &ModelDecision,
) -> ModelReceipt {
    ModelReceipt {
        limits: limits.to_vec(),
        percent: asked.percent,
        now_us,
        cost: asked.cost,
        marks: decision.marks.clone(),
        slot: asked.slot,
    }
}

fn spend(model: &mut Model, limits: &[Spec], now_us: u64, cost: u64) -> ModelReceipt {
    let decision = model.hit(limits, now_us, cost);
    receipt(limits, now_us, ModelHit::hard(cost), &decision)
}

fn remaining(model: &Model, limits: &[Spec], now_us: u64) -> u64 {
    model.clone().hit(limits, now_us, 0).overall.remaining
}

#[test]
fn a_soft_window_passes_half_as_much_again_and_says_that_it_is_over() {
    let mut model = Model::new();
    let mut hit = |cost| heard(&model.hit_with(&[window(5)], 0, elastic(cost, true)));

    assert_eq!(hit(5), (ALLOWED, 0, false));
    assert_eq!(hit(1), (ALLOWED, 0, true));
    assert_eq!(hit(0), (ALLOWED, 0, false));
    assert_eq!(hit(2), (denied(60), 0, false));
    assert_eq!(hit(1), (ALLOWED, 0, true));
    assert_eq!(hit(1), (denied(60), 0, false));
    assert_eq!(hit(8), (Answer::Impossible, 0, false));
}

#[test]
fn an_elastic_bucket_without_room_keeps_its_reserve() {
    let limits = [bucket(4)];
    let mut model = Model::new();
    let mut hit =
        |now, cost, room| heard(&model.hit_with(&limits, now * SECOND, elastic(cost, room)));

    assert_eq!(hit(0, 5, false), (Answer::Impossible, 4, false));
    assert_eq!(hit(0, 4, false), (ALLOWED, 0, false));
    assert_eq!(hit(0, 1, false), (denied(1), 0, false));
    assert_eq!(hit(0, 2, true), (ALLOWED, 0, true));
    // The debt is 6, and 1 fits next to the reserve of 2 once 3 are forgiven.
    assert_eq!(hit(0, 1, false), (denied(3), 0, false));
    assert_eq!(hit(3, 1, false), (ALLOWED, 0, false));
}

#[test]
fn slots_are_held_until_their_lease_ends_and_taken_again_by_their_holder() {
    let limits = [slots(2, 30)];
    let mut model = Model::new();
    let mut hit = |second: u64, slot| heard(&model.hit_with(&limits, second * SECOND, by(slot)));

    assert_eq!(hit(0, 1), (ALLOWED, 1, false));
    assert_eq!(hit(10, 2), (ALLOWED, 0, false));
    assert_eq!(hit(12, 3), (denied(18), 0, false));
    assert_eq!(hit(20, 1), (ALLOWED, 0, false));
    // The second ends at 40 now that the first was taken again at 20.
    assert_eq!(hit(21, 3), (denied(19), 0, false));
    assert_eq!(hit(40, 3), (ALLOWED, 0, false));
}

#[test]
fn a_hit_of_any_cost_takes_one_slot() {
    let mut model = Model::new();
    let asked = ModelHit { cost: 99, ..by(1) };

    let decision = model.hit_with(&[slots(2, 30)], 0, asked);

    assert_eq!(heard(&decision), (ALLOWED, 1, false));
    assert_eq!(decision.overall.reset_after_us, 30 * SECOND);
}

#[test]
fn elastic_slots_without_room_keep_their_reserve() {
    let limits = [slots(2, 30)];
    let mut model = Model::new();
    let mut hit = |second: u64, slot, room| {
        let asked = ModelHit {
            slot,
            ..elastic(1, room)
        };
        heard(&model.hit_with(&limits, second * SECOND, asked))
    };

    assert_eq!(hit(0, 1, true), (ALLOWED, 1, false));
    assert_eq!(hit(1, 2, true), (ALLOWED, 0, false));
    assert_eq!(hit(2, 3, true), (ALLOWED, 0, true));
    assert_eq!(hit(2, 4, true), (denied(28), 0, false));
    // Of three, two have to end.
    assert_eq!(hit(2, 4, false), (denied(29), 0, false));
    assert_eq!(hit(31, 4, false), (ALLOWED, 0, false));
}

#[test]
fn a_clock_set_back_by_more_than_a_lease_leaves_slots_one_lease() {
    let limits = [slots(1, 30)];
    let mut model = Model::new();
    model.hit_with(&limits, 100 * SECOND, by(1));

    let stands = model.hit_with(&limits, 70 * SECOND, by(2));
    let repaired = model.hit_with(&limits, 70 * SECOND - 1, by(2));

    assert_eq!((heard(&stands).0, stands.wrote), (denied(60), false));
    assert_eq!((heard(&repaired).0, repaired.wrote), (denied(30), true));
}

#[test]
fn the_denial_that_fills_a_penalty_box_is_refused_for_as_long() {
    let limits = [window(1), penalty_box(2, false)];
    let mut model = Model::new();
    model.hit(&limits, 0, 1);

    let first = model.hit(&limits, 50 * SECOND, 1);
    let second = model.hit(&limits, 59 * SECOND, 1);
    let boxed = model.hit(&limits, 60 * SECOND, 1);
    let look = model.hit(&limits, 60 * SECOND, 0);

    assert_eq!((first.binding, heard(&first)), (0, (denied(10), 0, false)));
    assert_eq!(
        (first.limits[1].answer, first.limits[1].remaining),
        (ALLOWED, 1)
    );
    assert_eq!(
        (second.binding, heard(&second)),
        (1, (denied(30), 0, false))
    );
    assert_eq!((boxed.binding, boxed.overall.answer), (1, denied(29)));
    assert_eq!((boxed.limits[0].answer, boxed.wrote), (ALLOWED, false));
    assert_eq!((look.binding, look.overall.answer), (0, ALLOWED));
    assert_eq!(look.limits[1].reset_after_us, 29 * SECOND);
    assert_eq!(model.hit(&limits, 89 * SECOND, 1).overall.answer, ALLOWED);
}

#[test]
fn denials_a_period_apart_fill_no_box() {
    let limits = [window(1), penalty_box(2, false)];
    let mut model = Model::new();
    model.hit(&limits, 0, 1);

    model.hit(&limits, SECOND, 1);
    let later = model.hit(&limits, 11 * SECOND, 1);
    let in_time = model.hit(&limits, 21 * SECOND - MILLI, 1);

    assert_eq!(
        (later.limits[1].answer, later.limits[1].remaining),
        (ALLOWED, 1)
    );
    assert_eq!(in_time.limits[1].answer, denied(30));
}

#[test]
fn a_growing_box_doubles_until_it_was_left_alone_for_a_period() {
    let limits = [slots(1, 3_600), penalty_box(1, true)];
    let mut model = Model::new();
    model.hit_with(&limits, 0, by(1));
    let mut wait = |second: u64| {
        let decision = model.hit_with(&limits, second * SECOND, by(2));
        decision.limits[1].answer
    };

    assert_eq!(wait(0), denied(30));
    assert_eq!(wait(30), denied(60));
    assert_eq!(wait(90 + 9), denied(120));
    // It was over at 219.
    assert_eq!(wait(219 + 10), denied(30));
}

#[test]
fn impossible_hits_fill_no_box() {
    let limits = [window(1), penalty_box(1, false)];
    let mut model = Model::new();

    let impossible = model.hit(&limits, 0, 2);

    assert_eq!(impossible.overall.answer, Answer::Impossible);
    assert!(!impossible.wrote);
    assert_eq!(model.hit(&limits, 0, 1).overall.answer, ALLOWED);
}

#[test]
fn a_bucket_gives_back_no_more_than_is_left_of_the_debt() {
    let limits = [bucket(5)];
    let mut model = Model::new();
    let receipt = spend(&mut model, &limits, 0, 3);
    assert_eq!(receipt.marks[0].debt, 3 * SECOND);
    // At 2 s one of the three is left, and another two are spent.
    model.hit(&limits, 2 * SECOND, 2);

    let settled = model.settle(&receipt, 2 * SECOND, REFUND);

    assert!(settled.wrote);
    assert_eq!(remaining(&model, &limits, 2 * SECOND), 3);
}

#[test]
fn a_window_gives_back_within_the_window_only() {
    let limits = [window(5)];
    let mut model = Model::new();
    let first = spend(&mut model, &limits, 0, 2);
    let second = spend(&mut model, &limits, SECOND, 2);

    assert!(
        model
            .settle(&first, 2 * SECOND, Change::Settle { actual: 1 })
            .wrote
    );
    assert_eq!(remaining(&model, &limits, 2 * SECOND), 2);
    model.hit(&limits, MINUTE, 4);

    assert!(!model.settle(&second, MINUTE, REFUND).wrote);
    assert_eq!(remaining(&model, &limits, MINUTE), 1);
}

#[test]
fn a_log_gives_back_the_stamps_of_that_moment() {
    let limits = [log(5)];
    let mut model = Model::new();
    spend(&mut model, &limits, 0, 1);
    let receipt = spend(&mut model, &limits, SECOND, 3);

    model.settle(&receipt, 2 * SECOND, Change::Settle { actual: 1 });

    let look = model.hit(&limits, 2 * SECOND, 0).overall;
    assert_eq!((look.remaining, look.reset_after_us), (3, 58 * SECOND));
    assert_eq!(remaining(&model, &limits, MINUTE), 4);
}

#[test]
fn a_counter_gives_back_to_the_window_that_was_charged() {
    let limits = [counter(10)];
    let mut model = Model::new();
    let receipt = spend(&mut model, &limits, 0, 8);
    model.hit(&limits, 90 * SECOND, 1);
    assert_eq!(remaining(&model, &limits, 90 * SECOND), 5);

    assert!(
        model
            .settle(&receipt, 90 * SECOND, Change::Settle { actual: 2 })
            .wrote
    );

    // Half of the 2 that are left is in sight.
    assert_eq!(remaining(&model, &limits, 90 * SECOND), 8);
    model.hit(&limits, 150 * SECOND, 1);
    assert!(!model.settle(&receipt, 150 * SECOND, REFUND).wrote);
}

#[test]
fn an_extra_charge_stops_at_the_limit_and_starts_afresh_where_nothing_is_stored() {
    for spec in [bucket(5), window(5), log(5), counter(5)] {
        let mut model = Model::new();
        let receipt = spend(&mut model, &[spec], 0, 2);

        assert!(
            model
                .settle(&receipt, 0, Change::Settle { actual: 4 })
                .wrote
        );
        assert_eq!(remaining(&model, &[spec], 0), 1, "{spec:?}");
        model.settle(&receipt, 0, Change::Settle { actual: u64::MAX });
        assert_eq!(remaining(&model, &[spec], 0), 0, "{spec:?}");
        model.reset(0);
        assert!(!model.settle(&receipt, 0, REFUND).wrote);
        model.settle(&receipt, 0, Change::Settle { actual: 3 });
        assert_eq!(remaining(&model, &[spec], 0), 4, "{spec:?}");
    }
}

#[test]
fn a_charge_of_a_clock_that_stands_still_is_not_given_back() {
    for spec in [bucket(5), window(5), log(5), counter(5)] {
        let mut model = Model::new();
        model.hit(&[spec], 61 * SECOND, 1);
        let receipt = spend(&mut model, &[spec], 61 * SECOND - 1, 1);

        assert_eq!(receipt.marks[0].debt, 0, "{spec:?}");
        assert!(
            !model.settle(&receipt, 61 * SECOND, REFUND).wrote,
            "{spec:?}"
        );
    }
}

#[test]
fn a_slot_is_released_once_renewed_while_held_and_lost_with_its_lease() {
    let limits = [slots(1, 30)];
    let mut model = Model::new();
    let decision = model.hit_with(&limits, 0, by(1));
    let receipt = receipt(&limits, 0, by(1), &decision);
    let settled = |held, wrote| Settled { held, wrote };

    assert_eq!(
        model.settle(&receipt, 0, Change::Renew),
        settled(true, false)
    );
    let renewed = model.settle(&receipt, 20 * SECOND, Change::Renew);
    assert_eq!(renewed, settled(true, true));
    let other = model.hit_with(&limits, 30 * SECOND, by(2));
    assert_eq!(other.overall.answer, denied(20));
    let part = Change::Settle { actual: 2 };
    assert_eq!(
        model.settle(&receipt, 30 * SECOND, part),
        settled(true, false)
    );
    let lost = model.clone().settle(&receipt, 50 * SECOND, Change::Renew);
    assert_eq!(lost, settled(false, false));
    for wrote in [true, false] {
        let released = model.settle(&receipt, 40 * SECOND, Change::Release);
        assert_eq!(released, settled(true, wrote));
    }
    assert_eq!(remaining(&model, &limits, 40 * SECOND), 1);
}

#[test]
fn a_receipt_of_another_algorithm_or_period_gives_nothing_back() {
    let slower = Spec::TokenBucket {
        capacity: 5,
        refill: 1,
        period_us: MINUTE,
    };
    let hourly = Spec::SlidingWindowCounter {
        limit: 5,
        period_us: 60 * MINUTE,
    };
    for (old, new) in [
        (bucket(5), slower),
        (counter(5), hourly),
        (window(5), log(5)),
    ] {
        let mut model = Model::new();
        let receipt = spend(&mut model, &[old], 0, 2);
        model.hit(&[new], 0, 1);

        let before = model.clone();
        assert!(!model.settle(&receipt, 0, REFUND).wrote, "{old:?}");
        assert_eq!(model, before, "{old:?}");
    }
}

#[test]
fn a_refusal_that_is_forgotten_does_not_come_back_with_an_earlier_clock() {
    let limits = [window(1), penalty_box(1, true)];
    let mut model = Model::new();
    model.hit(&limits, 0, 1);
    assert_eq!(model.hit(&limits, 0, 1).limits[1].answer, denied(30));
    model.hit(&limits, 120 * SECOND, 1);

    let look = model.hit(&limits, 20 * SECOND, 0);

    assert_eq!(look.limits[1].remaining, 1);
}
