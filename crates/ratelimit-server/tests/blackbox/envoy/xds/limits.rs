//! Limits of responses.

use ratelimit_envoy::proto::{
    envoy::service::discovery::v3::DiscoveryResponse,
    ratelimit::config::ratelimit::v3::RateLimitDescriptor,
};

use super::{AdsServer, EnvoyServer, TYPE, any, domain, reason};
use crate::envoy::xds::ads_server::AdsEvent;

#[tokio::test]
async fn responses_with_too_much_are_refused_with_the_reason() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    ads.apply("1", &[domain("a", 3)]).await;

    let mut long = domain("a", 4);
    long.descriptors[0].value = "x".repeat(5_000);
    let answer = ads.apply("2", &[long]).await;
    let expected = "error[too-large]: expected a value of at most 4096 bytes, not 5000";
    assert!(reason(&answer).ends_with(expected), "{answer:?}");
    assert!(reason(&answer).len() < 500, "{answer:?}");

    let mut many = domain("a", 5);
    many.descriptors = vec![RateLimitDescriptor::default(); 200_001];
    let answer = ads.apply("3", &[many]).await;
    let expected = "expected at most 200000 descriptors in all resources";
    assert_eq!(reason(&answer), expected);

    ads.send_raw(DiscoveryResponse {
        resources: vec![any("", vec![]); 100_001],
        type_url: TYPE.to_owned(),
        ..DiscoveryResponse::default()
    });
    let expected = "expected at most 100000 resources, not 100001";
    assert_eq!(reason(&ads.asked().await), expected);
    assert_eq!(envoy.limit_of("a").await, Some(3));
}

#[tokio::test]
async fn a_response_of_more_than_64_mebibytes_ends_the_stream() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    ads.apply("1", &[domain("a", 3)]).await;

    ads.send_raw(DiscoveryResponse {
        resources: vec![any(TYPE, vec![0; 64 << 20])],
        type_url: TYPE.to_owned(),
        ..DiscoveryResponse::default()
    });

    assert!(matches!(ads.next().await, AdsEvent::Closed));
    assert_eq!(&*ads.asked().await.version_info, "");
    assert_eq!(envoy.limit_of("a").await, Some(3));
    let log = envoy.server.log();
    assert!(log.contains("decoded message length too large"), "{log}");
}

#[tokio::test]
async fn texts_of_the_server_are_logged_up_to_a_length() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    let version = |end: &str| "v".repeat(9_000) + end;
    let mut ignored = domain("a", 3);
    ignored.descriptors[0].detailed_metric = true;
    let answer = ads.apply(&version("1"), &[ignored]).await;
    assert_eq!(answer.version_info, version("1"));
    let answer = ads.apply(&version("2"), &[domain("", 3)]).await;
    assert_eq!(answer.version_info, version("1"));

    let log = envoy.server.log();
    for line in ["applied version", "is refused", "warning[ignored-field]"] {
        assert!(log.contains(line), "{log}");
    }
    assert!(log.lines().all(|line| line.len() < 3_000), "{log}");
}

#[tokio::test]
async fn plain_http_to_another_machine_has_one_warning() {
    let warnings = async |host: &str| {
        let mut ads = AdsServer::start();
        let url = format!("http://{host}:{}", ads.addr.port());
        let envoy = EnvoyServer::with_xds(&url, &[]);
        ads.asked().await;
        let log = envoy.server.log();
        log.matches("may be on another machine").count()
    };

    // Linux connects to this machine at 0.0.0.0, which is not a loopback address.
    assert_eq!(warnings("0.0.0.0").await, 1);
    assert_eq!(warnings("127.0.0.1").await, 0);
}
