//! Two servers for Envoy that share one Redis.

use std::time::Duration;

use ratelimit_envoy::proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, rate_limit_response::Code,
};
use ratelimit_tests::redis::{RedisProcess, TestRedis};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::{EnvoyServer, and, codes_over, request};
use crate::server::until;

const RULES: &str = "
domain: edge
descriptors:
  - { key: site, rate_limit: { unit: day, requests_per_unit: 5000 } }
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: crowd, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: tokens, rate_limit: { unit: day, requests_per_unit: 100 } }
";

/// Long enough for a busy machine: no answer of these tests comes from the failure mode.
const PATIENT: [&str; 2] = ["--time-budget", "30s"];

async fn servers(redis: &TestRedis) -> [EnvoyServer; 2] {
    let one = EnvoyServer::start_connected(RULES, redis.url(), &PATIENT).await;
    let other = EnvoyServer::start_connected(RULES, redis.url(), &PATIENT).await;
    [one, other]
}

fn count(codes: &[Code], wanted: Code) -> usize {
    codes.iter().filter(|code| **code == wanted).count()
}

#[tokio::test]
async fn a_user_over_the_limit_spends_nothing_of_the_site() {
    let redis = TestRedis::start().await;
    let servers = servers(&redis).await;
    let both = || and(request("edge", "site", b"all"), "user", b"alice");
    for server in [0, 1, 0] {
        let response = servers[server].ask(both()).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
    }

    for server in &servers {
        let codes = server.codes((0..500).map(|_| both())).await;
        assert_eq!(count(&codes, Code::OverLimit), 500);
        // Denied from memory: what is left of the site is not known.
        let response = server.ask(both()).await.unwrap();
        assert_eq!(response.statuses[0].code(), Code::Ok);
        assert_eq!(response.statuses[0].current_limit, None);
        assert_eq!(response.statuses[0].limit_remaining, 0);
        assert_eq!(response.statuses[1].code(), Code::OverLimit);
        assert!(response.statuses[1].current_limit.is_some());
    }

    for server in &servers {
        assert_eq!(server.remaining("site", b"all").await, 4_997);
    }
    redis.assert_every_key_expires();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_admit_exactly_the_limit() {
    let redis = TestRedis::start().await;
    let servers = servers(&redis).await;
    for second in ["", "site"] {
        let crowd = |_| {
            let crowd = request("edge", "crowd", second.as_bytes());
            match second {
                "" => crowd,
                key => and(crowd, key, b"all"),
            }
        };
        let [one, other] =
            [&servers[0], &servers[1]].map(|server| server.codes((0..200).map(crowd)));

        let (one, other) = tokio::join!(one, other);

        let admitted = count(&one, Code::Ok) + count(&other, Code::Ok);
        assert_eq!(admitted, 100, "beside {second:?}");
    }
    assert_eq!(servers[0].remaining("site", b"all").await, 4_900);
}

fn tokens(units: u64, is_negative_hits: bool) -> RateLimitRequest {
    let mut request = request("edge", "tokens", b"alice");
    request.descriptors[0].hits_addend = Some(units);
    request.descriptors[0].is_negative_hits = is_negative_hits;
    request
}

#[tokio::test]
async fn a_refund_grows_what_is_left_and_never_beyond_the_limit() {
    let redis = TestRedis::start().await;
    let [one, other] = servers(&redis).await;
    one.ask(tokens(70, false)).await.unwrap();

    for (units, expected) in [(30, 60), (30, 90), (30, 100), (1_000_000, 100)] {
        let response = other.ask(tokens(units, true)).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(response.statuses[0].limit_remaining, expected);
        assert_eq!(one.remaining("tokens", b"alice").await, expected);
    }
}

#[tokio::test]
async fn a_refund_lets_a_denied_user_pass_again() {
    let redis = TestRedis::start().await;
    let [one, _] = servers(&redis).await;
    let user = || request("edge", "user", b"alice");
    let codes = one.codes((0..5).map(|_| user())).await;
    assert_eq!(count(&codes, Code::Ok), 3);
    let mut credit = user();
    credit.descriptors[0].is_negative_hits = true;

    one.ask(credit).await.unwrap();

    let codes = one.codes((0..2).map(|_| user())).await;
    assert_eq!(count(&codes, Code::Ok), 1);
}

#[tokio::test]
async fn tokens_are_charged_after_the_response_beyond_the_limit() {
    let redis = TestRedis::start().await;
    let [one, other] = servers(&redis).await;
    let look = || tokens(0, false);
    // Ten requests look at once and pass, as nothing is recorded yet; each is charged 42 when it ends.
    let codes = one.codes((0..10).map(|_| look())).await;
    assert_eq!(count(&codes, Code::Ok), 10);

    let codes = other.codes((0..10).map(|_| tokens(42, false))).await;

    assert_eq!(count(&codes, Code::Ok), 2);
    let response = one.ask(look()).await.unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
    // All 420 are recorded: the limit holds until 320 are given back.
    one.ask(tokens(319, true)).await.unwrap();
    let response = one.ask(look()).await.unwrap();
    assert_eq!(response.overall_code(), Code::OverLimit);
    one.ask(tokens(1, true)).await.unwrap();
    let response = one.ask(look()).await.unwrap();
    assert_eq!(response.overall_code(), Code::Ok);
}

#[tokio::test]
async fn a_caller_that_leaves_before_its_hit_is_sent_spends_nothing() {
    let redis = RedisProcess::start(&[]);
    // The kernel accepts the connection and nothing answers: hits wait until it is made, or fails after 250 ms.
    redis.signal("STOP");
    let url = redis.url();
    let args = ["--redis", &url, "--on-failure", "open"];
    let envoy = EnvoyServer::start(RULES, &[&args[..], &PATIENT].concat());
    let alone = (0..20).map(|_| request("edge", "crowd", b"all"));
    let joint = (0..20).map(|_| and(request("edge", "crowd", b"all"), "site", b"all"));

    let channel = envoy.channel().await;
    let calls = codes_over(channel.clone(), alone.chain(joint));
    let _ = tokio::time::timeout(Duration::from_millis(50), calls).await;
    // The server reads the ends of those calls before this one, which comes behind them on the connection.
    let mut health = HealthClient::new(channel);
    let response = health.check(HealthCheckRequest::default()).await;
    response.unwrap();

    redis.signal("CONT");
    until(async || {
        let ready = envoy.server.get("/actuator/health/readiness").await;
        (ready.status == 200).then_some(())
    })
    .await;
    assert_eq!(envoy.remaining("crowd", b"all").await, 100);
    assert_eq!(envoy.remaining("site", b"all").await, 5_000);
}
