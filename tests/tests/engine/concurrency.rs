//! Slots of a concurrency limit: exact among processes, back at once, and back from the dead.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use ratelimit_core::{
    Clock, Limiter, MemoryStore, Timestamp,
    store::{Adjustment, Hit, Receipt, Settlement, Store},
};
use ratelimit_tests::redis::{TestRedis, connected};

use crate::stores::{TestStore, key, policy};

const LEASE: Duration = Duration::from_secs(600);

/// A process that holds slots, and how many it got.
struct Holder {
    process: Child,
    held: usize,
}

impl Holder {
    fn start(redis: &TestRedis, prefix: &str, text: &str, wanted: usize) -> Holder {
        let mut process = Command::new(env!("CARGO_BIN_EXE_holder"))
            .args([redis.url(), prefix, text, "shared", &wanted.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the holder's process");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let held = line.trim().parse().expect("a number");
        Holder { process, held }
    }

    /// Ends it by SIGKILL.
    fn kill(mut self) {
        self.process.kill().expect("a running process");
        self.process.wait().expect("its end");
    }
}

#[tokio::test]
async fn slots_of_killed_instances_return_when_their_lease_ends_and_not_before() {
    let redis = TestRedis::start().await;
    let text = "concurrency 10 lease 10min";
    let prefix = format!("slots-{}", std::process::id());

    let holders: Vec<Holder> = (0..4)
        .map(|_| Holder::start(&redis, &prefix, text, 5))
        .collect();
    let held: usize = holders.iter().map(|holder| holder.held).sum();
    assert_eq!(held, 10, "four instances asked for five each");

    holders.into_iter().for_each(Holder::kill);
    let clock = Clock::manual(Timestamp::default());
    let config = redis.config().prefix(&prefix).unwrap().clock(clock.clone());
    let store = connected(config).await;
    let policy = policy("held", text);
    let shared = key("shared");
    let asked = |slot| Hit::new(&policy, &shared).slot(slot);
    let now = server_time(&redis);
    clock.set(now);
    let denied = store.hit(asked(1)).await.unwrap();
    assert!(!denied.is_allowed(), "the dead hold all slots");
    assert!(denied.retry_after().unwrap() <= LEASE);

    let almost = denied.reset_after.checked_sub(Duration::from_micros(1));
    clock.set(now + almost.unwrap());
    let last = store.hit(asked(0).dry_run()).await.unwrap();
    assert_eq!(last.remaining, 9, "one lease is still to end");
    clock.set(now + denied.reset_after);
    let free = store.hit(asked(0).dry_run()).await.unwrap();
    assert_eq!(free.remaining, 10);
}

fn server_time(redis: &TestRedis) -> Timestamp {
    let (secs, micros): (u64, u64) = redis::cmd("TIME")
        .query(&mut redis.connection())
        .expect("the time");
    Timestamp::from_micros(secs * 1_000_000 + micros)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn never_more_than_the_limit_hold_a_slot_at_once() {
    never_more_than_the_limit_at_once(&TestRedis::start().await).await;
}

/// Lets many tasks take and release slots.
pub(crate) async fn never_more_than_the_limit_at_once(redis: &TestRedis) {
    let limit = policy("at-once", "concurrency 7; 100000/s");
    for store in [
        Arc::new(MemoryStore::new()) as Arc<dyn Store>,
        Arc::new(redis.store(Clock::system()).await),
    ] {
        let inside = Arc::new(std::sync::atomic::AtomicI64::new(0));
        let tasks: Vec<_> = (1..=64)
            .map(|task| {
                let (store, limit) = (Arc::clone(&store), limit.clone());
                let inside = Arc::clone(&inside);
                tokio::spawn(async move { come_and_go(task, &*store, &limit, &inside).await })
            })
            .collect();
        let mut entered = 0;
        for task in tasks {
            entered += task.await.unwrap();
        }

        assert!(entered >= 64, "{entered}");
        let left = store.hit(Hit::new(&limit, &key("hot")).cost(0)).await;
        let slots = left.unwrap().limits().next().unwrap();
        assert_eq!(slots.remaining, 7, "all were given back");
    }
}

async fn come_and_go(
    task: u64,
    store: &dyn Store,
    limit: &ratelimit_core::Policy,
    inside: &std::sync::atomic::AtomicI64,
) -> u64 {
    use std::sync::atomic::Ordering::SeqCst;
    let shared = key("hot");
    let mut entered = 0;
    for round in 0..20 {
        let hit = Hit::new(limit, &shared).slot(task * 1_000 + round);
        let decision = store.hit(hit).await.unwrap();
        let Some(receipt) = Receipt::new(hit, &decision) else {
            tokio::task::yield_now().await;
            continue;
        };
        let now_inside = inside.fetch_add(1, SeqCst) + 1;
        assert!(now_inside <= 7, "{now_inside} at once");
        tokio::task::yield_now().await;
        inside.fetch_sub(1, SeqCst);
        let released = store.settle(&receipt, Adjustment::Release).await.unwrap();
        assert_eq!(released, Settlement::Applied);
        entered += 1;
    }
    entered
}

#[tokio::test]
async fn a_slot_is_given_back_when_its_charge_is_dropped() {
    let redis = TestRedis::start().await;
    let limit = policy("dropped", "concurrency 1; 3/h");
    for subject in TestStore::all(&redis).await {
        let limiter = Limiter::new(subject.store.clone());
        let alice = key("alice");

        let (first, held) = limiter.reserve(Hit::new(&limit, &alice)).await;
        let (second, none) = limiter.reserve(Hit::new(&limit, &alice)).await;
        assert!(first.is_allowed() && !second.is_allowed() && none.is_none());
        drop(held);

        let freed = async {
            loop {
                let look = limiter.peek(&limit, &alice).await;
                let slots = look.decision().unwrap().limits().next().unwrap();
                if slots.remaining == 1 {
                    return look;
                }
                tokio::task::yield_now().await;
            }
        };
        let look = freed.await;
        let rate = look.decision().unwrap().limits().nth(1).unwrap();
        assert_eq!(rate.remaining, 2, "{}: what was spent stays", subject.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_held_for_longer_than_its_lease_is_renewed() {
    let clock = Clock::manual(Timestamp::from_secs(1_000));
    let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
    let limit = policy("long", "concurrency 1 lease 30s");
    let (alice, step) = (key("alice"), Duration::from_secs(1));
    let (_, held) = limiter.reserve(Hit::new(&limit, &alice)).await;

    for _ in 0..120 {
        clock.advance(step);
        tokio::time::sleep(step).await;
        let other = limiter.dry_run(&limit, &alice, 1).await;
        assert!(!other.is_allowed(), "the slot is in use");
    }
    drop(held);

    assert!(limiter.dry_run(&limit, &alice, 1).await.is_allowed());
}

#[tokio::test]
async fn a_slot_taken_from_the_local_store_is_given_back_there() {
    let unreachable = ratelimit_core::RedisStore::new(
        ratelimit_core::RedisConfig::new("redis://127.0.0.1:1").unwrap(),
    );
    let limiter = Limiter::new(unreachable);
    let limit = policy("outage", "concurrency 1");

    let (first, held) = limiter.reserve(Hit::new(&limit, &key("a"))).await;
    let second = limiter.check(&limit, &key("a")).await;
    assert!(first.is_allowed() && !second.is_allowed());
    drop(held);

    assert!(limiter.dry_run(&limit, &key("a"), 1).await.is_allowed());
}

#[tokio::test]
async fn a_number_that_stands_across_a_slot_and_its_end_is_nobodys() {
    let redis = TestRedis::start().await;
    let limit = policy("across", "concurrency 1 lease 30s");
    let alice = key("alice");
    let (now, lease) = (Timestamp::from_secs(1_000_000), Duration::from_secs(30));
    let holder: u64 = 0x1122_3344_5566_7788;
    let first_of_end = (now + lease).as_micros() & 0xff;
    let across = (holder >> 8) | (first_of_end << 56);
    for subject in TestStore::all(&redis).await {
        subject.clock.set(now);
        let hit = |slot| Hit::new(&limit, &alice).slot(slot);
        assert!(subject.store.hit(hit(holder)).await.unwrap().is_allowed());

        let other = subject.store.hit(hit(across)).await.unwrap();

        assert!(!other.is_allowed(), "{}", subject.name);
    }
}
