//! Every key expires, no sooner than it may, and a key that lost its expiry blocks nobody (law 7).

use std::time::Duration;

use ratelimit_core::{
    Clock, Decision, Policy, Timestamp,
    store::{Hit, JointHit, Store as _},
};
use ratelimit_tests::{model::Model, redis::TestRedis, traces::to_policy};

use crate::stores::{TestStore, key, policy, told};

const TEXTS: [&str; 6] = [
    "10/s burst 100",
    "leaky_bucket 5/s queue 20",
    "fixed_window 10/min",
    "sliding_window_log 10/min",
    "sliding_window_counter 10/h",
    "1/s; fixed_window 100/d; sliding_window_log 5/min",
];

#[tokio::test]
async fn a_written_key_lives_as_long_as_its_state_needs_and_at_least_a_second() {
    lives_as_long_as_its_state_needs(&TestRedis::start().await).await;
}

/// Writes a key under each policy, and looks at its time to live.
pub(crate) async fn lives_as_long_as_its_state_needs(redis: &TestRedis) {
    let store = redis.store(Clock::system()).await;
    for (place, text) in TEXTS.into_iter().enumerate() {
        let policy = policy(&format!("p{place}"), text);

        let decision = store.hit(Hit::new(&policy, &key("a"))).await.unwrap();

        assert_expires_in_time(redis, policy.name(), &decision);
    }
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn after_each_hit_the_expiry_is_late_enough_and_no_later() {
    let redis = TestRedis::start().await;
    let store = redis.store(Clock::system()).await;
    for (place, text) in TEXTS.into_iter().enumerate() {
        let policy = policy(&format!("p{place}"), text);
        for _ in 0..20 {
            let decision = store.hit(Hit::new(&policy, &key("a"))).await.unwrap();
            assert_expires_in_time(&redis, policy.name(), &decision);
        }
    }
}

#[tokio::test]
async fn after_each_joint_hit_on_windows_the_expiry_is_late_enough_and_no_later() {
    let redis = TestRedis::start().await;
    let store = redis.store(Clock::system()).await;
    let texts = ["fixed_window 1000/s", "fixed_window 1000/min"];
    let policies = texts.map(|text| policy(&text.replace([' ', '/'], "-"), text));
    let key = key("a");
    for _ in 0..20 {
        let hits = policies
            .each_ref()
            .map(|policy| JointHit::new(Hit::new(policy, &key)));
        let decisions = store.hit_joint(&hits).await.unwrap();
        for (policy, decision) in policies.iter().zip(&decisions) {
            assert_expires_in_time(&redis, policy.name(), decision);
        }
    }
}

/// The time of the server.
fn server_time(redis: &TestRedis) -> Timestamp {
    let time = redis::cmd("TIME").query::<(u64, u64)>(&mut redis.connection());
    let (seconds, micros) = time.expect("the server tells its time");
    Timestamp::from_micros(seconds * 1_000_000 + micros)
}

/// Asserts that the key of a policy lives as long as its state is needed, and at most a second and a millisecond longer.
fn assert_expires_in_time(redis: &TestRedis, policy: &str, decision: &Decision) {
    let mut names = redis.keys().into_iter();
    let name = names
        .find(|name| name.contains(policy))
        .expect("the key was written");
    let before = server_time(redis).as_micros() / 1_000;
    let lives_for: i64 = redis.query("PTTL", &name);
    let after = server_time(redis).as_micros() / 1_000;
    assert_ne!(lives_for, -1, "{name} never expires");
    let Ok(lives_for) = u64::try_from(lives_for) else {
        return; // It has expired since the hit, on a busy machine.
    };
    let resets = decision.limits().map(|limit| limit.reset_after);
    let needed = (decision.now + resets.max().unwrap()).as_micros() / 1_000;
    assert!(after + lives_for >= needed, "{name}: {lives_for} ms");
    // A counter is needed for a period longer than it reports.
    let is_counter = name.contains("p4");
    assert!(
        is_counter || before + lives_for <= needed + 1_003,
        "{name}: {lives_for} ms at {before}, needed until {needed}"
    );
}

#[tokio::test]
async fn a_ttl_that_was_removed_or_shortened_is_set_again_by_a_charge_of_another_second() {
    let redis = TestRedis::start().await;
    let store = redis.store(Clock::system()).await;
    for (place, text) in TEXTS.into_iter().enumerate() {
        let name = format!("lost{place}");
        let policy = policy(&name, text);
        store.hit(Hit::new(&policy, &key("a"))).await.unwrap();
        let mut names = redis.keys().into_iter();
        let redis_key = names.find(|it| it.contains(&name)).unwrap();
        let _: bool = redis.query("PERSIST", &redis_key);
        let second = |time: Timestamp| time.as_micros() / 1_000_000;
        let started = second(server_time(&redis));

        // The clock is that of the server, so the test waits for its next second.
        while second(server_time(&redis)) == started {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let decision = store.hit(Hit::new(&policy, &key("a"))).await.unwrap();

        if decision.is_allowed() {
            assert_ne!(redis.query::<i64>("PTTL", &redis_key), -1, "{text}");
        }
    }
}

#[tokio::test]
async fn a_lost_expiry_blocks_nobody_and_is_repaired_by_the_next_allowed_hit() {
    a_lost_expiry_is_repaired(&TestRedis::start().await).await;
}

/// Takes the expiry away from a key of each policy.
pub(crate) async fn a_lost_expiry_is_repaired(redis: &TestRedis) {
    for (place, text) in TEXTS.into_iter().enumerate() {
        let subject = TestStore::redis(redis).await;
        let policy = policy(&format!("lost{place}"), text);
        let least = policy
            .limits()
            .iter()
            .map(ratelimit_core::Limit::capacity)
            .min();
        subject.hit(&policy, &key("a"), 0, least.unwrap()).await;
        let name = redis
            .keys()
            .into_iter()
            .find(|name| name.contains(policy.name()))
            .expect("the key was written");
        let kept: bool = redis.query("PERSIST", &name);
        assert!(kept, "{text}");

        // As if the server had forgotten to expire it for ten years.
        let later = 10 * 366 * 86_400_000_000;
        let decision = subject.hit(&policy, &key("a"), later, least.unwrap()).await;

        assert!(decision.is_allowed(), "{text}");
        assert_ne!(redis.query::<i64>("PTTL", &name), -1, "{text}");
    }
}

#[tokio::test]
async fn a_denied_hit_and_a_look_write_nothing() {
    a_denial_writes_nothing(&TestRedis::start().await).await;
}

/// Denies hits under each policy, and looks at the value.
pub(crate) async fn a_denial_writes_nothing(redis: &TestRedis) {
    let dump = |name: &str| -> Option<Vec<u8>> { redis.query("GET", name) };
    for (place, text) in TEXTS.into_iter().enumerate() {
        let subject = TestStore::redis(redis).await;
        let policy = policy(&format!("still{place}"), text);
        let least = policy
            .limits()
            .iter()
            .map(ratelimit_core::Limit::capacity)
            .min();
        let least = least.unwrap();

        subject.hit(&policy, &key("a"), 1, 0).await;
        assert!(!redis.keys().iter().any(|name| name.contains(policy.name())));

        subject.hit(&policy, &key("a"), 1, least).await;
        let name = redis
            .keys()
            .into_iter()
            .find(|name| name.contains(policy.name()))
            .expect("the key was written");
        let written = dump(&name);
        for cost in [0, 1, least, least + 1] {
            let decision = subject.hit(&policy, &key("a"), 2, cost).await;
            assert_eq!(decision.is_allowed(), cost == 0, "{text}");
        }

        assert_eq!(dump(&name), written, "{text}");
    }
}

#[tokio::test]
async fn on_the_servers_own_clock_the_answers_are_the_models() {
    let redis = TestRedis::start().await;
    let store = redis.store(Clock::system()).await;
    for seed in 0..40 {
        let aim = ratelimit_tests::traces::Aim {
            changes: false,
            steps_back: false,
            ..ratelimit_tests::traces::Aim::ANYTHING
        };
        let mut trace = ratelimit_tests::traces::Trace::new(seed, aim);
        let mut model = Model::new();
        let key = key(&format!("k{seed}"));
        for _ in 0..100 {
            let hit = trace.next_hit();
            let policy: Policy = to_policy("p", &hit.limits);

            let decision = store
                .hit(Hit::new(&policy, &key).cost(hit.cost))
                .await
                .unwrap();

            let now_us = decision.now.as_micros();
            let expected = model.hit(&hit.limits, now_us, hit.cost);
            let words = (expected.binding, expected.overall, expected.limits.clone());
            assert_eq!(told(&decision), words, "seed {seed}: {hit:?}");
            trace.learn(expected);
        }
    }
    redis.assert_every_key_expires();
}
