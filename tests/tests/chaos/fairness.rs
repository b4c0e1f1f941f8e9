//! One policy or client does not take a healthy Redis away from the others.
//!
//! The attacks are legal requests, sent as `ratelimit-server` sends the checks of a `POST`: 128 at a time for each
//! connection. Bystanders are batched and not batched.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use ratelimit_core::{
    FailureMode, Key, KeySet, Limiter, Policy, RedisConfig, UncheckedReason, Verdict,
    store::{Hit, JointHit},
};
use ratelimit_tests::chaos::{Fixture, PATIENCE, ours};

use crate::harness::{is_checked, key, policy};

/// Checks of one request that the server decides at the same time.
const AT_A_TIME: usize = 128;
/// Checks of one request.
const CHECKS: usize = 1_000;

/// What others got out of the store meanwhile.
#[derive(Clone, Debug, Default)]
struct Bystanders {
    checked: usize,
    /// Without the store, by the reason.
    unchecked: HashMap<UncheckedReason, usize>,
}

impl Bystanders {
    fn count(&mut self, verdict: &Verdict) {
        if let Verdict::Unchecked { reason, .. } = verdict {
            *self.unchecked.entry(*reason).or_default() += 1;
        } else {
            self.checked += 1;
        }
    }

    /// Whether Redis decided most of them. Without the bound on work it decided one in five at most; on a busy host some
    /// wait for a processor until they time out.
    fn are_served(&self) -> bool {
        let unchecked: usize = self.unchecked.values().sum();
        self.checked > 2 * unchecked
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
                seen.count(&limiter.check_keys(&policy, &keys).await);
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
async fn a_policy_with_many_hits_in_flight_leaves_permits_to_others() {
    let fixture = Fixture::start(&[]).await;
    let config = fixture.config().timeout(PATIENCE).max_in_flight(16);
    let ours = ours(config, FailureMode::Closed).await;
    fixture.proxy.delay(Duration::from_millis(300));
    let busy = (0..64).map(|number| {
        let limiter = ours.limiter.clone();
        tokio::spawn(async move {
            let busy = policy("busy", "fixed_window 100000000/366d");
            limiter.check(&busy, &key(&format!("k{number}"))).await
        })
    });
    let busy: Vec<_> = busy.collect();
    tokio::time::sleep(Duration::from_millis(100)).await;

    let other = policy("other", "5/min");
    let bystander = ours.limiter.check(&other, &key("bystander")).await;

    let mut refused = 0;
    for one in busy {
        refused += usize::from(!is_checked(&one.await.expect("a verdict")));
    }
    assert!(is_checked(&bystander), "{bystander:?}");
    assert_eq!(refused, 64 - 16);
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
async fn a_login_policy_leaves_redis_to_others() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(config(&fixture), FailureMode::Local).await;

    let seen = attack(&ours.limiter, 8, Duration::from_secs(4), |number| {
        let login = "10/h; 5/min by ip; penalty_box 10/min for 1min";
        let number = number % 20;
        let keys = KeySet::new(key(&format!("user-{number}")));
        let keys = keys.with("ip", key(&format!("ip-{number}")));
        (policy("login", login), keys, 1)
    })
    .await;

    assert_served("login", &seen);
}
