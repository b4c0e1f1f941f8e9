//! Bugs of other limiters, each a case of ours; the numbers are those of the list in docs/explain/peers.md.

use std::time::Duration;

use ratelimit_core::{
    Clock, Key, Limiter, Timestamp,
    store::{Hit, Store as _},
};
use ratelimit_tests::redis::TestRedis;

use crate::stores::{TestStore, key, policy};

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// Costs at moments in microseconds, as allowed or not.
async fn outcomes(subject: &TestStore, text: &str, hits: &[(u64, u64)]) -> Vec<bool> {
    let policy = policy("peers", text);
    let mut answers = Vec::new();
    for &(now_us, cost) in hits {
        let decision = subject.hit(&policy, &key(text), now_us, cost).await;
        answers.push(decision.is_allowed());
    }
    answers
}

#[tokio::test]
async fn case_1_a_denied_hit_does_not_charge_a_window() {
    let redis = TestRedis::start().await;
    for subject in TestStore::all(&redis).await {
        let answers = outcomes(&subject, "fixed_window 10/min", &[(0, 5), (0, 6), (0, 1)]).await;

        assert_eq!(answers, [true, false, true]);
    }
}

#[tokio::test]
async fn case_2_a_denied_hit_leaves_no_debt() {
    let redis = TestRedis::start().await;
    let bucket = policy("peers", "1/s burst 10");
    for subject in TestStore::all(&redis).await {
        subject.hit(&bucket, &key("a"), 0, 8).await;

        let five = subject.hit(&bucket, &key("a"), 0, 5).await;
        let one = subject.hit(&bucket, &key("a"), 0, 1).await;
        let another = subject.hit(&bucket, &key("a"), 0, 1).await;

        assert_eq!(five.retry_after(), Some(Duration::from_secs(3)));
        assert!(!five.is_allowed() && one.is_allowed() && another.is_allowed());
    }
}

#[tokio::test]
async fn case_3_one_limit_does_not_burn_another() {
    let redis = TestRedis::start().await;
    let both = policy("peers", "1/s; fixed_window 5/min");
    for subject in TestStore::all(&redis).await {
        let mut answers = Vec::new();
        for _ in 0..5 {
            let decision = subject.hit(&both, &key("a"), 0, 1).await;
            answers.push(decision.is_allowed());
        }
        let last = subject.hit(&both, &key("a"), 1_100 * MILLI, 1).await;

        assert_eq!(answers, [true, false, false, false, false]);
        assert!(last.is_allowed());
        assert_eq!(last.limits().nth(1).unwrap().remaining, 3);
    }
}

#[tokio::test]
async fn case_6_odd_periods_are_as_long_as_asked() {
    let redis = TestRedis::start().await;
    for subject in TestStore::all(&redis).await {
        for (text, period_us) in [
            ("fixed_window 1/500ms", 500 * MILLI),
            ("fixed_window 1/1900ms", 1_900 * MILLI),
        ] {
            let hits = [(0, 1), (period_us - 1, 1), (period_us, 1)];

            assert_eq!(outcomes(&subject, text, &hits).await, [true, false, true]);
        }
    }
}

#[tokio::test]
async fn case_7_a_month_does_not_overflow_a_timer() {
    let redis = TestRedis::start().await;
    for subject in TestStore::all(&redis).await {
        let answers = outcomes(&subject, "fixed_window 2/30d", &[(0, 1); 5]).await;

        assert_eq!(answers, [true, true, false, false, false]);
    }
}

#[tokio::test]
async fn case_8_a_cost_above_the_capacity_never_passes() {
    let redis = TestRedis::start().await;
    for subject in TestStore::all(&redis).await {
        for text in [
            "10/s",
            "leaky_bucket 10/s",
            "fixed_window 10/s",
            "sliding_window_log 10/s",
            "sliding_window_counter 10/s",
        ] {
            for cost in [11, 1 << 53, u64::MAX] {
                let decision = subject
                    .hit(&policy("peers", text), &key("a"), 0, cost)
                    .await;

                assert!(!decision.is_allowed());
                assert_eq!(decision.retry_after(), None);
                assert_eq!(decision.remaining, 10);
            }
        }
    }
}

#[tokio::test]
async fn case_9_the_clock_of_an_instance_does_not_matter() {
    let redis = TestRedis::start().await;
    let store = redis.store(Clock::system()).await;
    let minute = policy("peers", "10/min");
    let server_now = || -> u64 {
        let time: (u64, u64) = redis::cmd("TIME").query(&mut redis.connection()).unwrap();
        time.0 * SECOND + time.1
    };

    let before = server_now();
    let decision = store.hit(Hit::new(&minute, &key("a"))).await.unwrap();
    let after = server_now();

    assert!((before..=after).contains(&decision.now.as_micros()));
}

#[tokio::test]
async fn case_10_a_second_has_no_edge_to_double_at() {
    let redis = TestRedis::start().await;
    for subject in TestStore::all(&redis).await {
        let hits: Vec<_> = (0..20).map(|n| (930 * MILLI + n * 7 * MILLI, 1)).collect();

        let answers = outcomes(&subject, "10/s burst 10", &hits).await;

        assert_eq!(answers.iter().filter(|allowed| **allowed).count(), 11);
    }
}

#[tokio::test]
async fn case_12_a_look_sees_what_was_refilled() {
    let redis = TestRedis::start().await;
    let bucket = policy("peers", "1/s burst 10");
    for subject in TestStore::all(&redis).await {
        subject.hit(&bucket, &key("a"), 0, 10).await;

        let look = subject.hit(&bucket, &key("a"), 2_100 * MILLI, 0).await;

        assert_eq!(look.remaining, 2);
    }
}

#[tokio::test]
async fn case_13_a_remembered_denial_ends_when_it_is_due() {
    let redis = TestRedis::start().await;
    let counter = policy("peers", "sliding_window_counter 10/10s");
    for TestStore { store, clock, .. } in TestStore::all(&redis).await {
        let limiter = Limiter::new(store);
        let passes = async |now_us, cost| {
            clock.set(Timestamp::from_micros(now_us));
            let check = limiter.check_cost(&counter, &key("a"), cost);
            check.await.is_allowed()
        };
        assert!(passes(9 * SECOND, 10).await);

        for now_us in [9 * SECOND, 9 * SECOND + 1, 10 * SECOND, 11 * SECOND - 1] {
            assert!(!passes(now_us, 1).await, "{now_us}");
        }
        assert!(passes(11 * SECOND, 1).await);
    }
}

#[tokio::test]
async fn case_5_and_14_a_reset_forgets_one_key_and_creates_none() {
    let redis = TestRedis::start().await;
    let limit = policy("peers", "5/min");
    for subject in TestStore::all(&redis).await {
        for name in ["alice", "al*"] {
            subject.hit(&limit, &key(name), 0, 5).await;
        }

        subject
            .store
            .reset(&limit, &key("al*").into())
            .await
            .unwrap();
        subject
            .store
            .reset(&limit, &key("nobody").into())
            .await
            .unwrap();

        let remaining = async |name| subject.hit(&limit, &key(name), 0, 0).await.remaining;
        assert_eq!(remaining("alice").await, 0);
        assert_eq!(remaining("al*").await, 5);
        assert_eq!(remaining("nobody").await, 5);
    }
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn case_16_separators_in_parts_do_not_join_budgets() {
    let redis = TestRedis::start().await;
    let once = policy("peers", "1/min");
    let part = |tag, value| Key::tagged(tag, value).unwrap();
    let pairs = [
        (
            part("p", "a/b").join(&part("p", "c")),
            part("p", "a").join(&part("p", "b/c")),
        ),
        (
            part("foo", "q_bar_w"),
            part("foo", "q").join(&part("bar", "w")),
        ),
        (
            part("foo", "r/bar:w"),
            part("foo", "r").join(&part("bar", "w")),
        ),
    ];
    for subject in TestStore::all(&redis).await {
        for (one, other) in &pairs {
            assert!(subject.hit(&once, one, 0, 1).await.is_allowed());
            assert!(subject.hit(&once, other, 0, 1).await.is_allowed());
        }
    }
}
