//! The memory store stays within its bounds, and evicts no key that it should keep.

use std::time::Duration;

use ratelimit_core::{
    Clock, KeySet, MemoryStore, Timestamp,
    store::{Hit, Store as _},
};

use crate::stores::{key, policy};

async fn spend(store: &MemoryStore, limit: &ratelimit_core::Policy, name: &str, cost: u64) -> bool {
    let hit = store.hit(Hit::new(limit, &key(name)).cost(cost)).await;
    hit.unwrap().is_allowed()
}

fn manual() -> (Clock, MemoryStore) {
    let clock = Clock::manual(Timestamp::from_secs(1_000_000));
    let store = MemoryStore::new().capacity(100).clock(clock.clone());
    (clock, store)
}

#[tokio::test]
async fn an_exhausted_key_outlives_any_number_of_fresh_ones() {
    let (_, store) = manual();
    let limit = policy("bound", "3/h");
    for name in 0..50 {
        assert!(spend(&store, &limit, &format!("used-up-{name}"), 3).await);
    }

    for name in 0..10_000 {
        spend(&store, &limit, &format!("fresh-{name}"), 1).await;
    }

    for name in 0..50 {
        assert!(!spend(&store, &limit, &format!("used-up-{name}"), 1).await);
    }
    assert!(store.stats().keys <= 100);
    assert!(store.stats().evicted > 9_000);
}

#[tokio::test]
async fn a_key_that_is_hit_again_and_again_outlives_those_that_came_once() {
    let (_, store) = manual();
    let limit = policy("bound", "1000/h");
    for spent in 1..=200 {
        assert!(spend(&store, &limit, "regular", 1).await);
        for name in 0..50 {
            spend(&store, &limit, &format!("once-{spent}-{name}"), 1).await;
        }
    }

    let look = store.hit(Hit::new(&limit, &key("regular")).cost(0)).await;

    assert_eq!(look.unwrap().remaining, 800);
    assert!(store.stats().evicted > 9_000);
}

#[tokio::test]
async fn a_newcomer_to_a_full_store_takes_the_place_of_the_key_that_recovers_first() {
    let (clock, store) = manual();
    let (day, hour) = (policy("day", "1/d"), policy("hour", "1/h"));
    for name in 0..50 {
        assert!(spend(&store, &day, &format!("day-{name}"), 1).await);
        clock.advance(Duration::from_secs(1));
        assert!(spend(&store, &hour, &format!("hour-{name}"), 1).await);
    }

    for name in 0..10 {
        let newcomer = format!("late-{name}");
        assert!(spend(&store, &day, &newcomer, 1).await, "{newcomer}");
        assert!(!spend(&store, &day, &newcomer, 1).await, "{newcomer}");
    }
    let stats = store.stats();
    assert_eq!((stats.evicted, stats.evicted_exhausted), (0, 10));

    for name in 0..50 {
        assert!(!spend(&store, &day, &format!("day-{name}"), 1).await);
        let look = store.hit(Hit::new(&hour, &key(&format!("hour-{name}"))).cost(0));
        let was_evicted = look.await.unwrap().remaining == 1;
        assert_eq!(was_evicted, name < 10, "hour-{name}");
    }
}

#[tokio::test]
async fn a_look_at_a_newcomer_tells_what_its_hit_gets() {
    let (_, store) = manual();
    let limit = policy("bound", "3/h");
    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("used-up-{name}"), 3).await);
    }

    for name in 0..10 {
        let newcomer = key(&format!("late-{name}"));
        let look = store
            .hit(Hit::new(&limit, &newcomer).cost(0))
            .await
            .unwrap();
        let foreseen = store
            .hit(Hit::new(&limit, &newcomer).dry_run())
            .await
            .unwrap();
        let hit = store.hit(Hit::new(&limit, &newcomer)).await.unwrap();

        assert_eq!((look.remaining, hit.remaining), (3, 2));
        assert!(foreseen.is_allowed() && hit.is_allowed());
    }
}

#[tokio::test]
async fn a_reset_in_a_full_store_gives_the_whole_budget_back() {
    let (_, store) = manual();
    let limit = policy("bound", "3/h");
    for name in 0..120 {
        assert!(spend(&store, &limit, &format!("used-up-{name}"), 3).await);
    }

    store
        .reset(&limit, &KeySet::new(key("used-up-119")))
        .await
        .unwrap();

    assert!(spend(&store, &limit, "used-up-119", 3).await);
}

#[tokio::test]
async fn an_allowed_hit_on_two_keys_is_charged_on_both() {
    let (clock, store) = manual();
    let limit = policy("bound", "10/h; 10/h by ip");
    let mut random = 1_u64;
    let mut number = |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % bound
    };

    let (mut admitted, mut charged_nowhere) = (0, 0);
    for _ in 0..40_000 {
        let keys = KeySet::new(key(&format!("user-{}", number(60))))
            .with("ip", key(&format!("ip-{}", number(200))));
        let hit = Hit::for_keys(&limit, &keys).cost(1 + number(6));
        if store.hit(hit).await.unwrap().is_allowed() {
            admitted += 1;
            let look = store.hit(hit.cost(0)).await.unwrap();
            let is_charged = look.limits().all(|limit| limit.remaining + hit.cost <= 10);
            charged_nowhere += u64::from(!is_charged);
        }
        clock.advance(Duration::from_secs(number(20)));
    }

    assert_eq!(charged_nowhere, 0, "of {admitted}");
    assert!(admitted > 10_000, "{admitted}");
}

#[tokio::test]
async fn one_key_that_recovers_late_does_not_hide_those_that_have_recovered() {
    let (clock, store) = manual();
    let (year, limit) = (policy("year", "1/366d"), policy("bound", "2/h"));
    assert!(spend(&store, &year, "late", 1).await);
    for name in 0..99 {
        assert!(spend(&store, &limit, &format!("used-up-{name}"), 2).await);
    }

    clock.advance(Duration::from_secs(31 * 60));

    for name in 0..99 {
        assert!(spend(&store, &limit, &format!("late-{name}"), 2).await);
    }
    assert!(!spend(&store, &year, "late", 1).await);
    let stats = store.stats();
    let with_budget = stats.evicted + stats.evicted_crowded_out;
    assert_eq!((with_budget, stats.evicted_exhausted), (99, 0));
}

#[tokio::test]
async fn a_recovery_months_before_the_expiry_is_known() {
    let (clock, store) = manual();
    let limit = policy("bound", "2/200d");
    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("used-up-{name}"), 2).await);
    }

    clock.advance(Duration::from_secs(101 * 86_400));

    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("late-{name}"), 2).await);
    }
}

#[tokio::test]
async fn a_log_that_is_longer_than_the_store_is_large_holds_its_limit() {
    for (capacity, limits, hits, most) in [
        (100_000, "sliding_window_log 10000/h", 40_000, 10_000),
        (1_000, "sliding_window_log 5000/h", 25_000, 5_000),
        (1, "sliding_window_log 100/h", 1_000, 100),
    ] {
        let clock = Clock::manual(Timestamp::from_secs(1_000_000));
        let store = MemoryStore::new().capacity(capacity).clock(clock);
        let limit = policy("bound", limits);

        let mut admitted = 0;
        for _ in 0..hits {
            admitted += u64::from(spend(&store, &limit, "a", 1).await);
        }

        assert_eq!(admitted, most, "{limits} in a store for {capacity} keys");
    }
}

#[tokio::test]
async fn a_key_that_holds_a_slot_is_not_forgotten() {
    let (_, store) = manual();
    let slots = policy("slots", "concurrency 5 lease 1h");
    let fresh = policy("bound", "3/h");
    let busy = key("busy");
    let held = store.hit(Hit::new(&slots, &busy).slot(7)).await.unwrap();
    assert_eq!(held.remaining, 4);

    for name in 0..10_000 {
        spend(&store, &fresh, &format!("fresh-{name}"), 1).await;
    }

    let look = store.hit(Hit::new(&slots, &busy).cost(0)).await.unwrap();
    assert_eq!(look.remaining, 4);
}

#[tokio::test]
async fn recovered_keys_make_room_again() {
    let (clock, store) = manual();
    let limit = policy("bound", "2/min burst 2");
    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("used-up-{name}"), 2).await);
    }

    clock.advance(Duration::from_secs(31));

    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("late-{name}"), 2).await);
    }
    assert_eq!(store.stats().evicted_exhausted, 0);
}

#[tokio::test]
async fn long_logs_count_towards_the_bytes_and_not_towards_the_keys() {
    let clock = Clock::manual(Timestamp::from_secs(1_000_000));
    let store = || MemoryStore::new().capacity(100).clock(clock.clone());
    let limit = policy("bound", "sliding_window_log 1000/h");
    let (by_keys, by_bytes) = (store(), store().max_bytes(100_000));

    for name in 0..100 {
        let name = format!("log-{name}");
        assert!(spend(&by_keys, &limit, &name, 999).await);
        assert!(spend(&by_bytes, &limit, &name, 999).await);
    }

    assert_eq!(by_keys.stats().keys, 100);
    let within = by_bytes.stats();
    assert!(
        (2..=12).contains(&within.keys) && within.bytes <= 100_000,
        "{within:?}"
    );
    assert_eq!(within.evicted, 100 - within.keys as u64);
}

/// The state of a counter has a box of 48 bytes, which a bound on bytes must not miss.
#[tokio::test]
async fn the_box_of_a_counter_counts_towards_the_bytes() {
    let bytes = async |limits: &str| {
        let (_, store) = manual();
        assert!(spend(&store, &policy("bound", limits), "key", 1).await);
        store.stats().bytes
    };

    let window = bytes("fixed_window 10/h").await;

    assert_eq!(bytes("sliding_window_counter 10/h").await, window + 48);
}

/// Stamps that left the window free their memory, and the store counts what is allocated.
#[tokio::test]
async fn logs_that_drained_take_the_bytes_of_short_ones() {
    let (clock, store) = manual();
    let limit = policy("bound", "sliding_window_log 10000/h");
    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("log-{name}"), 9_000).await);
    }
    assert!(store.stats().bytes >= 100 * 9_000 * 8);

    clock.advance(Duration::from_secs(1_800));
    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("log-{name}"), 1).await);
    }
    clock.advance(Duration::from_secs(1_801));
    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("log-{name}"), 1).await);
    }

    let stats = store.stats();
    assert_eq!(stats.keys, 100);
    assert!(stats.bytes <= 100 * (160 + 64 * 8), "{stats:?}");
}

/// A key that alone is larger than the bound is evicted by others, and never by its own hit.
#[tokio::test]
async fn a_log_larger_than_the_bytes_of_the_store_holds_its_limit() {
    let (_, store) = manual();
    let store = store.max_bytes(1_000);
    let (limit, log) = (
        policy("bound", "10/h"),
        policy("log", "sliding_window_log 500/h"),
    );

    let mut admitted = 0;
    for _ in 0..1_000 {
        admitted += u64::from(spend(&store, &log, "a", 1).await);
    }
    assert_eq!(admitted, 500);
    assert!(spend(&store, &limit, "b", 1).await);
    let stats = store.stats();
    assert_eq!((stats.keys, stats.evicted_exhausted), (1, 1));
}

#[tokio::test]
async fn keys_that_a_store_full_of_exhausted_ones_evicts_are_counted_apart() {
    let (clock, store) = manual();
    let (day, hour) = (policy("day", "1/d"), policy("hour", "10/h"));
    for name in 0..99 {
        assert!(spend(&store, &day, &format!("used-up-{name}"), 1).await);
    }

    let mut admitted = 0;
    for _ in 0..100 {
        for name in ["a", "b", "c", "d"] {
            admitted += u64::from(spend(&store, &hour, name, 1).await);
            clock.advance(Duration::from_millis(10));
        }
    }

    let stats = store.stats();
    assert_eq!((admitted, stats.keys, stats.evicted), (400, 100, 0));
    assert_eq!(
        (stats.evicted_crowded_out, stats.evicted_exhausted),
        (399, 0)
    );
}

/// A shard is large enough for several full logs, also when few bytes are shared by many keys.
#[tokio::test]
async fn a_log_in_a_store_of_few_bytes_holds_its_limit_beside_other_keys() {
    let clock = Clock::manual(Timestamp::from_secs(1_000_000));
    let store = MemoryStore::new().max_bytes(16 << 20).clock(clock);
    let (log, other) = (
        policy("log", "sliding_window_log 10000/h"),
        policy("other", "5/h"),
    );

    let mut admitted = 0;
    for number in 0..25_000 {
        admitted += u64::from(spend(&store, &log, "a", 1).await);
        for name in 0..10 {
            spend(&store, &other, &format!("{number}-{name}"), 1).await;
        }
    }

    assert_eq!(admitted, 10_000);
    let stats = store.stats();
    assert!(
        stats.evicted > 1_000 && stats.evicted_exhausted == 0,
        "{stats:?}"
    );
}

#[tokio::test]
async fn a_peek_under_another_tier_does_not_make_an_exhausted_key_evictable() {
    let (_, store) = manual();
    let (free, pro) = (policy("tiers", "3/h"), policy("tiers", "1000/h"));
    assert!(spend(&store, &free, "used-up", 3).await);

    let peek = store.hit(Hit::new(&pro, &key("used-up")).cost(0)).await;
    assert!(peek.unwrap().remaining > 0);
    let fresh = policy("fresh", "3/h");
    for name in 0..10_000 {
        spend(&store, &fresh, &format!("fresh-{name}"), 1).await;
    }

    assert!(!spend(&store, &free, "used-up", 1).await);
}

#[tokio::test]
async fn a_key_with_states_of_another_tier_is_not_evicted_for_fresh_keys() {
    let (_, store) = manual();
    let (free, pro) = (
        policy("tiers", "1000000/d"),
        policy("tiers", "1000000/d; 20/d"),
    );
    assert!(spend(&store, &pro, "customer", 20).await);
    assert!(spend(&store, &free, "customer", 1).await);

    let fresh = policy("fresh", "3/h");
    for name in 0..10_000 {
        spend(&store, &fresh, &format!("fresh-{name}"), 1).await;
    }

    assert!(!spend(&store, &pro, "customer", 1).await);
}

/// Threads that report at the same time once subtracted newer counts from older ones.
#[test]
fn hits_of_many_threads_that_report_at_once_do_not_panic() {
    let (clock, store) = manual();
    let limit = policy("bound", "1/d");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (clock, store, limit) = (&clock, &store, &limit);
            scope.spawn(move || {
                for name in 0..20_000 {
                    clock.advance(Duration::from_millis(900));
                    let name = key(&format!("{thread}-{name}"));
                    drop(store.hit(Hit::new(limit, &name)));
                }
            });
        }
    });
}

#[tokio::test]
async fn memory_returns_when_keys_expire_and_a_few_hits_come_by() {
    let clock = Clock::manual(Timestamp::from_secs(1_000_000));
    let store = MemoryStore::new().clock(clock.clone());
    let limit = policy("bound", "10/s");
    for name in 0..100_000 {
        spend(&store, &limit, &name.to_string(), 1).await;
    }
    assert_eq!(store.stats().keys, 100_000);

    clock.advance(Duration::from_secs(60));
    for _ in 0..20_000 {
        spend(&store, &limit, "the only one", 1).await;
    }

    assert_eq!(store.stats().keys, 1);
}

#[test]
fn five_million_keys_stay_within_the_bound() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let store = MemoryStore::new();
    let limit = policy("bound", "10/d");
    let before = resident_kib();

    runtime.block_on(async {
        for name in 0..5_000_000 {
            spend(&store, &limit, &format!("user-{name}"), 1).await;
        }
    });

    let keys = store.stats().keys;
    let grown = resident_kib() - before;
    println!(
        "5,000,000 keys: {keys} kept, {} MiB resident, {} bytes a key",
        grown / 1024,
        grown * 1024 / keys
    );
    assert!(keys <= 1_000_000);
    // Resident memory includes the allocator's unused pages; the bench counts allocated bytes.
    assert!(grown * 1024 <= 112 * keys);
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}
