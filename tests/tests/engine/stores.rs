//! A store under test, and the model's words for its answers.

use std::{sync::Arc, time::Duration};

use ratelimit_core::{
    Clock, Decision, Key, LimitDecision, MemoryStore, Outcome, Policy, Timestamp,
    store::{Hit, Store},
};
use ratelimit_tests::{
    model::{Answer, Numbers},
    redis::TestRedis,
};

/// A store on a clock that the test moves.
#[derive(Clone, Debug)]
pub(crate) struct TestStore {
    pub(crate) name: &'static str,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
}

impl TestStore {
    pub(crate) fn memory() -> TestStore {
        let clock = Clock::manual(Timestamp::default());
        TestStore {
            name: "memory",
            store: Arc::new(MemoryStore::new().clock(clock.clone())),
            clock,
        }
    }

    pub(crate) async fn redis(redis: &TestRedis) -> TestStore {
        let clock = Clock::manual(Timestamp::default());
        TestStore {
            name: "redis",
            store: Arc::new(redis.store(clock.clone()).await),
            clock,
        }
    }

    /// Both stores.
    pub(crate) async fn all(redis: &TestRedis) -> [TestStore; 2] {
        [TestStore::memory(), TestStore::redis(redis).await]
    }

    pub(crate) async fn hit(&self, policy: &Policy, key: &Key, now_us: u64, cost: u64) -> Decision {
        self.clock.set(Timestamp::from_micros(now_us));
        let decision = self.store.hit(Hit::new(policy, key).cost(cost)).await;
        decision.expect("the store decides").decision
    }
}

/// A key by name.
pub(crate) fn key(name: &str) -> Key {
    Key::new(name).expect("a valid key")
}

/// A policy from its text.
pub(crate) fn policy(name: &str, text: &str) -> Policy {
    Policy::parse(name, text).expect("a valid policy")
}

/// What a decision says of the whole policy, and of each limit, in the model's words.
pub(crate) fn told(decision: &Decision) -> (usize, Numbers, Vec<Numbers>) {
    let overall = Numbers {
        answer: answer(decision.outcome),
        limit: decision.limit,
        remaining: decision.remaining,
        reset_after_us: micros(decision.reset_after),
    };
    (
        decision.binding,
        overall,
        decision.limits().map(numbers).collect(),
    )
}

fn numbers(limit: LimitDecision) -> Numbers {
    Numbers {
        answer: answer(limit.outcome),
        limit: limit.limit,
        remaining: limit.remaining,
        reset_after_us: micros(limit.reset_after),
    }
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Allowed { delay } => Answer::Allowed {
            delay_us: micros(delay),
        },
        Outcome::Denied { retry_after } => Answer::Denied {
            retry_after_us: micros(retry_after),
        },
        Outcome::Impossible => Answer::Impossible,
        other => panic!("the model has no such outcome: {other:?}"),
    }
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
