//! Calls of the service over gRPC.

use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride,
    service::ratelimit::v3::{
        RateLimitRequest,
        rate_limit_response::{Code, rate_limit::Unit},
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use super::{EnvoyServer, and, request};
use crate::server::until;

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 2 } }
";

#[tokio::test]
async fn a_limit_holds_for_calls_over_grpc() {
    let envoy = EnvoyServer::start(RULES, &[]);
    for (user, expected) in [
        (&b"a\xff"[..], Code::Ok),
        (b"a\xff", Code::Ok),
        (b"a\xff", Code::OverLimit),
        (b"a\xfe", Code::Ok),
    ] {
        let response = envoy.ask(request("edge", "user", user)).await.unwrap();
        assert_eq!(response.overall_code(), expected, "{user:?}");
        assert!(response.dynamic_metadata.is_none());
    }
    let requests = "rate_limiter_envoy_requests_total";
    assert_eq!(envoy.metric(requests, r#"code="ok""#).await, 3);
    assert_eq!(envoy.metric(requests, r#"code="over_limit""#).await, 1);
    let decided = "rate_limiter_requests_total";
    assert_eq!(envoy.metric(decided, r#"policy="rls:edge:user""#).await, 4);
}

#[tokio::test]
async fn an_unknown_domain_passes_and_is_counted() {
    let envoy = EnvoyServer::start(RULES, &[]);

    let response = envoy.ask(request("other", "user", b"a")).await.unwrap();

    assert_eq!(response.overall_code(), Code::Ok);
    let unknown = "rate_limiter_envoy_unknown_domains_total";
    assert_eq!(envoy.metric(unknown, "").await, 1);
}

#[tokio::test]
async fn a_request_that_no_envoy_sends_is_an_invalid_argument() {
    let envoy = EnvoyServer::start(RULES, &[]);
    for bad in [
        RateLimitRequest::default(),
        request("", "user", b"a"),
        RateLimitRequest {
            domain: "edge".to_owned(),
            ..RateLimitRequest::default()
        },
    ] {
        let status = envoy.ask(bad).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }
    // A header of 8 MiB, the most that Envoy accepts, is limited like any other.
    let long = vec![b'x'; 8 << 20];
    let response = envoy.ask(request("edge", "user", &long)).await.unwrap();
    assert_eq!(response.overall_code(), Code::Ok);
    let huge = vec![b'x'; 17 << 20];
    let status = envoy.ask(request("edge", "user", &huge)).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::OutOfRange);
    let response = envoy.ask(request("edge", "user", b"a")).await.unwrap();
    assert_eq!(response.overall_code(), Code::Ok);
}

#[tokio::test]
async fn parts_of_a_request_without_effect_are_counted_and_logged() {
    let envoy = EnvoyServer::start(RULES, &["--envoy-dynamic-metadata"]);
    let mut odd = request("edge", "user", b"a");
    odd.descriptors[0].limit = Some(RateLimitOverride::default());
    for remaining in [1, 0] {
        let response = envoy.ask(odd.clone()).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(response.statuses[0].limit_remaining, remaining);
        assert!(response.dynamic_metadata.is_some());
    }
    let ignored = "rate_limiter_envoy_ignored_total";
    assert_eq!(envoy.metric(ignored, r#"part="limit""#).await, 2);
    let log = envoy.server.log();
    assert_eq!(log.matches("cannot be counted").count(), 1, "{log}");
}

#[tokio::test]
async fn negative_hits_that_redis_does_not_give_back_are_counted_and_logged_once() {
    let redis = ["--redis", "redis://127.0.0.1:1", "--on-failure", "closed"];
    let envoy = EnvoyServer::start(RULES, &redis);
    let mut credit = request("edge", "user", b"a");
    credit.descriptors[0].is_negative_hits = true;
    for _ in 0..2 {
        let response = envoy.ask(credit.clone()).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
    }
    let ignored = "rate_limiter_envoy_ignored_total";
    let label = r#"part="negative_hits""#;
    until(async || (envoy.metric(ignored, label).await == 2).then_some(())).await;
    let log = envoy.server.log();
    assert_eq!(log.matches("not given back").count(), 1, "{log}");
}

#[tokio::test]
async fn closed_denies_a_request_of_several_descriptors() {
    let redis = ["--redis", "redis://127.0.0.1:1", "--on-failure", "closed"];
    let envoy = EnvoyServer::start(RULES, &redis);
    let both = and(request("edge", "user", b"a"), "user", b"b");

    let response = envoy.ask(both).await.unwrap();

    assert_eq!(response.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn limits_that_requests_bring_along_add_no_metrics() {
    let envoy = EnvoyServer::start(RULES, &[]);
    let overridden = |number: u32| {
        let mut request = request("edge", "user", number.to_string().as_bytes());
        request.descriptors[0].limit = Some(RateLimitOverride {
            requests_per_unit: number + 1,
            unit: Unit::Hour.into(),
            unit_multiplier: None,
        });
        request
    };
    let series = async || {
        let page = envoy.server.get("/actuator/prometheus").await.body;
        let lines = page.lines().filter(|line| line.contains("policy=\"rls:"));
        lines.count()
    };
    let codes = envoy.codes((0..10).map(overridden)).await;
    assert!(codes.iter().all(|code| *code == Code::Ok));
    let before = series().await;
    assert!(before > 0);

    for thousand in 0..5 {
        let numbers = thousand * 1_000..(thousand + 1) * 1_000;
        let codes = envoy.codes(numbers.map(overridden)).await;
        let denied = codes.iter().filter(|code| **code != Code::Ok).count();
        // The first value of all was used up above.
        assert_eq!(denied, usize::from(thousand == 0));
    }

    assert_eq!(series().await, before);
}

#[tokio::test]
async fn closed_answers_over_limit_because_envoy_passes_errors() {
    let redis = ["--redis", "redis://127.0.0.1:1", "--on-failure", "closed"];
    let envoy = EnvoyServer::start(RULES, &redis);

    let response = envoy.ask(request("edge", "user", b"a")).await.unwrap();

    assert_eq!(response.overall_code(), Code::OverLimit);
    let reset = response.statuses[0].duration_until_reset.as_ref();
    assert_eq!(reset.map(|reset| reset.seconds), Some(1));
}

#[tokio::test]
async fn health_is_not_serving_while_the_server_drains() {
    let mut envoy = EnvoyServer::start(RULES, &["--drain-delay", "2s"]);
    let channel = envoy.channel().await;
    let status = async |service: &str| {
        let service = service.to_owned();
        let mut health = HealthClient::new(channel.clone());
        let response = health.check(HealthCheckRequest { service }).await;
        response.map(|response| response.into_inner().status())
    };
    let names = [
        "",
        "ratelimit",
        "envoy.service.ratelimit.v3.RateLimitService",
        "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
    ];
    for name in names {
        assert_eq!(status(name).await.unwrap(), ServingStatus::Serving);
    }
    assert!(status("other").await.is_err());

    envoy.server.signal("TERM");

    for name in names {
        let is_draining =
            async || (status(name).await.unwrap() == ServingStatus::NotServing).then_some(());
        until(is_draining).await;
    }
    // A call on the open connection is answered.
    let mut client = RateLimitServiceClient::new(channel);
    let response = client
        .should_rate_limit(request("edge", "user", b"a"))
        .await;
    assert_eq!(response.unwrap().into_inner().overall_code(), Code::Ok);
    assert!(envoy.server.ended().await.success());
}
