//! What a process decides on its own while Redis is gone.

use std::time::Duration;

use ratelimit_core::{Clock, FailureMode, Hit, MemoryStore, Store as _, Timestamp, Verdict};
use ratelimit_tests::{
    chaos::{Bench, Ours, ours},
    random::Random,
};

use crate::instance::{AT_ONCE, heals, key, policy};

const INSTANCES: usize = 4;
const LIMIT: usize = 25;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_instances_admit_at_most_four_limits_in_an_outage() {
    let bench = Bench::start(&[]).await;
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        let config = bench.config().time_budget(AT_ONCE);
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
    bench.proxy.turn_away();
    bench.proxy.reset();
    let outage = admitted(&instances).await;
    bench.proxy.behave();
    for ours in &instances {
        heals(ours).await;
    }
    let after = admitted(&instances).await;

    println!("local mode: {healthy} with Redis, {outage} without, {after} after; limit {LIMIT}");
    assert_eq!(healthy, LIMIT);
    assert!(outage <= INSTANCES * LIMIT, "{outage}");
    assert_eq!(after, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_on_its_own_refuses_nothing_that_redis_would_allow() {
    let bench = Bench::start(&[]).await;
    bench.proxy.turn_away();
    let mut random = Random::new(7);
    for text in [
        "10/s burst 5",
        "leaky_bucket 10/s queue 5",
        "fixed_window 5/500ms",
        "sliding_window_log 5/500ms",
        "sliding_window_counter 5/500ms",
        "10/s burst 5; fixed_window 8/s",
    ] {
        let limit = policy("alone", text);
        let ours: Vec<Ours> = (0..3)
            .map(|_| Ours::new(bench.config(), FailureMode::Local))
            .collect();
        // A healthy store sees the hits of all instances, and one instance only its own.
        let clock = Clock::manual(Timestamp::default());
        let healthy = MemoryStore::new().clock(clock.clone());
        let (mut refused, mut allowed) = (0, 0);
        for _ in 0..200 {
            let instance = &ours[usize::try_from(random.range(0, 2)).unwrap()];
            let cost = random.range(1, 2);
            let verdict = instance.limiter.check_cost(&limit, &key("k"), cost).await;
            let Verdict::Unchecked { decision, .. } = &verdict else {
                panic!("{verdict:?}");
            };
            clock.set(decision.as_ref().unwrap().now);
            let would = healthy.hit(Hit::new(&limit, &key("k")).cost(cost)).await;
            let would = would.unwrap().is_allowed();
            refused += u32::from(!verdict.is_allowed());
            allowed += u32::from(would);

            assert!(verdict.is_allowed() || !would, "{text}: refused alone");
            if random.one_in(2) {
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        }
        println!("local mode, {text}: {refused} refused alone, {allowed} of 200 allowed by all");
        assert!(refused > 0 && allowed > 10);
    }
}
