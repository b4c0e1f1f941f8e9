//! The core of this suite as the users that docs/operate/security.md documents: on one server, behind a
//! sentinel, and on a cluster.

use std::time::Duration;

use ratelimit_core::{Clock, FailureMode, Limiter, Verdict};
use ratelimit_tests::{
    redis::{Deployment, TestRedis, connected},
    traces::Aim,
};

use crate::{
    concurrency::never_more_than_the_limit_at_once,
    equivalence::compare_on,
    multi_key::together_or_not_at_all,
    oracle::{eight_processes_on_a_bucket, exactly_the_limit_passes_at_once},
    receipts::redeemed_once,
    stores::{key, policy},
    ttl::{a_denial_writes_nothing, a_lost_expiry_is_repaired, lives_as_long_as_its_state_needs},
    vectors::every_vector_holds,
};

/// Of each comparison; the suite itself does ten times as many.
const STEPS: u64 = 1_500;
const TRACES: u64 = 20;

/// Memory, the model and the deployment answer alike.
async fn answers(redis: TestRedis) {
    for (algorithm, name) in ratelimit_tests::traces::ALGORITHMS.iter().enumerate() {
        let is_concurrency = *name == "concurrency";
        let aim = Aim {
            settles: is_concurrency,
            concurrency: is_concurrency,
            ..Aim::at(algorithm)
        };
        compare_on(&redis, STEPS, aim, name).await;
    }
    compare_on(&redis, 2 * STEPS, Aim::EVERYTHING, "everything together").await;
    together_or_not_at_all(&redis, TRACES).await;
    every_vector_holds(&redis).await;
}

/// Charges are settled, keys expire, and what is denied writes nothing.
async fn charges(redis: TestRedis) {
    redeemed_once(&redis, TRACES).await;
    lives_as_long_as_its_state_needs(&redis).await;
    a_lost_expiry_is_repaired(&redis).await;
    a_denial_writes_nothing(&redis).await;
}

/// Tasks and processes at once get no more than there is.
async fn at_once(redis: TestRedis) {
    exactly_the_limit_passes_at_once(&redis).await;
    never_more_than_the_limit_at_once(&redis).await;
    eight_processes_on_a_bucket(&redis);
}

/// Two instances of a service share a budget of five (C1).
async fn two_instances(redis: TestRedis) {
    let config = redis.config();
    let mut limiters = Vec::new();
    for _ in 0..2 {
        let store = connected(config.clone()).await;
        limiters.push(Limiter::new(store).failure_mode(FailureMode::Local));
    }
    for text in [
        "5/h",
        "leaky_bucket 5/h police",
        "fixed_window 5/366d",
        "sliding_window_log 5/h",
        "sliding_window_counter 5/366d",
        "concurrency 5 lease 1h",
        "5/h; fixed_window 9/366d; penalty_box 100/h for 1h",
    ] {
        let limit = policy(&text.replace([' ', '/', ';'], "_"), text);
        let mut passed = 0;
        for hit in 0..20 {
            let verdict = limiters[hit % 2].check(&limit, &key("shared")).await;
            assert!(
                matches!(verdict, Verdict::Checked(_)),
                "{text}: {verdict:?}"
            );
            passed += usize::from(verdict.is_allowed());
        }

        assert_eq!(passed, 5, "{text}");
        limiters[0].reset(&limit, &key("shared")).await.unwrap();
        let again = limiters[1].peek(&limit, &key("shared")).await;
        assert_eq!(again.decision().unwrap().remaining, 5, "{text}");
    }
}

/// A server whose user may do what the page says is usable at once, and is not replaced.
async fn connects_once(redis: TestRedis) {
    let store = redis.store(Clock::system()).await;
    let before = connection_ids(&redis);
    let limiter = Limiter::new(store);
    let steady = policy("steady", "1000/h");
    for _ in 0..150 {
        let verdict = limiter.check(&steady, &key("k")).await;
        assert!(matches!(verdict, Verdict::Checked(_)), "{verdict:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    limiter.reset(&steady, &key("k")).await.unwrap();
    assert_eq!(connection_ids(&redis), before);
    // The name of the client library is sent without being asked for; nothing depends on it.
    let mut denied = redis.denied_commands();
    denied.retain(|command| !command.starts_with("client"));
    assert!(denied.is_empty(), "the documented user may not {denied:?}");
}

/// The connections of the documented user at the first server.
fn connection_ids(redis: &TestRedis) -> Vec<String> {
    let clients: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query(&mut redis.connection())
        .unwrap();
    let ours = clients
        .lines()
        .filter(|line| line.contains("user=ratelimit"));
    let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    ours.map(id).collect()
}

macro_rules! run_as_documented {
    ($name:ident, $deployment:expr) => {
        mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_documented_user_gets_the_answers_of_the_model() {
                answers(TestRedis::deployed($deployment).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_documented_user_settles_and_expires_charges() {
                charges(TestRedis::deployed($deployment).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_documented_user_never_over_admits() {
                at_once(TestRedis::deployed($deployment).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn two_instances_of_the_documented_user_share_a_budget() {
                two_instances(TestRedis::deployed($deployment).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_documented_user_keeps_its_connection() {
                connects_once(TestRedis::deployed($deployment).await).await;
            }
        }
    };
}

run_as_documented!(single, Deployment::Single);
run_as_documented!(sentinel, Deployment::Sentinel);
run_as_documented!(cluster, Deployment::Cluster);
