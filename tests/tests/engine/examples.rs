//! The worked examples that people check a limiter with.

use ratelimit_tests::redis::TestRedis;

use crate::stores::{TestStore, key, policy};

const SECOND: u64 = 1_000_000;

/// Hits of cost 1 at the given seconds, as allowed or not, and what remains.
async fn hits(subject: &TestStore, text: &str, seconds: &[u64]) -> Vec<(bool, u64)> {
    let policy = policy("example", text);
    let mut answers = Vec::new();
    for at in seconds {
        let decision = subject.hit(&policy, &key(text), at * SECOND, 1).await;
        answers.push((decision.is_allowed(), decision.remaining));
    }
    answers
}

#[tokio::test]
async fn a_token_bucket_of_100_refills_10_each_second() {
    let redis = TestRedis::start().await;
    let bucket = policy("example", "token_bucket 10/s burst 100");
    for subject in TestStore::all(&redis).await {
        let all = subject.hit(&bucket, &key("a"), 0, 100).await;
        let none = subject.hit(&bucket, &key("a"), 0, 1).await;
        let later = subject.hit(&bucket, &key("a"), 3 * SECOND, 0).await;

        assert!(all.is_allowed());
        assert_eq!(all.reset_after.as_secs(), 10);
        assert_eq!(none.retry_after().unwrap().as_millis(), 100);
        assert_eq!(later.remaining, 30);
    }
}

#[tokio::test]
async fn eighty_last_minute_and_twenty_now_count_eighty_at_a_quarter() {
    let redis = TestRedis::start().await;
    let counter = policy("example", "sliding_window_counter 100/min");
    for subject in TestStore::all(&redis).await {
        subject.hit(&counter, &key("a"), 30 * SECOND, 80).await;
        subject.hit(&counter, &key("a"), 75 * SECOND, 20).await;

        let look = subject.hit(&counter, &key("a"), 75 * SECOND, 0).await;

        assert_eq!(look.limit - look.remaining, 80);
    }
}

#[tokio::test]
async fn four_then_three_at_the_half_of_five_a_minute_refuse_the_sixth() {
    let redis = TestRedis::start().await;
    let counter = policy("example", "sliding_window_counter 5/min");
    for subject in TestStore::all(&redis).await {
        subject.hit(&counter, &key("a"), 10 * SECOND, 4).await;
        subject.hit(&counter, &key("a"), 90 * SECOND, 3).await;

        let sixth = subject.hit(&counter, &key("a"), 90 * SECOND, 1).await;

        assert!(!sixth.is_allowed());
    }
}

#[tokio::test]
async fn a_log_forgets_each_hit_after_its_own_minute() {
    let redis = TestRedis::start().await;
    for subject in TestStore::all(&redis).await {
        let seconds = [1, 30, 40, 90];

        let plain = hits(&subject, "sliding_window_log 2/min", &seconds).await;
        let strict = hits(&subject, "sliding_window_log 2/min count-denied", &seconds).await;

        assert_eq!(plain, [(true, 1), (true, 0), (false, 0), (true, 1)]);
        assert_eq!(strict, [(true, 1), (true, 0), (false, 0), (true, 0)]);
    }
}

#[tokio::test]
async fn a_fixed_window_passes_twice_its_limit_around_an_edge() {
    let redis = TestRedis::start().await;
    let window = policy("example", "fixed_window 100/min");
    for subject in TestStore::all(&redis).await {
        let before = subject.hit(&window, &key("a"), 59 * SECOND, 100).await;
        let full = subject.hit(&window, &key("a"), 59 * SECOND, 1).await;
        let after = subject.hit(&window, &key("a"), 60 * SECOND, 100).await;

        assert!(before.is_allowed() && after.is_allowed());
        assert!(!full.is_allowed());
    }
}

#[tokio::test]
async fn large_numbers_count_to_the_last_unit() {
    let redis = TestRedis::start().await;
    for text in ["1000000/d", "10000/30d", "1000000/366d", "1000000000/min"] {
        let policy = policy("large", text);
        let limit = policy.limits()[0].capacity();
        for subject in TestStore::all(&redis).await {
            let key = key(text);
            let most = subject.hit(&policy, &key, 7 * SECOND, limit - 1).await;
            let last = subject.hit(&policy, &key, 7 * SECOND, 1).await;
            let more = subject.hit(&policy, &key, 7 * SECOND, 1).await;
            let wait = u64::try_from(more.retry_after().unwrap().as_micros()).unwrap();
            let early = subject.hit(&policy, &key, 7 * SECOND + wait - 1, 1).await;
            let due = subject.hit(&policy, &key, 7 * SECOND + wait, 1).await;

            assert_eq!((most.remaining, last.remaining), (1, 0), "{text}");
            assert!(!more.is_allowed() && !early.is_allowed(), "{text}");
            assert!(due.is_allowed(), "{text}");
        }
    }
}
