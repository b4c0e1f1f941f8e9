//! Stores on connections that an application already has.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use bb8_redis::{RedisConnectionManager, bb8::Pool};
use ratelimit_core::{FailureMode, Limiter, RedisConfig, RedisStore, store::Hit};
use ratelimit_tests::{
    chaos::{Fixture, Observations, PATIENCE, TestCluster, endless, eventually},
    redis::RedisProcess,
};
use tokio::{
    runtime::{Handle, Runtime},
    task::block_in_place,
};

use crate::harness::{AT_ONCE, calls, is_checked, key, policy, remaining};

/// Stores of both kinds, on connections through the fixture's proxy.
async fn stores(fixture: &Fixture, timeout: Duration) -> [RedisStore; 2] {
    let config = || fixture.config().timeout(timeout);
    let manager = RedisConnectionManager::new(fixture.proxy.url()).expect("an address");
    let pool = Pool::builder().build(manager).await.expect("a server");
    let client = redis::Client::open(fixture.proxy.url()).expect("an address");
    let multiplexed = client.get_multiplexed_async_connection().await;
    [
        RedisStore::from_pool(pool, config()),
        RedisStore::from_multiplexed(multiplexed.expect("a server"), config()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_external_connection_decides_like_our_own() {
    let fixture = Fixture::start(&[]).await;
    let limit = policy("lent", "fixed_window 4/366d");
    let mut left = Vec::new();
    for store in stores(&fixture, PATIENCE).await {
        let limiter = Limiter::new(store).failure_mode(FailureMode::Closed);
        for _ in 0..2 {
            left.push(remaining(&limiter.check(&limit, &key("k")).await));
        }
    }

    assert_eq!(left, [3, 2, 1, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_broken_external_connection_keeps_no_caller_longer_than_the_timeout() {
    let mut fixture = Fixture::start(&[]).await;
    let stores = stores(&fixture, Duration::from_millis(200)).await;
    let limiters = stores.map(Limiter::new);
    for limiter in &limiters {
        eventually("a decision", async || {
            is_checked(&limiter.check(&endless(), &key("k")).await)
        })
        .await;
    }

    fixture.server.signal("STOP");
    for limiter in &limiters {
        let (checked, _) = calls(limiter, &endless(), AT_ONCE).await;
        assert_eq!(checked, 0);
    }
    fixture.server.signal("CONT");
    block_in_place(|| fixture.server.kill());
    for limiter in &limiters {
        let (checked, _) = calls(limiter, &endless(), AT_ONCE).await;
        assert_eq!(checked, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_external_cluster_connection_decides_and_keeps_no_caller_waiting() {
    let mut cluster = TestCluster::start().await;
    let seeds = cluster.nodes.iter().map(RedisProcess::url);
    let client = redis::cluster::ClusterClient::new(seeds.collect::<Vec<_>>()).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let config = RedisConfig::new(&cluster.url()).unwrap();
    let budget = AT_ONCE;
    let limiter = Limiter::new(RedisStore::from_cluster(connection, config.timeout(budget)));
    let limit = policy("lent", "fixed_window 3/366d");

    for name in ["a", "b", "c", "d"] {
        assert_eq!(remaining(&limiter.check(&limit, &key(name)).await), 2);
    }
    block_in_place(|| cluster.nodes.clear());
    let asked = Instant::now();
    let verdict = limiter.check(&limit, &key("a")).await;

    assert!(!is_checked(&verdict));
    assert!(asked.elapsed() < budget + AT_ONCE);
}

#[test]
fn a_request_over_an_external_connection_can_be_dropped_outside_of_a_runtime() {
    let runtime = Runtime::new().expect("a runtime");
    let fixture = runtime.block_on(Fixture::start(&[]));
    let [_, store] = runtime.block_on(stores(&fixture, PATIENCE));
    let limiter = Limiter::new(store).failure_mode(FailureMode::Closed);
    let slots = policy("outside", "concurrency 5 lease 10min");
    let free = || {
        let look = runtime.block_on(async { limiter.peek(&slots, &key("held")).await });
        look.decision().map(|look| look.remaining)
    };
    assert_eq!(free(), Some(5));
    let held = key("held");
    let mut charging = Box::pin(limiter.reserve(Hit::new(&slots, &held)));
    runtime.block_on(async {
        let polled = futures_util::poll!(&mut charging);
        assert!(polled.is_pending());
    });
    runtime.block_on(eventually("a slot that is taken", async || {
        limiter
            .peek(&slots, &held)
            .await
            .decision()
            .map(|look| look.remaining)
            == Some(4)
    }));

    let dropped = catch_unwind(AssertUnwindSafe(move || drop(charging)));

    assert!(dropped.is_ok(), "a panic in Drop");
    runtime.block_on(eventually("a slot that is free", async || {
        limiter
            .peek(&slots, &held)
            .await
            .decision()
            .map(|look| look.remaining)
            == Some(5)
    }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refunds_while_redis_hangs_use_a_bounded_number_of_tasks() {
    const PLACES: usize = 8;
    const CALLERS: usize = 32;
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let client = redis::Client::open(fixture.server.url()).expect("an address");
    let multiplexed = client.get_multiplexed_async_connection().await;
    let config = fixture.config().timeout(Duration::from_millis(20));
    let config = config.max_in_flight(PLACES);
    let store = RedisStore::from_multiplexed(multiplexed.expect("a server"), config);
    let limiter = Limiter::new(store).failure_mode(FailureMode::Closed);
    let slots = policy("bounded", "concurrency 1000 lease 10min");
    let _ = limiter.reserve(Hit::new(&slots, &key("warm"))).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let before = tasks();

    fixture.server.signal("STOP");
    let until = Instant::now() + Duration::from_secs(2);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (limiter, slots) = (limiter.clone(), slots.clone());
            tokio::spawn(async move {
                let held = key(&format!("k{caller}"));
                let mut most = 0;
                while Instant::now() < until {
                    let _ = limiter.reserve(Hit::new(&slots, &held)).await;
                    most = most.max(Handle::current().metrics().num_alive_tasks());
                    tokio::task::yield_now().await;
                }
                most
            })
        })
        .collect();
    let mut most = 0;
    for caller in callers {
        most = most.max(caller.await.expect("a caller"));
    }
    fixture.server.signal("CONT");

    // The callers, their calls, and four give-backs for each place.
    let bound = before + CALLERS + 2 * PLACES + 4 * PLACES;
    println!("{most} tasks at once, at most {bound} expected");
    assert!(most <= bound, "{most} tasks");
    assert!(
        !observed.lines("could not be given back").is_empty(),
        "a slot was kept without a log line"
    );
}
