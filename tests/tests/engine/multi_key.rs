//! Limits of one policy by different keys: decided together, and nothing is charged when one denies.

use std::collections::HashMap;

use ratelimit_core::{Key, KeySet, Policy, Timestamp, store::Hit};
use ratelimit_tests::{
    model::{Answer, Model, Numbers, Spec},
    random::Random,
    redis::TestRedis,
    traces::to_limit,
};

use crate::stores::{TestStore, key, told};

const NAMES: [&str; 3] = ["", "ip", "route"];
const TRACES: u64 = 300;
const HITS: u64 = 30;

fn limits(random: &mut Random) -> Vec<(usize, Spec)> {
    let count = random.range(2, 4);
    (0..count)
        .map(|_| {
            let limit = random.range(1, 6);
            let period_us = random.one_of(&[1_000_000, 60_000_000, 3_600_000_000]);
            let spec = match random.range(1, 4) {
                1 => Spec::FixedWindow { limit, period_us },
                2 => Spec::SlidingWindowCounter { limit, period_us },
                3 => Spec::SlidingWindowLog {
                    limit,
                    period_us,
                    count_denied: false,
                },
                _ => Spec::TokenBucket {
                    capacity: limit,
                    refill: limit,
                    period_us,
                },
            };
            (random.one_of(&[0, 1, 2]), spec)
        })
        .collect()
}

fn to_policy(limits: &[(usize, Spec)]) -> Policy {
    let mut policy: Option<Policy> = None;
    for (name, spec) in limits {
        let limit = to_limit(spec).unwrap();
        policy = Some(match (policy, *name) {
            (None, 0) => Policy::new("keyed", limit).unwrap(),
            (None, name) => {
                let text = format!("{limit} by {}", NAMES[name]);
                Policy::parse("keyed", &text).unwrap()
            }
            (Some(policy), 0) => policy.with_limit(limit).unwrap(),
            (Some(policy), name) => policy.with_limit_by(NAMES[name], limit).unwrap(),
        });
    }
    policy.unwrap()
}

/// The budgets of all keys, each decided by a model of its own.
#[derive(Default)]
struct Budgets(HashMap<(usize, u64), Model>);

impl Budgets {
    /// What the limits say to a hit by three keys: all are charged, or none.
    fn hit(
        &mut self,
        limits: &[(usize, Spec)],
        keys: [u64; 3],
        now_us: u64,
        cost: u64,
    ) -> (bool, Vec<Numbers>) {
        let mut numbers: Vec<Option<(Numbers, Numbers)>> = vec![None; limits.len()];
        let mut charged = Vec::new();
        for (name, &key) in keys.iter().enumerate() {
            let places: Vec<usize> = (0..limits.len()).filter(|&p| limits[p].0 == name).collect();
            if places.is_empty() {
                continue;
            }
            let own: Vec<Spec> = places.iter().map(|&place| limits[place].1).collect();
            let model = self.0.entry((name, key)).or_default();
            let looked = model.clone().hit(&own, now_us, 0).limits;
            let mut after = model.clone();
            let told = after.hit(&own, now_us, cost).limits;
            for (at, &place) in places.iter().enumerate() {
                numbers[place] = Some((told[at], looked[at]));
            }
            charged.push(((name, key), after));
        }
        let numbers = numbers.into_iter().flatten();
        let numbers: Vec<(Numbers, Numbers)> = numbers.collect();
        let allowed = numbers.iter().all(|(told, _)| told.answer.is_allowed());
        if allowed {
            self.0.extend(charged);
        }
        let told = numbers.into_iter().map(|(told, looked)| match told.answer {
            Answer::Allowed { .. } if !allowed => looked,
            _ => told,
        });
        (allowed, told.collect())
    }
}

#[tokio::test]
async fn several_keys_are_charged_together_or_not_at_all() {
    together_or_not_at_all(&TestRedis::start().await, TRACES).await;
}

/// Compares what several keys are charged with what models of each of them say.
pub(crate) async fn together_or_not_at_all(redis: &TestRedis, traces: u64) {
    let mut denied = 0;
    for seed in 0..traces {
        let mut random = Random::new(seed);
        let limits = limits(&mut random);
        let policy = to_policy(&limits);
        let subjects = TestStore::all(redis).await;
        let mut budgets = Budgets::default();
        let mut now_us = random.range(0, 1 << 40);
        for step in 0..HITS {
            now_us += random.one_of(&[0, 0, 1, 200_000, 1_000_000, 61_000_000]);
            let numbers = [0; 3].map(|_| random.range(1, 2));
            let cost = random.range(0, 2);
            let keys = KeySet::new(key(&numbers[0].to_string()))
                .with("ip", Key::tagged("ip", numbers[1].to_string()).unwrap())
                .with(
                    "route",
                    Key::tagged("route", numbers[2].to_string()).unwrap(),
                );

            let (allowed, expected) = budgets.hit(&limits, numbers, now_us, cost);

            denied += u64::from(!allowed);
            for subject in &subjects {
                subject.clock.set(Timestamp::from_micros(now_us));
                let hit = Hit::for_keys(&policy, &keys).cost(cost);
                let decision = subject.store.hit(hit).await.unwrap();
                let place = format!("{} at step {step} of seed {seed}: {policy}", subject.name);
                assert_eq!(decision.is_allowed(), allowed, "{place}");
                assert_eq!(told(&decision).2, expected, "{place}");
            }
        }
    }
    println!("{denied} of {} denied", traces * HITS);
    assert!(denied > traces * HITS / 20);
}

#[tokio::test]
async fn a_refused_key_leaves_the_others_untouched() {
    let redis = TestRedis::start().await;
    let policy = Policy::parse("api", "5/min; 1/min by ip").unwrap();
    for subject in TestStore::all(&redis).await {
        let home = Key::ip([192, 0, 2, 1].into());
        let alice = KeySet::new(key("alice")).with("ip", home.clone());
        let bob = KeySet::new(key("bob")).with("ip", home);
        let hit = async |keys: &KeySet, cost| {
            let hit = Hit::for_keys(&policy, keys).cost(cost);
            subject.store.hit(hit).await.unwrap()
        };

        assert!(hit(&alice, 1).await.is_allowed());
        for _ in 0..3 {
            assert!(!hit(&bob, 1).await.is_allowed());
        }

        let look = hit(&bob, 0).await;
        let left: Vec<u64> = look.limits().map(|limit| limit.remaining).collect();
        assert_eq!(left, [5, 0], "{}", subject.name);

        subject.store.reset(&policy, &bob).await.unwrap();
        assert!(
            hit(&bob, 1).await.is_allowed(),
            "all its keys were forgotten"
        );
    }
}

#[tokio::test]
async fn the_same_key_under_two_names_is_two_budgets() {
    let redis = TestRedis::start().await;
    let policy = Policy::parse("api", "5/min; 5/min by ip").unwrap();
    for subject in TestStore::all(&redis).await {
        let both = KeySet::new(key("x")).with("ip", key("x"));

        let decision = subject
            .store
            .hit(Hit::for_keys(&policy, &both))
            .await
            .unwrap();

        let left: Vec<u64> = decision.limits().map(|limit| limit.remaining).collect();
        assert_eq!(left, [4, 4], "{}", subject.name);
    }
}
