//! What was spent beyond a limit counts when the throttle mode changes (law 9).

use ratelimit_core::{Policy, Throttle};
use ratelimit_tests::redis::TestRedis;

use crate::stores::{TestStore, key, policy};

fn soft(policy: &Policy, percent: u32) -> Policy {
    policy.with_throttle(Throttle::Soft { percent }).unwrap()
}

#[tokio::test]
async fn a_changed_throttle_mode_keeps_what_was_spent() {
    let redis = TestRedis::start().await;
    for subject in TestStore::all(&redis).await {
        for text in [
            "10/10s",
            "leaky_bucket 10/10s police",
            "fixed_window 10/10s",
            "sliding_window_log 10/10s",
            "sliding_window_counter 10/10s",
        ] {
            let name = text.replace([' ', '/'], "_");
            let hard = policy(&name, text);
            let key = key("a");
            let told = format!("{}: {text}", subject.name);

            let over = subject.hit(&soft(&hard, 10), &key, 0, 11).await;
            assert!(over.is_allowed() && over.is_over, "{told}");

            let denied = subject.hit(&hard, &key, 0, 1).await;
            assert!(!denied.is_allowed(), "{told}");
            assert_eq!((denied.limit, denied.remaining), (10, 0), "{told}");
            let softer = subject.hit(&soft(&hard, 20), &key, 0, 1).await;
            assert!(softer.is_allowed() && softer.is_over, "{told}");
            let no_more = subject.hit(&soft(&hard, 20), &key, 0, 1).await;
            assert!(!no_more.is_allowed(), "{told}");
            assert!(!subject.hit(&hard, &key, 0, 1).await.is_allowed(), "{told}");
        }
    }
}
