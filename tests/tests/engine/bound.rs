//! The memory store stays within its bound, and never forgets who is used up.

use std::time::Duration;

use ratelimit_core::{Change, Clock, Hit, MemoryStore, Receipt, Settled, Store as _, Timestamp};

use crate::subject::{key, policy};

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
async fn newcomers_share_one_budget_when_everybody_is_used_up() {
    let (clock, store) = manual();
    let limit = policy("bound", "3/h");
    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("used-up-{name}"), 3).await);
    }

    let mut admitted = 0;
    for name in 0..1_000 {
        admitted += u64::from(spend(&store, &limit, &format!("late-{name}"), 1).await);
    }

    assert_eq!(admitted, 3);
    assert_eq!(store.stats().overflowed, 1_000);
    clock.advance(Duration::from_secs(1_200));
    assert!(spend(&store, &limit, "after-a-third-of-an-hour", 1).await);
}

#[tokio::test]
async fn a_refund_on_a_shared_budget_credits_nobody() {
    let (_, store) = manual();
    let limit = policy("bound", "3/h");
    for name in 0..100 {
        assert!(spend(&store, &limit, &format!("used-up-{name}"), 3).await);
    }
    let (one, other) = (key("late-1"), key("late-2"));
    let hit = Hit::new(&limit, &one).cost(2);
    let charged = store.hit(hit).await.unwrap();
    assert!(spend(&store, &limit, "late-2", 1).await);

    let receipt = Receipt::of(hit, &charged).unwrap();
    let refunded = store.settle(&receipt, Change::Refund { units: 2 }).await;

    assert_eq!(refunded.unwrap(), Settled::Unchanged);
    let look = store.hit(Hit::new(&limit, &other)).await.unwrap();
    assert!(!look.is_allowed());
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
    assert_eq!(store.stats().overflowed, 0);
}

#[tokio::test]
async fn long_logs_count_for_several_keys() {
    let (_, store) = manual();
    let limit = policy("bound", "sliding_window_log 800/h");

    for name in 0..10 {
        spend(&store, &limit, &format!("log-{name}"), 799).await;
    }

    assert!(store.stats().keys <= 1);
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
    // What is resident is more than what is allocated, which the bench counts.
    assert!(grown * 1024 <= 104 * keys);
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}
