//! A hit on a known key allocates nothing in the memory store.

use ratelimit_core::{Clock, Limiter, MemoryStore, Timestamp};

use crate::subject::{key, policy};

#[test]
fn a_hit_on_a_known_key_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    for text in [
        "1000000/s",
        "leaky_bucket 1000000/s",
        "fixed_window 1000000/s",
        "sliding_window_counter 1000000/s",
        "1/min",
        "1000000/s; fixed_window 1000000/min; 1000000/h",
    ] {
        let clock = Clock::manual(Timestamp::from_secs(1));
        let limiter = Limiter::new(MemoryStore::new().clock(clock));
        let limit = policy("allocations", text);
        let key = key("a key that is longer than what fits into a small string");
        let check = || {
            let _ = runtime.block_on(limiter.check(&limit, &key));
        };
        // The first hit makes the key known, the first denial makes it known as an offender.
        (0..2).for_each(|_| check());

        let counted = allocation_counter::measure(|| (0..1_000).for_each(|_| check()));

        assert_eq!(counted.count_total, 0, "{text}");
    }
}

#[test]
fn a_log_in_its_steady_state_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let clock = Clock::manual(Timestamp::from_secs(1));
    let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
    let limit = policy("allocations", "sliding_window_log 100/s");
    let key = key("a");
    let check = || {
        clock.advance(std::time::Duration::from_millis(5));
        let _ = runtime.block_on(limiter.check(&limit, &key));
    };
    (0..1_000).for_each(|_| check());

    let counted = allocation_counter::measure(|| (0..1_000).for_each(|_| check()));

    assert_eq!(counted.count_total, 0);
}
