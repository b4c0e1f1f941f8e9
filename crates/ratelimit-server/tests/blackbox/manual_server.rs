//! The server inside this process on a clock that is moved, and random limits for it.

use std::{future::Future, ops::Range, pin::Pin};

use axum::{Router, body::Body, http::Request};
use clap::Parser as _;
use http_body_util::BodyExt as _;
use proptest::{prelude::*, test_runner::TestRunner};
use ratelimit_core::{Clock, Limiter, MemoryStore, Timestamp};
use ratelimit_server::{App, Cli, Config, Peer, recorder};
use ratelimit_tests::redis::TestRedis;
use serde_json::Value;
use tower::ServiceExt as _;

/// The result of a case.
pub(crate) type Tested = Pin<Box<dyn Future<Output = Result<(), TestCaseError>>>>;

/// A server with one policy, `p`.
pub(crate) struct ManualServer {
    router: Router,
    pub(crate) clock: Clock,
}

impl ManualServer {
    pub(crate) fn in_memory(limits: &str) -> ManualServer {
        let clock = Clock::manual(Timestamp::from_micros(1_234_567));
        let limiter = Limiter::new(MemoryStore::new().clock(clock.clone()));
        ManualServer::new(limits, limiter, clock)
    }

    pub(crate) async fn in_redis(limits: &str, redis: &TestRedis) -> ManualServer {
        let clock = Clock::manual(Timestamp::default());
        let store = redis.store(clock.clone()).await;
        clock.set(Timestamp::from_micros(1_234_567));
        ManualServer::new(limits, Limiter::new(store), clock)
    }

    fn new(limits: &str, limiter: Limiter, clock: Clock) -> ManualServer {
        let policy = format!("p={limits}");
        let args = [
            "ratelimit-server",
            "--admin-without-token",
            "--policy",
            &policy,
        ];
        let config = Config::load(&Cli::try_parse_from(args).unwrap().settings).unwrap();
        let metrics = recorder("test").handle();
        let app = App::new(&config, limiter, config.listen, metrics);
        let router = app.router();
        ManualServer { router, clock }
    }

    /// The answer to a call about the policy.
    pub(crate) async fn get(&self, path: &str, query: &str) -> Value {
        let uri = format!("{path}?policy=p&{query}");
        let request = Request::get(uri).extension(Peer(([127, 0, 0, 1], 4711).into()));
        let request = request.header("host", "localhost").body(Body::empty());
        let answer = self.router.clone().oneshot(request.unwrap()).await.unwrap();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap()
    }
}

/// A limit of any algorithm, whose rate has as many units as `units` holds, and a burst or queue of at most 8.
pub(crate) fn limit(units: Range<u64>) -> impl Strategy<Value = String> {
    let numbers = (units, prop_oneof![Just(1), 2_u64..11], 1_u64..9);
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

/// Tests random cases on the runtime of the caller.
pub(crate) fn run<C: Strategy>(cases: u32, case: &C, test: impl Fn(C::Value) -> Tested) {
    let runtime = tokio::runtime::Handle::current();
    let mut runner = TestRunner::new(ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let test = |case| tokio::task::block_in_place(|| runtime.block_on(test(case)));
    runner.run(case, test).unwrap();
}
