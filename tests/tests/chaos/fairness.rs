//! One policy or client does not take a healthy Redis away from the others.
//!
//! The attacks are legal requests, sent as `ratelimit-server` sends the checks of a `POST`: 128 at a time for each
//! connection. Bystanders are batched and not batched.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use ratelimit_core::{
    FailureMode, Key, KeySet, Limiter, Policy, RedisConfig,
    store::{Hit, JointHit},
};
use ratelimit_tests::chaos::{Fixture, PATIENCE, ours};

use crate::harness::{is_checked, key, policy};

/// Checks of one request that the server decides at the same time.
const AT_A_TIME: usize = 128;
/// Checks of one request.
const CHECKS: usize = 1_000;

/// What others got out of the store meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Bystanders {
    checked: usize,
    unchecked: usize,
}

impl Bystanders {
    /// Whether nearly all of them were decided by Redis. A busy host makes a few wait for longer than the timeout.
    fn are_served(self) -> bool {
        self.checked > 0 && self.unchecked * 50 <= self.checked
    }
}

/// Users of policies that are batched and of such that are not. They check every few milliseconds until `is_over`.
async fn bystanders(limiter: &Limiter, is_over: &Arc<AtomicBool>) -> Vec<(String, Bystanders)> {
    let policies = [
        policy("bystander-batched", "fixed_window 1000000/366d"),
        policy("bystander-login", "100000/h; penalty_box 5/min for 1min"),
        policy("bystander-ip", "100000/h; 100000/min by ip"),
        policy("bystander-slots", "concurrency 100 lease 100ms"),
    ];
    let callers = policies.into_iter().map(|policy| {
        let (limiter, is_over) = (limiter.clone(), Arc::clone(is_over));
        tokio::spawn(async move {
            let mut seen = Bystanders::default();
            let keys = KeySet::new(key("bystander")).with("ip", key("address"));
            while !is_over.load(Ordering::Relaxed) {
                if is_checked(&limiter.check_keys(&policy, &keys).await) {
                    seen.checked += 1;
                } else {
                    seen.unchecked += 1;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            (policy.name().to_owned(), seen)
        })
    });
    let mut all = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        all.push(caller.await.expect("a bystander"));
    }
    all
}

/// Sends requests of [`CHECKS`] checks over `connections` until `span` is over, and tells what the bystanders got.
async fn attack(
    limiter: &Limiter,
    connections: usize,
    span: Duration,
    hit: impl Fn(usize) -> (Policy, KeySet, u64) + Send + Sync + Copy + 'static,
) -> Vec<(String, Bystanders)> {
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Instant::now() + span;
    let attackers = (0..connections).map(|connection| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let mut number = connection;
            while Instant::now() < until {
                let checks = (0..CHECKS).map(|check| {
                    let limiter = limiter.clone();
                    let (policy, keys, cost) = hit(number * CHECKS + check);
                    async move {
                        limiter
                            .check_hit(Hit::for_keys(&policy, &keys).cost(cost))
                            .await
                    }
                });
                let _: Vec<_> = stream::iter(checks).buffered(AT_A_TIME).collect().await;
                number += connections;
            }
        })
    });
    let attackers: Vec<_> = attackers.collect();
    let watching = {
        let (limiter, is_over) = (limiter.clone(), Arc::clone(&is_over));
        tokio::spawn(async move { bystanders(&limiter, &is_over).await })
    };
    for attacker in attackers {
        attacker.await.expect("an attacker");
    }
    is_over.store(true, Ordering::Relaxed);
    watching.await.expect("bystanders")
}

/// The default timeout, which these attacks were found with.
fn config(fixture: &Fixture) -> RedisConfig {
    let config = fixture.config_at(&fixture.server.url());
    config.timeout(RedisConfig::DEFAULT_TIMEOUT)
}

fn assert_served(what: &str, seen: &[(String, Bystanders)]) {
    println!("{what}: {seen:?}");
    for (name, seen) in seen {
        assert!(seen.are_served(), "{what}, {name}: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_policy_with_many_slots_leaves_redis_to_others() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(config(&fixture), FailureMode::Closed).await;

    let seen = attack(&ours.limiter, 2, Duration::from_secs(6), |_| {
        let slots = policy("slots", "concurrency 5000 lease 10min");
        (slots, KeySet::new(key("shared")), 1)
    })
    .await;

    assert_served("concurrency 5000", &seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_connections_with_hits_of_one_policy_leave_redis_to_others() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(config(&fixture), FailureMode::Closed).await;

    let seen = attack(&ours.limiter, 16, Duration::from_secs(4), |_| {
        let slots = policy("many", "fixed_window 100000000/366d");
        (slots, KeySet::new(key("shared")), 1)
    })
    .await;

    assert_served("16 connections", &seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hits_of_many_costs_that_share_no_batch_leave_redis_to_others() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(config(&fixture), FailureMode::Closed).await;

    let seen = attack(&ours.limiter, 8, Duration::from_secs(4), |number| {
        let log = policy("log", "sliding_window_log 1000/min");
        let cost = 1 + (number % 900) as u64;
        (log, KeySet::new(key(&format!("k{}", number % 20))), cost)
    })
    .await;

    assert_served("a log of 1,000", &seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn long_logs_leave_redis_to_others() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(config(&fixture), FailureMode::Closed).await;

    let seen = attack(&ours.limiter, 4, Duration::from_secs(4), |number| {
        let log = policy("log", "sliding_window_log 10000/d");
        (log, KeySet::new(key(&format!("k{}", number % 4))), 2_500)
    })
    .await;

    assert_served("a log of 10,000", &seen);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_joint_hit_of_too_much_work_is_refused_and_others_go_on() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(config(&fixture), FailureMode::Local).await;
    let logs = ["sliding_window_log 10000/d"; 8].join("; ");
    let logs = policy("logs", &logs);
    let keys: Vec<Key> = (0..64).map(|number| key(&format!("k{number}"))).collect();
    let fill = ours.limiter.clone();
    for key in &keys {
        let _ = fill.check_hit(Hit::new(&logs, key).cost(10_000)).await;
    }
    let members: Vec<JointHit<'_>> = keys
        .iter()
        .map(|key| JointHit::new(Hit::new(&logs, key)))
        .collect();

    let started = Instant::now();
    match ours.limiter.check_joint(&members) {
        Err(refused) => println!("64 members: {refused}"),
        Ok(joint) => {
            let verdict = joint.await;
            let took = started.elapsed();
            panic!(
                "allowed {}, {took:?}, {:?}",
                verdict.is_allowed, verdict.members[0]
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_login_policy_lets_no_more_pass_than_its_limit() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(config(&fixture), FailureMode::Local).await;
    let login = policy("login", "10/h; 5/min by ip; penalty_box 10/min for 1min");
    let callers = (0..8).map(|caller| {
        let (limiter, login) = (ours.limiter.clone(), login.clone());
        tokio::spawn(async move {
            let checks = (0..CHECKS).map(|check| {
                let number = (caller * CHECKS + check) % 20;
                let keys = KeySet::new(key(&format!("user-{number}")));
                let keys = keys.with("ip", key(&format!("ip-{number}")));
                let (limiter, login) = (&limiter, &login);
                async move { limiter.check_keys(login, &keys).await }
            });
            let verdicts: Vec<_> = stream::iter(checks).buffered(AT_A_TIME).collect().await;
            let allowed = verdicts
                .iter()
                .filter(|verdict| verdict.is_allowed())
                .count();
            let unchecked = verdicts
                .iter()
                .filter(|verdict| !is_checked(verdict))
                .count();
            (allowed, unchecked)
        })
    });

    let (mut allowed, mut unchecked) = (0, 0);
    for caller in callers.collect::<Vec<_>>() {
        let seen = caller.await.expect("a caller");
        allowed += seen.0;
        unchecked += seen.1;
    }

    println!("login: {allowed} of 8,000 passed, the limit is 100; {unchecked} without the store");
    assert!(allowed <= 100, "{allowed} of 100");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_batches_take_no_more_slots_than_there_are() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(config(&fixture), FailureMode::Local).await;
    let slots = policy("slots", "concurrency 5000 lease 10min");
    let callers = (0..16).map(|_| {
        let (limiter, slots) = (ours.limiter.clone(), slots.clone());
        tokio::spawn(async move {
            let shared = key("shared");
            let checks = (0..CHECKS).map(|_| limiter.check(&slots, &shared));
            let verdicts: Vec<_> = stream::iter(checks).buffered(AT_A_TIME).collect().await;
            let allowed = verdicts
                .iter()
                .filter(|verdict| verdict.is_allowed())
                .count();
            let unchecked = verdicts
                .iter()
                .filter(|verdict| !is_checked(verdict))
                .count();
            (allowed, unchecked)
        })
    });

    let (mut allowed, mut unchecked) = (0, 0);
    for caller in callers.collect::<Vec<_>>() {
        let seen = caller.await.expect("a caller");
        allowed += seen.0;
        unchecked += seen.1;
    }

    println!("slots: {allowed} of 16,000 passed, there are 5,000; {unchecked} without the store");
    assert!(allowed <= 5_000, "{allowed} of 5,000");
    let _ = PATIENCE;
}
