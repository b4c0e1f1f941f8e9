//! A master that fails over to its replica.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ratelimit_core::{FailureMode, RedisConfig};
use ratelimit_tests::{
    chaos::{Expected, Load, Observations, Ours, PATIENCE, Report, TestSentinel, eventually, ours},
    redis::as_asked,
};
use tokio::task::block_in_place;

use crate::harness::{AT_ONCE, heals, is_checked, key, policy};

fn config(url: &str) -> RedisConfig {
    as_asked(RedisConfig::new(url).expect("a valid address"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_13_a_replica_promoted_behind_its_master_forgives_only_what_it_missed() {
    const LIMIT: usize = 50;
    let mut servers = TestSentinel::start().await;
    let config = config(&servers.url()).timeout(AT_ONCE);
    let ours = ours(config, FailureMode::Closed).await;
    let limit = policy("behind", &format!("fixed_window {LIMIT}/366d"));
    let admit = async |most: usize| {
        let mut admitted = 0;
        for _ in 0..most {
            admitted += usize::from(ours.limiter.check(&limit, &key("k")).await.is_allowed());
        }
        admitted
    };

    let seen = admit(10).await;
    eventually("a replica that has seen all", async || {
        servers.replica_has_caught_up()
    })
    .await;
    servers.replica.signal("STOP");
    let missed = admit(20).await;
    block_in_place(|| servers.master.kill());
    servers.replica.signal("CONT");
    servers.failed_over().await;
    heals(&ours).await;
    let after = admit(2 * LIMIT).await;

    println!("row 13 a replica behind: {seen} seen, {missed} missed, {after} after, limit {LIMIT}");
    assert_eq!((seen, missed), (10, 20));
    assert!(seen + after <= LIMIT, "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_21_a_failover_is_followed_to_the_new_master() {
    Observations::listen();
    let mut servers = TestSentinel::start().await;
    let layer = ours(config(&servers.url()), FailureMode::Local).await;
    let load = Load::start(Arc::new(layer));
    load.run(Duration::from_millis(500)).await;

    block_in_place(|| servers.master.kill());
    let dead = load.phase().await;
    servers.failed_over().await;
    load.phase().await;
    let promoted = Instant::now();
    let healed = load.healed(promoted, Duration::from_secs(10)).await;
    load.run(Duration::from_millis(300)).await;
    let ledger = load.stop().await;

    let audit = ours(
        config(&servers.url()).timeout(PATIENCE),
        FailureMode::Closed,
    )
    .await;
    let expected = Expected {
        row: 21,
        fault: "Sentinel failover",
        healed,
        dead_phases: vec![dead],
        budgets: 3,
    };
    Report::new(expected, &ledger, &audit)
        .await
        .assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_21_a_master_demoted_by_hand_is_left() {
    let servers = TestSentinel::start().await;
    let config = config(&servers.url()).timeout(AT_ONCE);
    let ours = ours(config, FailureMode::Closed).await;
    let limit = policy("by-hand", "fixed_window 1000/366d");

    servers.fail_over();
    servers.failed_over().await;
    let promoted = Instant::now();
    eventually("a decision that is written", async || {
        is_checked(&ours.limiter.check(&limit, &key("k")).await)
    })
    .await;

    println!(
        "row 21 failover by hand: healed in {:?}",
        promoted.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_service_starts_before_its_sentinels() {
    let url = "redis+sentinel://127.0.0.1:1,127.0.0.1:2/mymaster";
    let ours = Ours::new(config(url), FailureMode::Local);

    let asked = Instant::now();
    let verdict = ours.limiter.check(&policy("none", "1/h"), &key("k")).await;

    assert!(verdict.is_allowed() && !is_checked(&verdict));
    assert!(asked.elapsed() < AT_ONCE);
}
