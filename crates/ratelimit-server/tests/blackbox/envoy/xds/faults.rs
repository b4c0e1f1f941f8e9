//! Faults of the xDS server and of the connection to it.

use std::time::{Duration, Instant};

use ratelimit_envoy::proto::envoy::service::discovery::v3::DiscoveryResponse;

use super::{AdsServer, Behaviour, EnvoyServer, RELOADS, TYPE, any, domain, reason};
use crate::{envoy::xds::ads_server::AdsEvent, server::until};

#[tokio::test]
async fn a_server_that_ends_each_stream_is_tried_with_growing_delays() {
    let mut ads = AdsServer::start_at(([127, 0, 0, 1], 0).into(), Behaviour::Refuse);
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);

    let mut opened = Vec::new();
    for _ in 0..4 {
        opened.push(ads.opened().await);
    }

    for (pair, millis) in opened.windows(2).zip([500, 1_000, 2_000]) {
        let delay = pair[1] - pair[0];
        assert!(delay >= Duration::from_millis(millis), "{delay:?}");
    }
    let log = envoy.server.log();
    assert_eq!(log.matches("is away, the rules stay").count(), 1, "{log}");
    assert!(log.contains(r"this server refuses\nall streams"), "{log}");

    let addr = ads.addr;
    drop(ads);
    let mut ads = AdsServer::start_at(addr, Behaviour::Serve);
    ads.asked().await;
    ads.apply("1", &[domain("a", 3)]).await;
    assert_eq!(envoy.limit_of("a").await, Some(3));
}

#[tokio::test]
async fn a_server_that_comes_up_later_is_found() {
    let addr = AdsServer::start().addr;
    let envoy = EnvoyServer::with_xds(&format!("http://{addr}"), &[]);
    until(async || envoy.server.log().contains("is away").then_some(())).await;
    assert_eq!(
        envoy.metric("rate_limiter_envoy_xds_connected", "").await,
        0
    );

    let mut ads = AdsServer::start_at(addr, Behaviour::Serve);

    ads.asked().await;
    ads.apply("1", &[domain("a", 3)]).await;
    assert_eq!(envoy.limit_of("a").await, Some(3));
}

#[tokio::test]
async fn a_refusal_that_is_answered_with_the_same_response_is_delayed() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    let faulty = [domain("", 1)];

    let mut answered = Vec::new();
    for version in ["1", "2", "3"] {
        assert_ne!(reason(&ads.apply(version, &faulty).await), "");
        answered.push(Instant::now());
    }

    for (pair, millis) in answered.windows(2).zip([500, 1_000]) {
        let delay = pair[1] - pair[0];
        assert!(delay >= Duration::from_millis(millis), "{delay:?}");
    }
    assert_eq!(envoy.metric(RELOADS, r#"result="rejected""#).await, 3);
    let log = envoy.server.log();
    assert_eq!(log.matches("is refused").count(), 1, "{log}");

    // A valid response does not wait for the delayed answer to the one before it, which is not sent any more.
    ads.send("4", &faulty);
    ads.send("5", &[domain("a", 3)]);
    let answer = ads.asked().await;
    assert_eq!(&*answer.response_nonce, "nonce-5");
    assert_eq!(envoy.limit_of("a").await, Some(3));
}

#[tokio::test]
async fn resources_that_are_no_rules_are_refused() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    ads.apply("1", &[domain("a", 3)]).await;
    for (resource, expected) in [
        (
            any("type.googleapis.com/other", vec![]),
            "expected resources of type",
        ),
        (any(TYPE, vec![0xff; 9]), "a resource is malformed: "),
    ] {
        ads.send_raw(DiscoveryResponse {
            version_info: "2".to_owned(),
            resources: vec![resource],
            type_url: TYPE.to_owned(),
            nonce: "n".to_owned(),
        });
        let answer = ads.asked().await;
        assert!(reason(&answer).starts_with(expected), "{answer:?}");
        assert_eq!((&*answer.version_info, &*answer.response_nonce), ("1", "n"));
        assert_eq!(envoy.limit_of("a").await, Some(3));
    }
}

#[tokio::test]
async fn a_response_of_another_type_ends_the_stream() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    ads.apply("1", &[domain("a", 3)]).await;

    ads.send_raw(DiscoveryResponse {
        type_url: "type.googleapis.com/other".to_owned(),
        ..DiscoveryResponse::default()
    });

    assert!(matches!(ads.next().await, AdsEvent::Closed));
    assert_eq!(&*ads.asked().await.version_info, "");
    assert_eq!(envoy.limit_of("a").await, Some(3));
    let log = envoy.server.log();
    assert!(log.contains("has sent the type"), "{log}");
}
