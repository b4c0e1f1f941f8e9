//! A store is used on several runtimes, and depends on none of them (H7).

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use ratelimit_core::{
    Clock, FailureMode, KeySet, Limiter, RedisConfig, RedisStore, Verdict,
    store::{Hit, JointHit},
};
use ratelimit_tests::{
    chaos::TestCluster,
    redis::{RedisProcess, TestRedis},
};
use tokio::runtime::{Builder, Runtime};

use crate::stores::{key, policy};

#[test]
fn a_store_outlives_the_runtime_that_connected_it() {
    let runtime = || Runtime::new().unwrap();
    let first = runtime();
    let redis = first.block_on(TestRedis::start());
    let store: RedisStore = first.block_on(redis.store(Clock::system()));
    let limiter = Limiter::new(store.clone());
    let limit = policy("runtime", "5/h");
    let checked = |verdict: Verdict| match verdict {
        Verdict::Checked(decision) => decision.remaining,
        unchecked => panic!("{unchecked:?}"),
    };

    let before = checked(first.block_on(limiter.check(&limit, &key("a"))));
    drop(first);
    let second = runtime();
    assert!(second.block_on(store.wait_connected(Duration::from_secs(20))));
    let after = checked(second.block_on(async { limiter.check(&limit, &key("a")).await }));

    assert_eq!((before, after), (4, 3));
}

/// The goal is one second; a busy machine may take longer.
const SOON: Duration = Duration::from_secs(5);

/// A worker of an actix server is such a runtime.
fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A server, and a limiter on it with the time-out that services have.
fn limiter() -> (TestRedis, Limiter, RedisStore) {
    let starting = current_thread();
    let redis = starting.block_on(TestRedis::start());
    let store = RedisStore::new(redis.config().timeout(Duration::from_millis(25)));
    (redis, Limiter::new(store.clone()), store)
}

async fn is_checked(limiter: &Limiter) -> bool {
    let verdict = limiter
        .check(&policy("runtimes", "100000/h"), &key("k"))
        .await;
    matches!(verdict, Verdict::Checked(_))
}

/// Waits on another runtime until Redis decides, and tells how long that took and how many of
/// some hits at once, which share calls, it decides then.
fn decided_elsewhere(limiter: &Limiter) -> (Option<Duration>, usize) {
    let limiter = limiter.clone();
    let other = thread::spawn(move || {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let started = Instant::now();
            while !is_checked(&limiter).await {
                if started.elapsed() > SOON {
                    return (None, 0);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let healed = started.elapsed();
            let mut most = 0;
            // A busy machine may be late for some of them, and lose the connection for a moment.
            while most < 32 && started.elapsed() < 2 * SOON {
                let hits = join_all((0..32).map(|_| is_checked(&limiter))).await;
                most = most.max(hits.into_iter().filter(|checked| *checked).count());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (Some(healed), most)
        })
    });
    other.join().unwrap()
}

#[test]
fn a_blocked_runtime_does_not_disconnect_other_runtimes() {
    let (_redis, limiter, store) = limiter();
    let (blocked, is_blocked) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let first = {
        let limiter = limiter.clone();
        thread::spawn(move || {
            current_thread().block_on(async {
                assert!(store.wait_connected(Duration::from_secs(20)).await);
                let _ = is_checked(&limiter).await;
                blocked.send(()).unwrap();
                // A handler that computes, or waits for a lock.
                let _ = released.recv();
            });
        })
    };
    is_blocked.recv().unwrap();

    let (healed, decided) = decided_elsewhere(&limiter);

    drop(release);
    first.join().unwrap();
    println!("the first runtime is blocked: another is decided in {healed:?}");
    assert!(
        healed.is_some(),
        "not decided by Redis while another runtime is blocked"
    );
    assert_eq!(decided, 32, "hits at once were not decided");
}

#[test]
fn a_runtime_that_is_not_driven_does_not_disconnect_other_runtimes() {
    let (_redis, limiter, store) = limiter();
    let first = current_thread();
    assert!(first.block_on(store.wait_connected(Duration::from_secs(20))));
    let _ = first.block_on(async { is_checked(&limiter).await });

    let (healed, decided) = decided_elsewhere(&limiter);

    drop(first);
    println!("the first runtime is not driven: another is decided in {healed:?}");
    assert!(
        healed.is_some(),
        "not decided by Redis while another runtime is not driven"
    );
    assert_eq!(decided, 32, "hits at once were not decided");
}

#[test]
fn checks_in_a_tight_loop_do_not_keep_the_store_from_reconnecting() {
    let mut redis = RedisProcess::start(&[]);
    let store = RedisStore::new(RedisConfig::new(&redis.url()).unwrap());
    let limiter = Limiter::new(store.clone());
    let (joint, key) = (policy("runtimes", "100000/h"), key("k"));
    let is_decided = async |is_joint: bool| {
        if !is_joint {
            return is_checked(&limiter).await;
        }
        let verdict = limiter.check_joint(&[JointHit::new(Hit::new(&joint, &key))]);
        let members = verdict.unwrap().await.members;
        matches!(members[0].verdict, Verdict::Checked(_))
    };
    // One worker, which the loop below never leaves by itself: each check is answered at once.
    current_thread().block_on(async {
        assert!(store.wait_connected(Duration::from_secs(20)).await);
        for is_joint in [false, true] {
            redis.kill();
            while is_checked(&limiter).await {}
            redis.restart();

            let started = Instant::now();
            let mut checks = 0_u64;
            while !is_decided(is_joint).await {
                assert!(started.elapsed() < SOON, "{checks} checks without Redis");
                checks += 1;
            }
            println!("{checks} checks in {:?}", started.elapsed());
        }
    });
}

#[test]
fn a_runtime_that_ends_does_not_disconnect_other_runtimes() {
    let (_redis, limiter, store) = limiter();
    let first = current_thread();
    assert!(first.block_on(store.wait_connected(Duration::from_secs(20))));
    let _ = first.block_on(async { is_checked(&limiter).await });
    drop(first);

    let (healed, decided) = decided_elsewhere(&limiter);

    println!("the first runtime has ended: another is decided in {healed:?}");
    assert!(
        healed.is_some(),
        "not decided by Redis after another runtime has ended"
    );
    assert_eq!(decided, 32, "hits at once were not decided");
}

/// Longer than the silence after which the connection's task is suspected to be stuck.
const COMPUTES: Duration = Duration::from_millis(700);

#[test]
fn a_worker_that_computes_between_its_checks_keeps_redis() {
    let starting = current_thread();
    let redis = starting.block_on(TestRedis::start());
    let store = RedisStore::new(redis.config().timeout(Duration::from_secs(1)));
    let limiter = Limiter::new(store.clone());

    let decided: Vec<bool> = current_thread().block_on(async {
        assert!(store.wait_connected(Duration::from_secs(20)).await);
        let mut decided = Vec::new();
        for _ in 0..8 {
            decided.push(is_checked(&limiter).await);
            tokio::task::yield_now().await;
            // The work itself: nothing else runs on this thread meanwhile.
            thread::sleep(COMPUTES);
        }
        decided
    });

    assert_eq!(decided, [true; 8], "Redis was lost");
}

#[test]
fn checks_on_a_runtime_that_is_not_driven_do_not_leak_permits() {
    const PLACES: usize = 16;
    let starting = current_thread();
    let redis = starting.block_on(TestRedis::start());
    let config = redis.config().timeout(Duration::from_millis(25));
    let store = RedisStore::new(config.max_in_flight(PLACES));
    let limiter = Limiter::new(store.clone());
    let first = current_thread();
    assert!(first.block_on(store.wait_connected(Duration::from_secs(20))));
    let slots = policy("places", "concurrency 1000 lease 1h");

    let others = Runtime::new().unwrap();
    let unchecked = others.block_on(async {
        let asked = (0..PLACES).map(|number| {
            let (limiter, slots) = (limiter.clone(), slots.clone());
            async move {
                let (verdict, _) = limiter
                    .reserve(Hit::new(&slots, &key(&format!("k{number}"))))
                    .await;
                !matches!(verdict, Verdict::Checked(_))
            }
        });
        let unchecked = join_all(asked).await;
        unchecked.into_iter().filter(|unchecked| *unchecked).count()
    });
    let (healed, _) = decided_elsewhere(&limiter);

    drop(first);
    println!("{unchecked} of {PLACES} slots were not decided, others in {healed:?}");
    assert_eq!(unchecked, PLACES, "the first runtime was driven");
    assert!(healed.is_some(), "the places are taken for good");
}

#[test]
fn callers_that_time_out_on_a_runtime_that_is_not_driven_open_the_breaker() {
    let (_redis, limiter, store) = limiter();
    let first = current_thread();
    assert!(first.block_on(store.wait_connected(Duration::from_secs(20))));
    let slots = policy("breaker", "concurrency 1000 lease 1h");

    let reasons = Runtime::new().unwrap().block_on(async {
        let mut reasons = Vec::new();
        // The probe does not run there either. The background task moves here when it is suspected to be stuck, after
        // half a second: some twenty time-outs of 25 ms.
        for _ in 0..200 {
            let (verdict, _) = limiter.reserve(Hit::new(&slots, &key("k"))).await;
            reasons.push(match verdict {
                Verdict::Checked(_) => "checked",
                Verdict::Unchecked { reason, .. } => reason.as_str(),
                other => panic!("{other:?}"),
            });
            if reasons.last() == Some(&"unavailable") {
                break;
            }
        }
        reasons
    });

    drop(first);
    assert_eq!(reasons[..5], ["timed_out"; 5], "{reasons:?}");
    assert_eq!(reasons.last(), Some(&"unavailable"), "{reasons:?}");
}

/// Keys that live on the first and on the second master.
fn keys_on_two_masters(cluster: &TestCluster) -> KeySet {
    let on = |master: usize| {
        let mut names = (0..).map(|number| format!("k{number}"));
        let name = names.find(|name| cluster.master_of(format!("{{key:{name}}}")) == master);
        key(&name.expect("some key lives there"))
    };
    KeySet::new(on(0)).with("ip", on(1))
}

#[test]
fn a_settlement_on_two_nodes_ends_though_their_runtime_is_not_driven() {
    const TIMEOUT: Duration = Duration::from_millis(500);
    let starting = Runtime::new().unwrap();
    let cluster = starting.block_on(TestCluster::start_masters());
    let keys = starting.block_on(async { keys_on_two_masters(&cluster) });
    let config = RedisConfig::new(&cluster.url()).unwrap().timeout(TIMEOUT);
    let store = RedisStore::new(config);
    let limiter = Limiter::new(store.clone()).failure_mode(FailureMode::Closed);
    let both = policy("settled", "fixed_window 9/366d; fixed_window 9/366d by ip");
    let first = current_thread();
    let charge = first.block_on(async {
        assert!(store.wait_connected(Duration::from_secs(20)).await);
        loop {
            let (_, charge) = limiter.reserve(Hit::for_keys(&both, &keys)).await;
            if let Some(charge) = charge {
                return charge;
            }
        }
    });

    let started = Instant::now();
    let settled = Runtime::new()
        .unwrap()
        .block_on(async { tokio::time::timeout(TIMEOUT * 10, charge.settle(0)).await });

    drop(first);
    println!("{settled:?} after {:?}", started.elapsed());
    assert!(settled.is_ok(), "the settlement waits for ever");
}
