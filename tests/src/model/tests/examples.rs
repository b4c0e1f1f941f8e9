//! Examples that were worked out by hand.

use crate::model::{Answer, Model, ModelDecision, Spec};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const ALLOWED: Answer = Answer::Allowed { delay_us: 0 };

fn denied(seconds: u64) -> Answer {
    Answer::Denied {
        retry_after_us: seconds * SECOND,
    }
}

fn counter(limit: u64) -> [Spec; 1] {
    [Spec::SlidingWindowCounter {
        limit,
        period_us: MINUTE,
    }]
}

fn log(limit: u64, count_denied: bool) -> Spec {
    Spec::SlidingWindowLog {
        limit,
        period_us: MINUTE,
        count_denied,
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

fn heard(decision: &ModelDecision) -> (Answer, u64) {
    (decision.overall.answer, decision.overall.remaining)
}

#[test]
fn eighty_last_minute_and_twenty_now_count_eighty_at_a_quarter() {
    let mut model = Model::new();

    model.hit(&counter(100), 0, 80);
    model.hit(&counter(100), 75 * SECOND, 20);

    assert_eq!(
        heard(&model.hit(&counter(100), 75 * SECOND, 0)),
        (ALLOWED, 20)
    );
}

#[test]
fn four_then_three_at_the_half_of_five_a_minute_refuse_the_sixth() {
    let mut model = Model::new();
    model.hit(&counter(5), 0, 4);
    model.hit(&counter(5), 90 * SECOND, 3);

    let refused = model.hit(&counter(5), 90 * SECOND, 1);

    assert_eq!(heard(&refused), (denied(15), 0));
}

#[test]
fn a_log_forgets_each_hit_after_its_own_minute() {
    for (count_denied, last) in [(false, 1), (true, 0)] {
        let limits = [log(2, count_denied)];
        let mut model = Model::new();

        let mut hit = |second: u64| heard(&model.hit(&limits, second * SECOND, 1));

        assert_eq!(hit(1), (ALLOWED, 1));
        assert_eq!(hit(30), (ALLOWED, 0));
        assert_eq!(hit(40), (denied(if count_denied { 50 } else { 21 }), 0));
        assert_eq!(hit(90), (ALLOWED, last));
    }
}

#[test]
fn a_fixed_window_passes_twice_its_limit_around_an_edge() {
    let mut model = Model::new();

    let before = model.hit(&[window(100)], 59 * SECOND, 100);
    let after = model.hit(&[window(100)], 60 * SECOND, 100);

    assert_eq!(heard(&before), (ALLOWED, 0));
    assert_eq!(heard(&after), (ALLOWED, 0));
    assert_eq!(
        (before.overall.reset_after_us, after.overall.reset_after_us),
        (SECOND, MINUTE)
    );
}

#[test]
fn a_clock_set_back_an_hour_keeps_the_debt_and_stores_the_repair() {
    let mut model = Model::new();
    model.hit(&[bucket(5)], 3_600 * SECOND, 5);

    let first = model.hit(&[bucket(5)], 0, 1);
    let second = model.hit(&[bucket(5)], 0, 1);

    assert_eq!((heard(&first), first.wrote), ((denied(1), 0), true));
    assert_eq!((heard(&second), second.wrote), ((denied(1), 0), false));
    assert_eq!(heard(&model.hit(&[bucket(5)], SECOND, 1)), (ALLOWED, 0));
}

#[test]
fn a_clock_set_back_by_less_than_a_period_stands_still() {
    let mut model = Model::new();
    model.hit(&[bucket(1)], SECOND, 1);

    let refused = model.hit(&[bucket(1)], SECOND / 2, 1);

    assert_eq!(
        refused.overall.answer,
        Answer::Denied {
            retry_after_us: SECOND * 3 / 2
        }
    );
    assert!(!refused.wrote);
}

#[test]
fn a_changed_bucket_keeps_its_tokens_and_a_changed_algorithm_nothing() {
    let slower = Spec::TokenBucket {
        capacity: 4,
        refill: 1,
        period_us: 2 * SECOND,
    };
    let leaky = Spec::LeakyBucket {
        capacity: 4,
        refill: 1,
        period_us: SECOND,
        police: false,
    };
    let mut model = Model::new();
    model.hit(&[bucket(5)], 0, 3);

    assert_eq!(model.hit(&[slower], 0, 0).overall.remaining, 1);
    assert_eq!(model.hit(&[leaky], 0, 0).overall.remaining, 4);
    assert_eq!(model.hit(&[bucket(2)], 0, 0).overall.remaining, 0);
}

#[test]
fn a_converted_debt_is_rounded_up() {
    let third = Spec::TokenBucket {
        capacity: 9,
        refill: 1,
        period_us: 3,
    };
    let half = Spec::TokenBucket {
        capacity: 9,
        refill: 1,
        period_us: 2,
    };
    let mut model = Model::new();
    model.hit(&[third], 10, 1);

    assert_eq!(model.hit(&[half], 10, 0).overall.reset_after_us, 2);
    model.hit(&[third], 11, 1);

    // The debt is 5 thirds: 10/3 halves, which is 4 of them.
    assert_eq!(model.hit(&[half], 11, 0).overall.reset_after_us, 4);
}

#[test]
fn a_debt_too_great_to_convert_is_rounded_up_to_whole_tokens() {
    let day = Spec::TokenBucket {
        capacity: 1_000,
        refill: 1,
        period_us: 86_400 * SECOND,
    };
    let two_days = Spec::TokenBucket {
        capacity: 1_000,
        refill: 1,
        period_us: 172_800 * SECOND,
    };
    let mut model = Model::new();
    model.hit(&[day], 0, 1);
    model.hit(&[day], 1, 1);

    // The debt is a microsecond short of two tokens, and their value lives a millisecond longer.
    let look = model.hit(&[two_days], 1, 0).overall;
    assert_eq!(
        (look.remaining, look.reset_after_us),
        (998, 2 * 86_400 * SECOND + 999)
    );
    assert_eq!(
        model.hit(&[two_days], 1, 998).overall.reset_after_us,
        1_000 * 172_800 * SECOND
    );
}

#[test]
fn one_tick_more_than_a_period_ahead_is_repaired() {
    let mut model = Model::new();
    model.hit(&[window(1)], 2 * MINUTE, 1);

    assert_eq!(heard(&model.hit(&[window(1)], MINUTE, 1)), (denied(120), 0));
    let refused = model.hit(&[window(1)], MINUTE - 1, 1);
    assert_eq!(refused.overall.answer, Answer::Denied { retry_after_us: 1 });
    assert!(refused.wrote);
}

#[test]
fn waits_end_when_the_value_expires() {
    let slow = Spec::TokenBucket {
        capacity: 1,
        refill: 1,
        period_us: MINUTE,
    };
    let mut model = Model::new();
    model.hit(&[bucket(1)], 0, 1);

    let refused = model.hit(&[slow], 0, 1);

    assert_eq!(
        refused.overall.answer,
        Answer::Denied {
            retry_after_us: SECOND + 1_000
        }
    );
    assert_eq!(refused.overall.reset_after_us, SECOND + 1_000);
    assert_eq!(heard(&model.hit(&[slow], SECOND + 1_000, 1)), (ALLOWED, 0));
}

#[test]
fn a_changed_period_turns_the_estimate_into_the_count() {
    let hourly = [Spec::SlidingWindowCounter {
        limit: 5,
        period_us: 60 * MINUTE,
    }];
    let mut model = Model::new();
    model.hit(&counter(5), 0, 3);
    model.hit(&counter(5), 90 * SECOND, 1);

    // Of the 3 a half is in sight, 1.5, and rounds up.
    assert_eq!(model.hit(&hourly, 90 * SECOND, 0).overall.remaining, 2);
}

#[test]
fn the_longest_wait_speaks_for_a_denied_policy_and_the_least_remaining_for_an_allowed_one() {
    let limits = [window(2), bucket(2), log(9, false)];
    let mut model = Model::new();

    let allowed = model.hit(&limits, 0, 2);
    let refused = model.hit(&limits, 0, 1);
    let impossible = model.hit(&limits, 0, 3);

    assert_eq!((allowed.binding, heard(&allowed)), (0, (ALLOWED, 0)));
    assert_eq!((refused.binding, heard(&refused)), (0, (denied(60), 0)));
    let answers: Vec<Answer> = refused.limits.iter().map(|limit| limit.answer).collect();
    assert_eq!(answers, [denied(60), denied(1), ALLOWED]);
    assert_eq!(
        (impossible.binding, heard(&impossible)),
        (0, (Answer::Impossible, 0))
    );
    assert_eq!(impossible.limits[2].answer, ALLOWED);
}

#[test]
fn a_strict_log_counts_what_another_limit_denied() {
    let limits = [bucket(1), log(3, true)];
    let mut model = Model::new();
    model.hit(&limits, 0, 1);

    let refused = model.hit(&limits, 0, 1);

    assert_eq!(
        (refused.binding, refused.overall.answer, refused.wrote),
        (0, denied(1), true)
    );
    assert_eq!(
        (refused.limits[1].answer, refused.limits[1].remaining),
        (ALLOWED, 1)
    );
}
