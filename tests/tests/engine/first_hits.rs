//! The first hits of a process, which come before its store is connected.

use std::{net::TcpListener, time::Duration};

use futures_util::{FutureExt as _, future::join_all};
use ratelimit_core::{
    FailureMode, Key, KeySet, Limiter, RedisConfig, RedisStore, Verdict,
    store::{Hit, Store as _, StoreError},
};
use ratelimit_tests::{
    chaos::{Observations, TestCluster},
    redis::{TestRedis, as_asked},
};
use tokio::runtime::Runtime;

use crate::stores::{key, policy};

/// Room for a busy machine; a hit in production waits 100 ms.
const PATIENT: Duration = Duration::from_secs(10);

/// Sends hits at once to a new store, and counts those that it decided.
async fn decided_at_once(store: RedisStore) -> usize {
    let limiter = Limiter::new(store).failure_mode(FailureMode::Closed);
    let limit = policy("first", "1000/h; 500/h by ip");
    let hits = (0_u8..50).map(|user| {
        let keys = KeySet::new(key(&format!("user-{user}")));
        let keys = keys.with("ip", Key::ip([192, 0, 2, user].into()));
        let (limiter, limit) = (limiter.clone(), limit.clone());
        async move { limiter.check_keys(&limit, &keys).await }
    });
    let verdicts = join_all(hits).await;
    let decided = |verdict: &&Verdict| matches!(verdict, Verdict::Checked(_));
    verdicts.iter().filter(decided).count()
}

#[tokio::test]
async fn a_healthy_redis_decides_the_very_first_hits() {
    let observed = Observations::listen();
    let redis = TestRedis::start().await;
    let store = RedisStore::new(redis.config().timeout(PATIENT));
    assert_eq!(decided_at_once(store).await, 50);
    assert_eq!(observed.counter("rate_limiter_reconnects_total", ""), 0);

    // Settlements and resets may come first as well.
    let store = RedisStore::new(redis.config().timeout(PATIENT));
    let keys = KeySet::new(key("user-1"));
    store
        .reset(&policy("first", "1000/h"), &keys)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_cluster_decides_the_very_first_hits() {
    let cluster = TestCluster::start_masters().await;
    let config = RedisConfig::new(&cluster.url()).unwrap().timeout(PATIENT);
    let store = RedisStore::new(as_asked(config.connect_timeout(PATIENT)));

    assert_eq!(decided_at_once(store).await, 50);
}

#[test]
fn a_store_that_was_made_outside_of_a_runtime_decides_the_very_first_hits() {
    let runtime = Runtime::new().unwrap();
    let redis = runtime.block_on(TestRedis::start());
    let store = RedisStore::new(redis.config().timeout(PATIENT));

    assert_eq!(runtime.block_on(decided_at_once(store)), 50);
}

#[tokio::test]
async fn hits_wait_for_the_first_attempt_and_for_no_later_one() {
    // The kernel accepts connections, and nothing ever answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let timeout = Duration::from_millis(25);
    let store = RedisStore::new(RedisConfig::new(&url).unwrap().timeout(timeout));
    let (limit, keys) = (policy("first", "5/h"), KeySet::new(key("k")));
    let hit = || store.hit(Hit::for_keys(&limit, &keys));

    let mut first = hit();
    assert!((&mut first).now_or_never().is_none(), "it did not wait");
    let error = first.await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { source: None }));

    let attempt_ended = async { while hit().await.is_err() && hit().now_or_never().is_none() {} };
    tokio::time::timeout(PATIENT, attempt_ended)
        .await
        .expect("the first attempt ended");
    for _ in 0..100 {
        assert!(hit().now_or_never().is_some(), "a later hit waited");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
