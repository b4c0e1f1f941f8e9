//! How much of a limit passes when several instances prefetch from it, and whether anything passes beyond it.

use std::{
    thread,
    time::{Duration, Instant},
};

use ratelimit_core::{Clock, Key, Limiter, MemoryStore, Policy, RedisStore, Timestamp, Verdict};
use tokio::runtime::Builder;

use super::{
    Plan,
    duration::exact,
    load::{TIMEOUT, config},
};
use crate::{
    report::{Goal, Report, Row, Spread},
    server::RedisServer,
    workload::poll_now,
};

const INSTANCES: u128 = 8;
/// Units a second that each policy lets pass.
const LIMIT: usize = 4_000;
/// Hits a second of an instance; all together are three times the limit.
const RATE: u128 = 1_500;
const SHARE: u32 = 5;
const POLICIES: [&str; 4] = [
    "token_bucket 4000/s",
    "fixed_window 4000/s",
    "sliding_window_counter 4000/s",
    "token_bucket 4000/s; fixed_window 1000000/min",
];
const SECOND: u64 = 1_000_000;

pub(super) fn run(plan: Plan, report: &mut Report) {
    for limits in POLICIES {
        let policy = Policy::parse("bench", limits).expect("limits that are well formed");
        let passed = passed(plan, &policy);
        let what = format!("{INSTANCES} instances at three times {limits}, prefetch {SHARE}%");
        let used = Row::new(
            format!("{what}, passed"),
            "% of the limit",
            used(plan, &passed),
        );
        report.rows.push(used.goal(Goal::AtLeast(95.0)));
        let beyond = Spread::exactly(beyond(&policy, &passed));
        let beyond = Row::new(format!("{what}, passed beyond the limit"), "hits", beyond);
        report.rows.push(beyond.goal(Goal::AtMost(0.0)));
    }
}

/// The times of all hits that passed, in order, in microseconds of the server.
fn passed(plan: Plan, policy: &Policy) -> Vec<u64> {
    let server = RedisServer::start(&[]);
    // The first second warms up, and the last one is not whole.
    let lasting = Duration::from_secs(2 + plan.rounds() as u64);
    let policy = policy.clone().with_prefetch(SHARE);
    let policy = policy.expect("limits that can be prefetched");
    let instances = (0..INSTANCES).map(|_| {
        let (url, policy) = (server.url(), policy.clone());
        thread::spawn(move || run_instance(&url, &policy, lasting))
    });
    let instances: Vec<_> = instances.collect();
    let passed = instances
        .into_iter()
        .map(|it| it.join().expect("no instance panics"));
    let mut passed: Vec<u64> = passed.flatten().collect();
    passed.sort_unstable();
    passed
}

/// Hits one key at a steady rate, with a limiter, a connection and a runtime of its own.
fn run_instance(url: &str, policy: &Policy, lasting: Duration) -> Vec<u64> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let store = RedisStore::new(config(url));
        assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
        let limiter = Limiter::new(store);
        let key = key();
        let (mut hits, mut passed) = (0, Vec::new());
        let start = Instant::now();
        while start.elapsed() < lasting {
            while hits < start.elapsed().as_micros() * RATE / u128::from(SECOND) {
                let Verdict::Checked(decision) = limiter.check(policy, &key).await else {
                    panic!("Redis does not answer");
                };
                hits += 1;
                if decision.is_allowed() {
                    passed.push(decision.now.as_micros());
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        passed
    })
}

/// The percentage of the limit that passed in each whole second but the first.
fn used(plan: Plan, passed: &[u64]) -> Spread {
    let first = passed[0].next_multiple_of(SECOND) + SECOND;
    let seconds = (0..plan.rounds() as u64).map(|second| first + second * SECOND);
    let percent = seconds.map(|from| {
        let count = passed.partition_point(|&now| now < from + SECOND)
            - passed.partition_point(|&now| now < from);
        100.0 * exact(count) / exact(LIMIT)
    });
    Spread::of(&percent.collect::<Vec<_>>())
}

/// How many of the hits that passed an exact limiter denies at the same times.
fn beyond(policy: &Policy, passed: &[u64]) -> f64 {
    let clock = Clock::manual(Timestamp::default());
    let exact_limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
    let key = key();
    let denied = passed.iter().filter(|&&now| {
        clock.set(Timestamp::from_micros(now));
        !poll_now(exact_limiter.check(policy, &key)).is_allowed()
    });
    exact(denied.count())
}

fn key() -> Key {
    Key::new("hot").expect("a key that is not empty")
}
