//! Checks that are decided in memory.

use std::time::Duration;

use ratelimit_core::{Clock, Key, Limiter, MemoryStore, Policy, Timestamp, store::Hit};

use super::{Work, poll_now};

/// Between two checks, so that buckets refill and logs lose their oldest.
const PAUSE: Duration = Duration::from_millis(11);

/// Budgets that no run uses up, and budgets that are used up at once.
const LIMITS: [(&str, &str, &str); 6] = [
    ("token_bucket", "token_bucket 1000000/s", "token_bucket 1/h"),
    ("leaky_bucket", "leaky_bucket 1000000/s", "leaky_bucket 1/h"),
    ("fixed_window", "fixed_window 1000000/s", "fixed_window 1/d"),
    (
        "sliding_window_counter",
        "sliding_window_counter 1000000/s",
        "sliding_window_counter 1/d",
    ),
    (
        "sliding_window_log",
        "sliding_window_log 100/s",
        "sliding_window_log 100/d",
    ),
    (
        "several",
        "1000000/s; fixed_window 1000000/min; sliding_window_counter 1000000/h",
        "1000000/s; fixed_window 1000000/min; 1/h",
    ),
];

/// A check of each algorithm on one key, allowed and denied, on a clock that every check moves.
pub fn checks() -> Vec<Work> {
    let mut works = Vec::new();
    for (name, plenty, little) in LIMITS {
        works.push(check(format!("memory.{name}.allowed"), plenty));
        works.push(check(format!("memory.{name}.denied"), little));
    }
    works.push(system_clock());
    works.push(slot());
    works
}

fn check(name: String, limits: &str) -> Work {
    let clock = Clock::manual(Timestamp::from_secs(1_700_000_000));
    let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
    let (policy, key) = (policy(limits), key());
    Work::new(name, move || {
        clock.advance(PAUSE);
        let _ = poll_now(limiter.check(&policy, &key));
    })
}

/// The same with the clock that services have.
fn system_clock() -> Work {
    let limiter = Limiter::in_memory();
    let (policy, key) = (policy("1000000/s"), key());
    Work::new("memory.token_bucket.system_clock", move || {
        let _ = poll_now(limiter.check(&policy, &key));
    })
}

/// A slot, taken and given back.
fn slot() -> Work {
    let limiter = Limiter::in_memory();
    let (policy, key) = (policy("concurrency 5"), key());
    Work::new("memory.concurrency.held", move || {
        drop(poll_now(limiter.reserve(Hit::new(&policy, &key))));
    })
}

fn policy(limits: &str) -> Policy {
    Policy::parse("counted", limits).expect("limits that are well formed")
}

/// As long as an address or a number of a user is.
fn key() -> Key {
    Key::new("user:12345678").expect("a key that is not empty")
}
