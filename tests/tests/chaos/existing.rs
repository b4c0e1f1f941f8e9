//! Stores on connections that an application already has.

use std::time::{Duration, Instant};

use bb8_redis::{RedisConnectionManager, bb8::Pool};
use ratelimit_core::{FailureMode, Limiter, RedisConfig, RedisStore};
use ratelimit_tests::{
    chaos::{Bench, TestCluster, endless},
    redis::RedisProcess,
};
use tokio::task::block_in_place;

use crate::instance::{AT_ONCE, calls, is_checked, key, policy, remaining};

/// Stores of both kinds, on connections through the bench's proxy.
async fn stores(bench: &Bench) -> [RedisStore; 2] {
    let config = || bench.config().timeout(Duration::from_millis(200));
    let manager = RedisConnectionManager::new(bench.proxy.url()).expect("an address");
    let pool = Pool::builder().build(manager).await.expect("a server");
    let client = redis::Client::open(bench.proxy.url()).expect("an address");
    let multiplexed = client.get_multiplexed_async_connection().await;
    [
        RedisStore::from_pool(pool, config()),
        RedisStore::from_multiplexed(multiplexed.expect("a server"), config()),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lent_connection_decides_like_our_own() {
    let bench = Bench::start(&[]).await;
    let limit = policy("lent", "fixed_window 4/366d");
    let mut left = Vec::new();
    for store in stores(&bench).await {
        let limiter = Limiter::new(store).failure_mode(FailureMode::Closed);
        for _ in 0..2 {
            left.push(remaining(&limiter.check(&limit, &key("k")).await));
        }
    }

    assert_eq!(left, [3, 2, 1, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lent_connection_that_breaks_keeps_nobody_longer_than_the_budget() {
    let mut bench = Bench::start(&[]).await;
    let limiters = stores(&bench).await.map(Limiter::new);
    for limiter in &limiters {
        assert!(is_checked(&limiter.check(&endless(), &key("k")).await));
    }

    bench.server.signal("STOP");
    for limiter in &limiters {
        let (checked, _) = calls(limiter, &endless(), AT_ONCE).await;
        assert_eq!(checked, 0);
    }
    bench.server.signal("CONT");
    block_in_place(|| bench.server.kill());
    for limiter in &limiters {
        let (checked, _) = calls(limiter, &endless(), AT_ONCE).await;
        assert_eq!(checked, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lent_cluster_connection_decides_and_keeps_nobody_waiting() {
    let mut cluster = TestCluster::start().await;
    let seeds = cluster.nodes.iter().map(RedisProcess::url);
    let client = redis::cluster::ClusterClient::new(seeds.collect::<Vec<_>>()).unwrap();
    let connection = client.get_async_connection().await.unwrap();
    let config = RedisConfig::new(&cluster.url()).unwrap();
    let budget = Duration::from_millis(200);
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
