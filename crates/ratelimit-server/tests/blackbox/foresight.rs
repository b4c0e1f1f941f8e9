//! What is foretold is what comes: the same server inside this process, on a clock that is moved.

use std::{future::Future, pin::Pin, time::Duration};

use axum::{Router, body::Body, http::Request};
use clap::Parser as _;
use http_body_util::BodyExt as _;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use ratelimit_core::{Clock, Limiter, MemoryStore, Timestamp};
use ratelimit_server::{App, Cli, Config, Peer, recorder};
use ratelimit_tests::redis::TestRedis;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::server::{CHECK, EXPLAIN, REMAINING};

/// A policy, the pauses and costs of hits on it, and the cost that is asked about.
type Case = (String, Vec<(u64, u64)>, u64);

struct Subject {
    router: Router,
    clock: Clock,
}

impl Subject {
    fn new(limits: &str, limiter: impl FnOnce(Clock) -> Limiter) -> Subject {
        let clock = Clock::manual(Timestamp::from_micros(1_234_567));
        let policy = format!("p={limits}");
        let cli = Cli::try_parse_from([
            "ratelimit-server",
            "--admin-without-token",
            "--policy",
            &policy,
        ])
        .unwrap();
        let config = Config::load(&cli.settings).unwrap();
        let metrics = recorder("test").handle();
        let app = App::new(&config, limiter(clock.clone()), config.listen, metrics);
        let router = app.router();
        Subject { router, clock }
    }

    async fn get(&self, path: &str, key: &str, permits: u64) -> Value {
        let uri = format!("{path}?policy=p&key={key}&permits={permits}");
        let request = Request::get(uri).extension(Peer(([127, 0, 0, 1], 4711).into()));
        let request = request.body(Body::empty()).unwrap();
        let answer = self.router.clone().oneshot(request).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }

    /// The same past for two keys, of which one comes a microsecond too early.
    async fn holds(&self, (_, hits, cost): &Case) -> Result<(), TestCaseError> {
        for (pause, cost) in hits {
            self.clock.advance(Duration::from_micros(*pause));
            for key in ["early", "timely"] {
                self.get(CHECK, key, *cost).await;
            }
        }
        let foretold = self.get(EXPLAIN, "timely", *cost).await;
        let look = self.get(REMAINING, "timely", *cost).await;
        let wait = foretold["passesAfterMicros"].as_u64();
        prop_assert_eq!(&look["allowed"], &foretold["allowed"]);
        prop_assert_eq!(
            look["retryAfterSeconds"].as_u64(),
            wait.map(|micros| micros.div_ceil(1_000_000))
        );
        let Some(wait) = wait else {
            let never = self.get(CHECK, "timely", *cost).await;
            prop_assert_eq!(&never["retryAfterSeconds"], &Value::Null);
            return Ok(());
        };
        let is_now = wait == 0;
        prop_assert_eq!(foretold["allowed"].as_bool(), Some(is_now));
        if !is_now {
            self.clock.advance(Duration::from_micros(wait - 1));
            let early = self.get(CHECK, "early", *cost).await;
            prop_assert_eq!(&early["allowed"], false, "{} {}", foretold, early);
            self.clock.advance(Duration::from_micros(1));
        }
        let timely = self.get(CHECK, "timely", *cost).await;
        prop_assert_eq!(&timely["allowed"], true, "{} {}", foretold, timely);
        Ok(())
    }
}

fn limit() -> impl Strategy<Value = String> {
    let numbers = (1_u64..8, prop_oneof![Just(1), 2_u64..11], 1_u64..9);
    let text = prop_oneof![
        Just("token_bucket {n}/{t}s burst {b}"),
        Just("leaky_bucket {n}/{t}s queue {b}"),
        Just("leaky_bucket {n}/{t}s queue {b} police"),
        Just("fixed_window {n}/{t}s"),
        Just("sliding_window_log {n}/{t}s"),
        Just("sliding_window_log {n}/{t}s count-denied"),
        Just("sliding_window_counter {n}/{t}s"),
        Just("concurrency {n} lease {t}s"),
        Just("fixed_window {n}/{t}s; penalty_box {b}/{t}s for 3s"),
    ];
    (text, numbers).prop_map(|(text, (n, t, b))| {
        let text = text.replace("{n}", &n.to_string());
        let text = text.replace("{t}", &t.to_string());
        text.replace("{b}", &b.to_string())
    })
}

fn case() -> impl Strategy<Value = Case> {
    let limits = vec(limit(), 1..4).prop_map(|limits| limits.join("; "));
    let hits = vec((0_u64..3_000_000, 1_u64..4), 0..30);
    (limits, hits, 1_u64..9)
}

fn run(
    cases: u32,
    test: impl Fn(Case) -> Pin<Box<dyn Future<Output = Result<(), TestCaseError>>>>,
) {
    let runtime = tokio::runtime::Handle::current();
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    runner
        .run(&case(), |case| {
            tokio::task::block_in_place(|| runtime.block_on(test(case)))
        })
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_in_memory_predicts_the_next_decision() {
    run(1_000, |case| {
        let subject = Subject::new(&case.0, |clock| {
            Limiter::new(MemoryStore::new().clock(clock))
        });
        Box::pin(async move { subject.holds(&case).await })
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_in_redis_predicts_the_next_decision() {
    let redis = std::sync::Arc::new(TestRedis::start().await);
    run(200, |case| {
        let redis = std::sync::Arc::clone(&redis);
        Box::pin(async move {
            let clock = Clock::manual(Timestamp::default());
            let store = redis.store(clock.clone()).await;
            let mut subject = Subject::new(&case.0, |_| Limiter::new(store));
            clock.set(subject.clock.now());
            subject.clock = clock;
            subject.holds(&case).await
        })
    });
    redis.assert_every_key_expires();
}
