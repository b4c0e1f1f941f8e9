//! What a process decides on its own while Redis is gone.

use std::time::Duration;

use ratelimit_core::{
    Clock, FailureMode, MemoryStore, Timestamp, Verdict,
    store::{Hit, Store as _},
};
use ratelimit_tests::{
    chaos::{Fixture, Ours, ours},
    random::Random,
};

use crate::harness::{AT_ONCE, heals, key, policy};

const INSTANCES: usize = 4;
const LIMIT: usize = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_instances_that_know_the_budget_is_spent_admit_nothing_in_an_outage() {
    let fixture = Fixture::start(&[]).await;
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        let config = fixture.config().timeout(AT_ONCE);
        instances.push(ours(config, FailureMode::Local).await);
    }
    let limit = policy("shared", &format!("fixed_window {LIMIT}/366d"));
    let admitted = async |instances: &[Ours]| {
        let mut admitted = 0;
        for _ in 0..2 * LIMIT {
            for ours in instances {
                admitted += usize::from(ours.limiter.check(&limit, &key("k")).await.is_allowed());
            }
        }
        admitted
    };

    let healthy = admitted(&instances).await;
    fixture.proxy.turn_away();
    fixture.proxy.reset();
    let outage = admitted(&instances).await;
    fixture.proxy.behave();
    for ours in &instances {
        heals(ours).await;
    }
    let after = admitted(&instances).await;

    println!("local mode: {healthy} with Redis, {outage} without, {after} after; limit {LIMIT}");
    assert_eq!(healthy, LIMIT);
    assert_eq!(outage, 0);
    assert_eq!(after, 0);
}

const LIMITS: [&str; 6] = [
    "10/s burst 5",
    "leaky_bucket 10/s queue 5",
    "fixed_window 5/500ms",
    "sliding_window_log 5/500ms",
    "sliding_window_counter 5/500ms",
    "10/s burst 5; fixed_window 8/s",
];

/// Plays an outage on a clock of its own: a healthy store sees the hits of three instances, and what
/// happened before; the store of one process sees only that instance's, from the outage on.
///
/// Gives what passed of that instance's hits in the end, alone and with the healthy store.
async fn outage(text: &str, seed: u64) -> (u64, u64) {
    let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
    let healthy = MemoryStore::new().clock(clock.clone());
    let alone = MemoryStore::new().clock(clock.clone());
    let (limit, subject) = (policy("outage", text), key("k"));
    let mut random = Random::new(seed);
    let (mut passed_alone, mut passed_healthy) = (0, 0);
    for step in 0..300 {
        clock.advance(Duration::from_millis(
            random.one_of(&[0, 0, 1, 20, 99, 100, 300]),
        ));
        let healthy = healthy.hit(Hit::new(&limit, &subject)).await;
        let is_out = step >= 50;
        if is_out && random.one_in(3) {
            let alone = alone.hit(Hit::new(&limit, &subject)).await;
            passed_alone += u64::from(alone.expect("a decision").is_allowed());
            passed_healthy += u64::from(healthy.expect("a decision").is_allowed());

            assert!(
                passed_alone >= passed_healthy,
                "{text}, seed {seed}, step {step}"
            );
        }
    }
    (passed_alone, passed_healthy)
}

#[tokio::test]
async fn a_process_on_its_own_lets_through_all_that_a_healthy_store_would_have() {
    for text in LIMITS {
        let (mut alone, mut healthy) = (0, 0);
        for seed in 0..200 {
            let (passed_alone, passed_healthy) = outage(text, seed).await;
            alone += passed_alone;
            healthy += passed_healthy;
        }
        println!("local mode, {text}: {alone} passed alone, {healthy} with a healthy store");
        assert!(healthy > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_on_its_own_refuses_only_what_it_has_used_up_itself() {
    let fixture = Fixture::start(&[]).await;
    fixture.proxy.turn_away();
    let ours = Ours::new(fixture.config(), FailureMode::Local);
    let mut random = Random::new(7);
    for text in LIMITS {
        let limit = policy("alone", text);
        let clock = Clock::manual(Timestamp::default());
        let fresh = MemoryStore::new().clock(clock.clone());
        for _ in 0..50 {
            let cost = random.range(1, 2);
            let verdict = ours.limiter.check_cost(&limit, &key(text), cost).await;
            let Verdict::Unchecked { decision, .. } = &verdict else {
                panic!("{verdict:?}");
            };
            let decision = decision.as_ref().expect("a decision of its own");
            clock.set(decision.now);
            let same = fresh.hit(Hit::new(&limit, &key(text)).cost(cost)).await;

            assert_eq!(*decision, same.unwrap().decision);
            tokio::time::sleep(Duration::from_millis(random.range(0, 20))).await;
        }
    }
}
