//! Units that are given back without a receipt.

use std::time::Duration;

use ratelimit_core::{
    Clock, FailureMode, KeySet, Limiter, MemoryStore, Policy, Timestamp,
    store::{Charged, Hit, Overdraft, Settlement, Store, StoreError, StoreFuture},
};
use ratelimit_tests::{
    random::Random,
    redis::TestRedis,
    traces::{JointTrace, to_soft_policy},
};

use crate::stores::{TestStore, key, policy, told};

#[tokio::test]
async fn a_credit_is_the_same_in_memory_and_in_redis() {
    let redis = TestRedis::start().await;
    let mut applied = 0_u32;
    for seed in 0..200 {
        let subjects = TestStore::all(&redis).await;
        let mut random = Random::new(seed);
        let mut trace = JointTrace::new(seed);
        for step in 0..16 {
            let (now_us, members) = trace.next_joint();
            for subject in &subjects {
                subject.clock.set(Timestamp::from_micros(now_us));
            }
            for member in &members {
                let name = format!("p{}", member.budget);
                let policy = to_soft_policy(&name, &member.limits, member.asked.percent);
                let key = key("k");
                let hit = Hit::new(&policy, &key)
                    .cost(member.asked.cost)
                    .slot(member.asked.slot)
                    .overdraft(Overdraft::Allowed);
                let units = random.range(0, member.asked.cost.min(20));
                let is_credited = random.range(0, 1) == 0;
                let mut answers = Vec::new();
                for subject in &subjects {
                    let limiter = Limiter::new(subject.store.clone());
                    let keys = key.clone().into();
                    let settled = if is_credited {
                        limiter.credit(&policy, &keys, units).await.unwrap()
                    } else {
                        Settlement::Unchanged
                    };
                    let decision = subject.store.hit(hit).await.unwrap();
                    answers.push((settled, told(&decision)));
                }
                applied += u32::from(answers[0].0 == Settlement::Applied);
                assert_eq!(
                    answers[0], answers[1],
                    "step {step} of seed {seed}: {member:?}"
                );
            }
        }
    }
    println!("{applied} credits applied");
    assert!(applied > 100, "{applied}");
}

async fn remaining(limiter: &Limiter, policy: &Policy) -> u64 {
    let peeked = limiter.peek(policy, &key("k")).await;
    peeked.decision().unwrap().remaining
}

#[tokio::test]
async fn a_credit_gives_back_what_was_spent_and_no_more() {
    for text in [
        "10/h",
        "leaky_bucket 10/h police",
        "fixed_window 10/h",
        "sliding_window_log 10/h",
        "sliding_window_counter 10/h",
    ] {
        let clock = Clock::manual(Timestamp::from_secs(3_600));
        let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
        let (policy, keys) = (policy("p", text), KeySet::from(key("k")));
        assert!(limiter.check_cost(&policy, &key("k"), 7).await.is_allowed());

        let unchanged = limiter.credit(&policy, &keys, 0).await.unwrap();
        assert_eq!(
            (unchanged, remaining(&limiter, &policy).await),
            (Settlement::Unchanged, 3)
        );
        let some = limiter.credit(&policy, &keys, 5).await.unwrap();
        assert_eq!(
            (some, remaining(&limiter, &policy).await),
            (Settlement::Applied, 8),
            "{text}"
        );
        let rest = limiter.credit(&policy, &keys, u64::MAX).await.unwrap();
        assert_eq!(
            (rest, remaining(&limiter, &policy).await),
            (Settlement::Applied, 10),
            "{text}"
        );
        let full = limiter.credit(&policy, &keys, 5).await.unwrap();
        assert_eq!(
            (full, remaining(&limiter, &policy).await),
            (Settlement::Unchanged, 10),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_log_gives_its_oldest_units_back() {
    let clock = Clock::manual(Timestamp::from_secs(3_600));
    let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
    let (policy, keys) = (
        policy("p", "sliding_window_log 4/h"),
        KeySet::from(key("k")),
    );
    assert!(limiter.check_cost(&policy, &key("k"), 2).await.is_allowed());
    clock.advance(Duration::from_secs(1_800));
    assert!(limiter.check_cost(&policy, &key("k"), 2).await.is_allowed());

    limiter.credit(&policy, &keys, 2).await.unwrap();

    clock.advance(Duration::from_secs(1_800));
    assert_eq!(remaining(&limiter, &policy).await, 2);
}

#[tokio::test]
async fn without_the_store_a_credit_is_an_error() {
    #[derive(Debug)]
    struct Down;

    impl Store for Down {
        fn hit(&self, _: Hit<'_>) -> StoreFuture<Charged> {
            StoreFuture::ready(Err(StoreError::TimedOut))
        }

        fn reset(&self, _: &Policy, _: &KeySet) -> StoreFuture<()> {
            StoreFuture::ready(Err(StoreError::TimedOut))
        }
    }

    let limiter = Limiter::new(Down).failure_mode(FailureMode::Local);
    let (policy, keys) = (policy("p", "fixed_window 5/h"), KeySet::from(key("k")));
    assert!(limiter.check_cost(&policy, &key("k"), 5).await.is_allowed());

    assert!(limiter.credit(&policy, &keys, 5).await.is_err());
    assert_eq!(remaining(&limiter, &policy).await, 0);
}
