//! A store is used on several runtimes, and depends on none of them (H7).

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use ratelimit_core::{Clock, Limiter, RedisStore, Verdict};
use ratelimit_tests::redis::TestRedis;
use tokio::runtime::{Builder, Runtime};

use crate::subject::{key, policy};

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
        unchecked @ Verdict::Unchecked { .. } => panic!("{unchecked:?}"),
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
            // A busy machine may be late for some of them.
            for _ in 0..10 {
                let hits = join_all((0..32).map(|_| is_checked(&limiter))).await;
                most = most.max(hits.into_iter().filter(|checked| *checked).count());
            }
            (Some(healed), most)
        })
    });
    other.join().unwrap()
}

#[test]
fn a_runtime_that_is_blocked_takes_redis_from_nobody_else() {
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
fn a_runtime_that_is_kept_and_not_driven_takes_redis_from_nobody_else() {
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
fn a_runtime_that_ends_takes_redis_from_nobody_else() {
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
