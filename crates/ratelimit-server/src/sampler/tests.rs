//! A scripted load of known counts on the engine, and on counters.

#![expect(
    clippy::float_cmp,
    reason = "rates are multiples of 1/1024, which are exact"
)]

use std::{num::NonZeroU32, time::Duration};

use metrics::{counter, gauge, histogram, with_local_recorder};
use ratelimit_core::{
    FailureMode, Key, KeySet, Limiter, Policy,
    metrics::{
        CHECK_SECONDS, CONNECTS, DENY_CACHED, OVER, REQUESTS, ROUND_TRIP_SECONDS, SERVER_INFO,
        STORE_UP,
    },
    store::{Charged, Hit, Store, StoreError, StoreFuture},
};

use ratelimit_http::metrics::POLICY_RELOADS;

use super::*;
use crate::metrics::recorder;

const SECOND: Duration = Duration::from_secs(1);

/// A store that does not answer.
#[derive(Debug)]
struct SilentStore;

impl Store for SilentStore {
    fn hit(&self, _: Hit<'_>) -> StoreFuture<Charged> {
        StoreFuture::ready(Err(StoreError::TimedOut))
    }

    fn reset(&self, _: &Policy, _: &KeySet) -> StoreFuture<()> {
        StoreFuture::ready(Err(StoreError::TimedOut))
    }
}

/// Checks one key so many times. The checks are decided when they are made.
fn check(limiter: &Limiter, policy: &Policy, times: usize) {
    let key = Key::new("alice").unwrap();
    for _ in 0..times {
        assert!(limiter.check(policy, &key).take_ready().is_some());
    }
}

fn policy(name: &str, limits: &str) -> Policy {
    Policy::parse(name, limits).unwrap()
}

#[test]
fn a_scripted_load_of_the_engine_has_the_rates_of_its_counts() {
    let recorder = recorder("test");
    with_local_recorder(&recorder, || {
        let memory = Limiter::in_memory();
        let silent = Limiter::new(SilentStore);
        let hard = policy("hard", "fixed_window 5/h");
        let soft = policy("soft", "fixed_window 10/h");
        let soft = soft.with_throttle("soft 50%".parse().unwrap()).unwrap();
        let watched = policy("watched", "fixed_window 4/h").shadow();
        let local = policy("local", "fixed_window 2/h");
        let open = policy("open", "fixed_window 2/h").with_failure_mode(FailureMode::Open);
        let closed = policy("closed", "fixed_window 2/h").with_failure_mode(FailureMode::Closed);
        let instances = NonZeroU32::new(2).unwrap();
        let shared = FailureMode::LocalShare { instances };
        let share = policy("share", "fixed_window 2/h").with_failure_mode(shared);
        check(&memory, &hard, 1);

        let sampler = Sampler::new(recorder.handle());
        check(&memory, &hard, 7); // 4 fit, 3 are denied
        check(&memory, &soft, 17); // 10 fit, 5 are over, 2 are denied
        check(&memory, &watched, 9); // 4 fit, 5 would be denied
        check(&silent, &local, 3); // 2 fit, 1 is denied
        check(&silent, &open, 6); // 6 pass
        check(&silent, &closed, 8); // 8 are denied
        check(&silent, &share, 4); // 1 fits, 3 are denied
        sampler.sample(100, SECOND);

        let rates = |name: &str| {
            let rates = sampler.policy_rates(name);
            assert_eq!(rates.checks, rates.allowed + rates.over + rates.denied);
            let by = rates.store + rates.unchecked + rates.deny_cached + rates.prefetched;
            assert_eq!(rates.checks, by);
            [
                rates.allowed,
                rates.over,
                rates.denied,
                rates.would_deny,
                rates.unchecked,
            ]
        };
        assert_eq!(rates("hard"), [4.0, 0.0, 3.0, 0.0, 0.0]);
        assert_eq!(rates("soft"), [10.0, 5.0, 2.0, 0.0, 0.0]);
        assert_eq!(rates("watched"), [9.0, 0.0, 0.0, 5.0, 0.0]);
        assert_eq!(rates("local"), [2.0, 0.0, 1.0, 0.0, 3.0]);
        assert_eq!(rates("open"), [6.0, 0.0, 0.0, 0.0, 6.0]);
        assert_eq!(rates("closed"), [0.0, 0.0, 8.0, 0.0, 8.0]);
        assert_eq!(rates("share"), [1.0, 0.0, 3.0, 0.0, 4.0]);
        assert_eq!(sampler.policy_rates("open").fallback, [0.0, 0.0, 6.0, 0.0]);
        assert_eq!(sampler.policy_rates("share").fallback, [0.0, 4.0, 0.0, 0.0]);
        assert_eq!(rates("unknown"), [0.0; 5]);

        let total = sampler.last().rates.total;
        assert_eq!(total.checks, 54.0);
        assert_eq!((total.allowed, total.over, total.denied), (32.0, 5.0, 17.0));
        assert_eq!((total.would_deny, total.unchecked), (5.0, 21.0));
        assert_eq!(total.store, 33.0);

        sampler.sample(101, SECOND);
        assert_eq!(sampler.last().rates.total, PolicyRates::default());
        assert_eq!(rates("hard"), [0.0; 5]);
    });
}

#[test]
fn a_late_sample_divides_by_the_true_span_and_a_missed_one_is_a_gap() {
    let recorder = recorder("test");
    with_local_recorder(&recorder, || {
        let sampler = Sampler::new(recorder.handle());
        let checks = counter!(REQUESTS, "policy" => "api", "allowed" => "true");
        checks.increment(100);
        sampler.sample(10, SECOND);
        checks.increment(100);
        sampler.sample(11, Duration::from_millis(1_250));
        checks.increment(300);
        sampler.sample(14, Duration::from_secs(3));

        let history = sampler.history();
        let points: Vec<_> = history
            .points()
            .map(|point| (point.at, point.rates.map(|rates| rates.total.checks)))
            .collect();
        assert_eq!(
            points,
            [
                (10, Some(100.0)),
                (11, Some(80.0)),
                (12, None),
                (13, None),
                (14, Some(100.0)),
            ]
        );

        // Late within its second, and the next one in time.
        sampler.sample(15, Duration::from_millis(1_700));
        sampler.sample(16, Duration::from_millis(300));
        let history = sampler.history();
        assert!(history.points().skip(4).all(|point| point.rates.is_some()));
        assert_eq!(history.points().count(), 7);

        for at in 17..1_000 {
            sampler.sample(at, SECOND);
        }
        let history = sampler.history();
        assert_eq!(history.points().count(), 300);
        assert_eq!(history.points().last().map(|point| point.at), Some(999));

        sampler.sample(50_000, SECOND);
        let history = sampler.history();
        let gaps = history.points().filter(|point| point.rates.is_none());
        assert_eq!(gaps.count(), 1);
        sampler.sample(7, SECOND);
        let history = sampler.history();
        let times: Vec<u64> = history.points().map(|point| point.at).collect();
        assert_eq!(times, [7]);
    });
}

#[test]
fn a_second_without_a_timed_check_has_no_latency() {
    let recorder = recorder("test");
    with_local_recorder(&recorder, || {
        histogram!(CHECK_SECONDS, "policy" => "api").record(0.9);
        histogram!(ROUND_TRIP_SECONDS).record(0.9);
        let sampler = Sampler::new(recorder.handle());
        counter!(REQUESTS, "policy" => "api", "allowed" => "true").increment(5);
        sampler.sample(10, SECOND);

        let quiet = sampler.last();
        assert_eq!(
            (quiet.rates.p50_micros, quiet.rates.p99_micros),
            (None, None)
        );
        assert_eq!(quiet.round_trip, None);

        for _ in 0..100 {
            histogram!(CHECK_SECONDS, "policy" => "api").record(0.002);
        }
        histogram!(ROUND_TRIP_SECONDS).record(0.001);
        histogram!(ROUND_TRIP_SECONDS).record(0.003);
        sampler.sample(11, SECOND);

        let timed = sampler.last();
        assert_eq!(timed.rates.p50_micros, Some(1_750));
        assert_eq!(timed.rates.p99_micros, Some(2_485));
        assert_eq!(sampler.policy_rates("api").p99_micros, Some(2_485));
        assert_eq!(timed.round_trip.unwrap().as_micros(), 2_000);

        sampler.sample(12, SECOND);
        assert_eq!(sampler.last().rates.p50_micros, None);
        assert_eq!(sampler.policy_rates("api").p99_micros, Some(2_485));
    });
}

#[test]
fn the_busiest_policies_come_first_and_idle_ones_follow_while_they_exist() {
    let recorder = recorder("test");
    with_local_recorder(&recorder, || {
        let sampler = Sampler::new(recorder.handle());
        let count = |name: &'static str, checks: u64| {
            counter!(REQUESTS, "policy" => name, "allowed" => "false").increment(checks);
        };
        for (name, checks) in [("a", 5), ("b", 9), ("c", 7), ("gone", 50), ("never", 0)] {
            count(name, checks);
        }
        sampler.sample(10, SECOND);
        count("a", 2);
        sampler.sample(11, SECOND);

        let names = |max: usize| -> Vec<String> {
            let busiest = sampler.busiest(max, |name| name != "gone");
            busiest.into_iter().map(|policy| policy.name).collect()
        };
        assert_eq!(names(20), ["a", "b", "c"]);
        assert_eq!(names(2), ["a", "b"]);
    });
}

#[test]
fn the_store_is_up_while_all_servers_in_use_decide() {
    let recorder = recorder("test");
    with_local_recorder(&recorder, || {
        let sampler = Sampler::new(recorder.handle());
        let health = |at: u64| {
            sampler.sample(at, SECOND);
            sampler.last().store
        };
        assert!(!health(1).is_up);

        let up = |server: &'static str, value: f64| gauge!(STORE_UP, "server" => server).set(value);
        up("b:6379", 1.0);
        up("a:6379", 1.0);
        counter!(CONNECTS, "server" => "b:6379").increment(2);
        counter!(CONNECTS, "server" => "a:6379").increment(1);
        gauge!(SERVER_INFO, "version" => "7.0.15").set(1.0);
        let both = health(2);
        assert!(both.is_up && both.down.is_zero());
        assert_eq!(both.servers, ["a:6379", "b:6379"]);
        assert_eq!(both.version.as_deref(), Some("7.0.15"));
        assert_eq!(both.reconnects, 3);

        up("a:6379", 0.0);
        assert!(!health(3).is_up);
        health(4);
        assert_eq!(health(5).down, 2 * SECOND);

        up("a:6379", f64::NAN);
        let left = health(6);
        assert!(left.is_up && left.down.is_zero());
        assert_eq!(left.servers, ["b:6379"]);
    });
}

#[test]
fn a_reload_is_told_with_its_result_and_its_second() {
    let recorder = recorder("test");
    with_local_recorder(&recorder, || {
        let count = |result: &'static str| counter!(POLICY_RELOADS, "result" => result);
        count("ok").increment(3);
        count("rejected").increment(0);
        let sampler = Sampler::new(recorder.handle());
        let reload = |at: u64| {
            sampler.sample(at, SECOND);
            sampler
                .last()
                .reload
                .map(|reload| (reload.is_ok, reload.at))
        };
        assert_eq!(reload(10), None);
        count("rejected").increment(1);
        assert_eq!(reload(11), Some((false, 11)));
        assert_eq!(reload(12), Some((false, 11)));
        count("ok").increment(1);
        assert_eq!(reload(13), Some((true, 13)));
        count("ok").increment(1);
        count("rejected").increment(1);
        assert_eq!(reload(14), Some((false, 14)));
    });
}

#[test]
fn ten_thousand_policies_are_sampled_in_milliseconds() {
    let recorder = recorder("test");
    with_local_recorder(&recorder, || {
        let sampler = Sampler::new(recorder.handle());
        let counters: Vec<_> = (0..10_000)
            .map(|place| {
                let name = format!("policy-{place}");
                counter!(OVER, "policy" => name.clone()).increment(0);
                counter!(DENY_CACHED, "policy" => name.clone()).increment(0);
                histogram!(CHECK_SECONDS, "policy" => name.clone()).record(0.001);
                counter!(REQUESTS, "policy" => name.clone(), "allowed" => "false").increment(0);
                counter!(REQUESTS, "policy" => name, "allowed" => "true")
            })
            .collect();
        sampler.sample(1, SECOND);
        let mut fastest = SECOND;
        for at in 2..12 {
            for counter in &counters {
                counter.increment(1);
            }
            let started = std::time::Instant::now();
            sampler.sample(at, SECOND);
            fastest = fastest.min(started.elapsed());
        }
        println!("a sample of 10,000 busy policies takes {fastest:?}");

        assert_eq!(sampler.last().rates.total.checks, 10_000.0);
        // Ten times what a debug build takes on two busy cores.
        assert!(fastest < Duration::from_millis(200), "{fastest:?}");
    });
}
