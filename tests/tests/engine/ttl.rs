//! Every key expires, no sooner than it may, and a key that lost its expiry blocks nobody (law 7).

use ratelimit_core::{
    Clock, Policy,
    store::{Hit, Store as _},
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

        let name = redis
            .keys()
            .into_iter()
            .find(|name| name.contains(policy.name()))
            .expect("the key was written");
        let lives_for = redis.query::<i64>("PTTL", &name);
        let needs = decision
            .limits()
            .map(|limit| i64::try_from(limit.reset_after.as_millis()).unwrap())
            .max()
            .unwrap();
        // Between the script and the question some milliseconds pass.
        assert!(
            lives_for >= (needs - 500).max(500),
            "{text}: {lives_for} of {needs}"
        );
    }
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn hits_of_one_second_keep_the_expiry_and_it_is_late_enough_after_each() {
    keeps_the_expiry(&TestRedis::start().await).await;
}

/// Hits a key several times under each policy, and looks at the expiry after each hit.
pub(crate) async fn keeps_the_expiry(redis: &TestRedis) {
    let store = redis.store(Clock::system()).await;
    for (place, text) in TEXTS.into_iter().enumerate() {
        let policy = policy(&format!("kept{place}"), text);
        let mut expiries = Vec::new();
        for _ in 0..4 {
            let decision = store.hit(Hit::new(&policy, &key("a"))).await.unwrap();
            let name = redis.keys().into_iter();
            let name = name.filter(|name| name.contains(policy.name())).max();
            let name = name.expect("the key was written");
            let expires_ms: u64 = redis.query("PEXPIRETIME", &name);
            let resets = decision.limits().map(|limit| limit.reset_after);
            let needed = decision.now + resets.max().unwrap();
            assert!(
                expires_ms * 1_000 >= needed.as_micros(),
                "{text}: {expires_ms} ms, needed until {needed:?}"
            );
            // A counter is needed for a period longer than it reports.
            let at_most_ms = needed.as_micros() / 1_000 + 2_001;
            assert!(
                expires_ms <= at_most_ms || text.contains("counter"),
                "{text}: {expires_ms} ms, needed until {needed:?}"
            );
            expiries.push(expires_ms);
            if !decision.is_allowed() {
                break;
            }
        }
        // A bucket of 1/s and a log need more with each hit; a window needs the same until its end.
        if text.starts_with("fixed_window") || text.starts_with("sliding_window_counter") {
            expiries.dedup();
            assert!(expiries.len() <= 2, "{text}: {expiries:?}");
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
            let words = (expected.speaker, expected.overall, expected.limits.clone());
            assert_eq!(told(&decision), words, "seed {seed}: {hit:?}");
            trace.learn(expected);
        }
    }
    redis.assert_every_key_expires();
}
