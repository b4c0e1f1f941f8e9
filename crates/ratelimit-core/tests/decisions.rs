//! Two decisions are equal if a caller reads the same from them.

use std::time::Duration;

use ratelimit_core::{
    Clock, Decision, Key, LimitDecision, Limiter, MemoryStore, Outcome, Policy, Timestamp,
};

#[tokio::test]
async fn a_peek_equals_the_check_before_it() {
    let clock = Clock::manual(Timestamp::from_secs(600));
    let limiter = Limiter::new(MemoryStore::new().clock(clock));
    let key = Key::new("alice").unwrap();
    for limits in [
        "10/min",
        "leaky_bucket 10/min police",
        "fixed_window 10/min",
        "sliding_window_counter 10/min",
        "sliding_window_log 10/min",
        "10/min; fixed_window 20/h",
        "10/min; penalty_box 5/min for 1h",
    ] {
        let policy = Policy::parse(&limits.replace([' ', '/', ';'], "_"), limits).unwrap();
        for cost in [3, 3] {
            let checked = limiter.check_cost(&policy, &key, cost).await;
            let peeked = limiter.peek(&policy, &key).await;
            assert_eq!(peeked, checked, "{limits}, {cost}");
        }
    }
}

#[tokio::test]
async fn a_decision_equals_one_that_is_made_of_its_limits() {
    let limiter = Limiter::in_memory();
    let key = Key::new("alice").unwrap();
    for limits in [
        "10/min",
        "10/min; fixed_window 20/h",
        "10/min; penalty_box 5/min for 1h",
    ] {
        let policy = Policy::parse("api", limits).unwrap();
        let verdict = limiter.check(&policy, &key).await;
        let decision = verdict.decision().unwrap();
        let limits = decision.limits().map(|limit| {
            let mut same = LimitDecision::new(limit.outcome, limit.limit);
            same.remaining = limit.remaining;
            same.reset_after = limit.reset_after;
            same.is_silent = limit.is_silent;
            same
        });
        assert_eq!(&Decision::from_limits(decision.now, limits), decision);
    }
}

#[test]
fn the_only_limit_of_a_decision_is_the_one_that_it_was_made_of() {
    let delay = Duration::ZERO;
    let mut only = LimitDecision::new(Outcome::Allowed { delay }, 10);
    only.remaining = 4;
    only.reset_after = Duration::from_secs(5);
    only.is_over = true;
    only.is_read = false;
    only.is_silent = true;

    let decision = Decision::new(only, Timestamp::from_secs(60));

    assert_eq!(decision.limits().collect::<Vec<_>>(), [only]);
}
