//! Answers within the time that the caller waits.

use std::time::{Duration, Instant};

use ratelimit_envoy::proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, rate_limit_response::Code,
};
use ratelimit_tests::redis::RedisProcess;

use super::{EnvoyServer, and, ask_by_curl, request};
use crate::server::until;

const RULES: &str = "
domain: edge
descriptors:
  - { key: site, rate_limit: { unit: day, requests_per_unit: 1000 } }
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3 } }
";

/// The caller waits half a second, and the server for a minute without it.
const GRPC_TIMEOUT: [&str; 3] = ["--http2-prior-knowledge", "-H", "grpc-timeout: 500m"];
const PATIENT: [&str; 2] = ["--time-budget", "60s"];

/// Ten times the half second.
const WITHIN: Duration = Duration::from_secs(5);

/// The codes of requests one after the other, each of which is answered in time.
fn answered_in_time(envoy: &EnvoyServer, requests: &[RateLimitRequest]) -> Vec<Code> {
    let url = format!("http://{}", envoy.addr);
    let answer = |request| {
        let started = Instant::now();
        let response = ask_by_curl(&url, request, &GRPC_TIMEOUT).unwrap();
        assert!(started.elapsed() < WITHIN, "{:?}", started.elapsed());
        response.overall_code()
    };
    requests.iter().map(answer).collect()
}

fn single() -> RateLimitRequest {
    request("edge", "user", b"alice")
}

fn joint() -> RateLimitRequest {
    and(request("edge", "site", b"all"), "user", b"bob")
}

#[tokio::test]
async fn a_stopped_redis_leaves_the_answer_to_the_failure_mode_in_time() {
    let redis = RedisProcess::start(&[]);
    let args = [&PATIENT[..], &["--on-failure", "local"]].concat();
    let envoy = EnvoyServer::start_connected(RULES, &redis.url(), &args).await;
    redis.signal("STOP");

    let alone = answered_in_time(&envoy, &vec![single(); 5]);
    let together = answered_in_time(&envoy, &vec![joint(); 5]);

    let expected = [
        Code::Ok,
        Code::Ok,
        Code::Ok,
        Code::OverLimit,
        Code::OverLimit,
    ];
    assert_eq!(alone, expected);
    assert_eq!(together, expected);
    redis.signal("CONT");
}

#[tokio::test]
async fn redis_counts_nothing_after_the_caller_was_answered() {
    let redis = RedisProcess::start(&[]);
    let args = [&PATIENT[..], &["--on-failure", "open"]].concat();
    let envoy = EnvoyServer::start_connected(RULES, &redis.url(), &args).await;
    assert_eq!(envoy.remaining("user", b"alice").await, 3);
    redis.signal("STOP");
    let mut credit = single();
    credit.descriptors[0].is_negative_hits = true;

    let codes = answered_in_time(&envoy, &[single(), joint(), single(), joint()]);
    let credits = answered_in_time(&envoy, &[credit]);

    assert_eq!(codes, [Code::Ok; 4]);
    assert_eq!(credits, [Code::Ok]);
    redis.signal("CONT");
    let is_decided_by_redis = async || {
        let mut look = single();
        look.descriptors[0].hits_addend = Some(0);
        let response = envoy.ask(look).await.unwrap();
        response.statuses[0].current_limit.is_some().then_some(())
    };
    until(is_decided_by_redis).await;
    assert_eq!(envoy.remaining("user", b"alice").await, 3);
    assert_eq!(envoy.remaining("user", b"bob").await, 3);
    assert_eq!(envoy.remaining("site", b"all").await, 1_000);
}

#[tokio::test]
async fn a_killed_redis_leaves_the_answer_to_the_failure_mode_in_time() {
    let mut redis = RedisProcess::start(&[]);
    let args = [&PATIENT[..], &["--on-failure", "closed"]].concat();
    let envoy = EnvoyServer::start_connected(RULES, &redis.url(), &args).await;
    for request in [single(), joint()] {
        let response = envoy.ask(request).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
    }

    redis.kill();

    assert_eq!(
        answered_in_time(&envoy, &[single(), joint(), single(), joint()]),
        [Code::OverLimit; 4]
    );
    redis.restart();
    let passes = async || {
        let response = envoy.ask(joint()).await.unwrap();
        (response.overall_code() == Code::Ok).then_some(())
    };
    until(passes).await;
}
