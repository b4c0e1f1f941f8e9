//! Clocks that jump, and clocks that are wrong.

use std::time::Duration;

use ratelimit_core::{Clock, FailureMode, Key, Policy, Timestamp};
use ratelimit_tests::chaos::{Fixture, Ours, PATIENCE, ours};

use crate::harness::{is_checked, key, policy};

const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;
const START: u64 = 1_700_000_000 * SECOND;
const ALGORITHMS: [&str; 5] = [
    "token_bucket",
    "leaky_bucket",
    "fixed_window",
    "sliding_window_log",
    "sliding_window_counter",
];

/// How many hits pass at once.
async fn burst(ours: &Ours, limit: &Policy, key: &Key) -> u64 {
    let mut passed = 0;
    loop {
        let verdict = ours.limiter.check(limit, key).await;
        assert!(is_checked(&verdict), "{verdict:?}");
        if !verdict.is_allowed() {
            return passed;
        }
        passed += 1;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_23_a_clock_that_jumps_gives_one_burst_and_locks_nobody_out() {
    let fixture = Fixture::start(&[]).await;
    let clock = Clock::manual(Timestamp::from_micros(START));
    let config = fixture.config().timeout(PATIENCE).clock(clock.clone());
    let ours = ours(config, FailureMode::Closed).await;
    let at = |micros: u64| clock.set(Timestamp::from_micros(micros));
    for algorithm in ALGORITHMS {
        let limit = policy("jump", &format!("{algorithm} 10/min"));
        for (name, after) in [("ahead", START + HOUR), ("back", START - HOUR)] {
            let subject = key(&format!("{algorithm}-{name}"));

            at(START);
            let first = burst(&ours, &limit, &subject).await;
            at(after);
            let at_once = burst(&ours, &limit, &subject).await;
            let mut waited = 0;
            while burst(&ours, &limit, &subject).await == 0 {
                waited += 1;
                at(after + waited * SECOND);
            }

            println!(
                "row 23 {algorithm}, one hour {name}: {at_once} at once, then waited {waited} s"
            );
            assert_eq!(first, 10);
            assert!(at_once <= 10, "more than a burst");
            assert!(waited <= 3 * 60, "locked out for {waited} s");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_23_a_node_with_another_clock_takes_over_without_a_second_burst() {
    let fixture = Fixture::start(&[]).await;
    let nodes = [START, START - 30 * SECOND, START + 5 * SECOND];
    for algorithm in ALGORITHMS {
        let limit = policy("nodes", &format!("{algorithm} 10/h"));
        let mut admitted = 0;
        for now in nodes {
            let clock = Clock::manual(Timestamp::from_micros(now));
            let config = fixture.config().timeout(PATIENCE).clock(clock);
            let node = ours(config, FailureMode::Closed).await;
            admitted += burst(&node, &limit, &key(algorithm)).await;
        }

        assert_eq!(admitted, 10, "{algorithm}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_24_decisions_are_made_by_the_servers_clock() {
    let fixture = Fixture::start(&[]).await;
    let instances = [(); 2].map(|()| fixture.config().timeout(PATIENCE));
    let limit = policy("servers", "4/h");
    let server_now = || -> Duration {
        let time: (u64, u64) = fixture.server.command(&["TIME"]).unwrap();
        Duration::from_micros(time.0 * SECOND + time.1)
    };

    let before = server_now();
    let mut admitted = 0;
    for config in instances {
        let instance = ours(config, FailureMode::Closed).await;
        admitted += burst(&instance, &limit, &key("k")).await;
        let look = instance.limiter.peek(&limit, &key("k")).await;
        let now = Duration::from_micros(look.decision().unwrap().now.as_micros());

        assert!((before..=server_now()).contains(&now));
    }

    assert_eq!(admitted, 4);
    println!("row 24 the server's clock: 4 admitted of 4");
}
