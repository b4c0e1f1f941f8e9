//! Instances and processes that prefetch from one Redis.

use std::time::Duration;

use ratelimit_core::{Clock, KeySet, Limiter, Policy, Timestamp, store::Hit};
use ratelimit_tests::{
    chaos::Observations,
    model::{Spec, prefetch::beyond},
    prefetch_instance::{InstanceHits, PrefetchInstance},
    redis::{TestRedis, connected},
};

use crate::stores::key;

#[tokio::test]
async fn a_memory_store_warns_once_of_each_policy_that_prefetches_nothing() {
    let observed = Observations::listen();
    for limits in ["1000/s", "fixed_window 1000/s", "1000/s; 2000/s by ip"] {
        for path in [
            "check", "peek", "dry_run", "reserve", "keys", "acquire", "announce",
        ] {
            let name = format!("{path}-{}", limits.len());
            let policy = Policy::parse(&name, limits).unwrap();
            let policy = policy.with_prefetch(5).unwrap();
            let (limiter, key) = (Limiter::in_memory(), key("k"));
            // A sampled hit, so that the sample is not that of the path.
            let _ = limiter
                .check(&Policy::parse("other", "1/s").unwrap(), &key)
                .await;
            for _ in 0..3 {
                match path {
                    "check" => drop(limiter.check(&policy, &key).await),
                    "peek" => drop(limiter.peek(&policy, &key).await),
                    "dry_run" => drop(limiter.dry_run(&policy, &key, 2).await),
                    "reserve" => drop(limiter.reserve(Hit::new(&policy, &key)).await),
                    "keys" => {
                        let keys = KeySet::new(key.clone()).with("ip", key.clone());
                        drop(limiter.check_keys(&policy, &keys).await);
                    }
                    "acquire" => drop(limiter.acquire(&policy, &key, Duration::ZERO).await),
                    _ => limiter.announce_policy(&policy),
                }
            }
            let told = observed.lines(&format!("{name:?}"));
            assert_eq!(told.len(), 1, "{limits} by {path}: {told:?}");
            assert!(told[0].contains("nothing is prefetched"), "{told:?}");
        }
    }
}

const SECOND: u64 = 1_000_000;

/// The limits of the tests below, as text and for the model.
fn saturated_limits() -> [(&'static str, Vec<Spec>); 4] {
    let bucket = Spec::TokenBucket {
        capacity: 4_000,
        refill: 4_000,
        period_us: SECOND,
    };
    let window = Spec::FixedWindow {
        limit: 4_000,
        period_us: SECOND,
    };
    let counter = Spec::SlidingWindowCounter {
        limit: 4_000,
        period_us: SECOND,
    };
    let minute = Spec::FixedWindow {
        limit: 100_000,
        period_us: 60 * SECOND,
    };
    [
        ("4000/s", vec![bucket]),
        ("fixed_window 4000/s", vec![window]),
        ("sliding_window_counter 4000/s", vec![counter]),
        ("4000/s; fixed_window 100000/min", vec![bucket, minute]),
    ]
}

/// Eight limiters with connections of their own, at three times the limit for three seconds of a clock that the test moves.
#[tokio::test]
async fn eight_instances_use_95_percent_of_a_saturated_limit_through_redis() {
    for (text, limits) in saturated_limits() {
        let redis = TestRedis::start().await;
        let clock = Clock::manual(Timestamp::from_secs(600));
        let config = redis.config().clock(clock.clone());
        let mut limiters = Vec::new();
        for _ in 0..8 {
            limiters.push(Limiter::new(connected(config.clone()).await));
        }
        let policy = Policy::parse("hot", text).unwrap();
        let policy = policy.with_prefetch(5).unwrap();
        let (mut passed, mut prefetched) = (Vec::new(), 0);
        for limiter in limiters.iter().cycle().take(36_000) {
            let verdict = limiter.check(&policy, &key("one")).await;
            let decision = verdict.decision().expect("Redis decides");
            if decision.is_allowed() {
                passed.push(decision.now.as_micros());
                prefetched += usize::from(decision.is_prefetched);
            }
            clock.advance(Duration::from_nanos(83_333));
        }
        let steady = passed.iter().filter(|now| **now >= 601 * SECOND).count();
        println!(
            "{text}: {steady} of 8,000 passed in two seconds, {prefetched} of {} were prefetched",
            passed.len()
        );
        assert_eq!(beyond(&limits, &passed), 0, "{text}");
        assert!(prefetched > 0 && steady >= 7_600, "{text}: {steady}");
    }
}

/// Eight processes hit one key for three seconds, at `rate` hits a second together.
fn run_processes(redis: &TestRedis, limits: &str, rate: u64) -> InstanceHits {
    let prefix = format!("prefetch-{}", limits.len());
    let start = |_| {
        let binary = env!("CARGO_BIN_EXE_prefetch_instance");
        PrefetchInstance::start(binary, [redis.url(), &prefix, limits], [rate / 8, 3_000])
    };
    let mut running: Vec<PrefetchInstance> = (0..8).map(start).collect();
    let mut all = InstanceHits::default();
    for process in &mut running {
        all.add(process.hits());
    }
    all.passed.sort_unstable();
    all
}

#[tokio::test]
async fn eight_processes_with_prefetch_never_over_admit() {
    for (text, limits) in saturated_limits() {
        let redis = TestRedis::start().await;
        let fleet = run_processes(&redis, text, 12_000);
        // The exact model lets all of them pass at their times.
        let beyond = beyond(&limits, &fleet.passed);
        // The second second of the server's clock: all instances are warm, and none has ended.
        let first = fleet.passed[0].next_multiple_of(1_000_000) + 1_000_000;
        let steady = fleet
            .passed
            .iter()
            .filter(|now| (first..first + 1_000_000).contains(*now));
        let steady = steady.count();
        println!(
            "{text}: {} hits, {} from memory, {} passed, {steady} of 4,000 in a whole second, {beyond} beyond the limit",
            fleet.hits,
            fleet.prefetched,
            fleet.passed.len(),
        );
        assert_eq!(beyond, 0, "{text}");
        // How much passes on a busy machine is a row of the bench (`fleet`).
        assert!(fleet.prefetched > 0, "{text}");
        assert!(steady >= 2_000, "{text}: {steady} passed in a second");
    }
}
