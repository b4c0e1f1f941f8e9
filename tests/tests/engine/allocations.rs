//! What a hit on a known key allocates in the memory store: nothing, but for the answer of several limits.

use std::time::Duration;

use ratelimit_core::{
    Clock, Limiter, MemoryStore, Policy, Timestamp,
    store::{Hit, Store as _},
};

use crate::stores::{key, policy};

/// Policies of one to three limits, of every algorithm that counts hits, and what a hit allocates: several limits have
/// a list of decisions, and another one of the marks of their charges if the hit is allowed.
const POLICIES: [(&str, u64); 9] = [
    ("1000000/s", 0),
    ("leaky_bucket 1000000/s", 0),
    ("fixed_window 1000000/s", 0),
    ("sliding_window_counter 1000000/s", 0),
    ("sliding_window_log 100/s", 0),
    ("1/min", 0),
    ("1000000/s; fixed_window 1000000/min", 2),
    (
        "1000000/s; fixed_window 1000000/min; sliding_window_counter 1000000/h",
        2,
    ),
    ("1/min; sliding_window_log 100/s; leaky_bucket 1000000/h", 1),
];

/// Counts the allocations of a thousand hits, after as many that fill logs, and make the key known to
/// the store and to those who count offenders.
fn allocations(clock: &Clock, hit: impl Fn()) -> u64 {
    let hits = || {
        for _ in 0..1_000 {
            clock.advance(Duration::from_millis(5));
            hit();
        }
    };
    hits();
    allocation_counter::measure(hits).count_total
}

fn store() -> (Clock, MemoryStore) {
    let clock = Clock::manual(Timestamp::from_secs(1));
    let store = MemoryStore::new().clock(clock.clone());
    (clock, store)
}

fn policies() -> impl Iterator<Item = (Policy, u64)> {
    let policies = POLICIES.iter();
    policies.map(|(text, expected)| (policy("allocations", text), expected * 1_000))
}

#[test]
fn a_hit_on_a_known_key_allocates_nothing_but_the_answer_of_several_limits() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let key = key("a key that is longer than what fits into a small string");
    for (policy, expected) in policies() {
        let (clock, store) = store();

        let counted = allocations(&clock, || {
            let answer = runtime.block_on(store.hit(Hit::new(&policy, &key)));
            assert!(answer.is_ok());
        });

        assert_eq!(counted, expected, "{policy}");
    }
}

#[test]
fn a_check_of_a_known_key_allocates_nothing_but_the_answer_of_several_limits() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let key = key("a key that is longer than what fits into a small string");
    for (policy, expected) in policies() {
        let (clock, store) = store();
        let limiter = Limiter::new(store);

        let counted = allocations(&clock, || {
            let _ = runtime.block_on(limiter.check(&policy, &key));
        });

        assert_eq!(counted, expected, "{policy}");
    }
}
