//! Rules over xDS.

mod ads_server;
mod faults;
mod files;
mod limits;
mod shutdown;
mod tls;

use ratelimit_envoy::proto::envoy::service::{
    discovery::v3::DiscoveryRequest, ratelimit::v3::rate_limit_response::Code,
};
use tempfile::TempDir;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use self::ads_server::{AdsServer, Behaviour, TYPE, any, domain};
use super::{EnvoyServer, request};
use crate::server::until;

const RELOADS: &str = "rate_limiter_envoy_reloads_total";

impl EnvoyServer {
    /// A server whose rules come from an xDS server.
    fn with_xds(url: &str, args: &[&str]) -> EnvoyServer {
        let own = ["--envoy-listen", "127.0.0.1:0", "--envoy-xds-server", url];
        EnvoyServer::start_with(TempDir::new().unwrap(), &[&own, args].concat())
    }

    /// The limit of each user of a domain; `None` if the domain is unknown.
    async fn limit_of(&self, domain: &str) -> Option<u32> {
        let mut look = request(domain, "user", b"alice");
        look.descriptors[0].hits_addend = Some(0);
        let response = self.ask(look).await.unwrap();
        let limit = response.statuses[0].current_limit.as_ref();
        limit.map(|limit| limit.requests_per_unit)
    }

    /// The limits of the domains `a` and `b`.
    async fn limits(&self) -> [Option<u32>; 2] {
        [self.limit_of("a").await, self.limit_of("b").await]
    }

    async fn until_ready(&self, status: u16) -> String {
        until(async || {
            let ready = self.server.get("/actuator/health/readiness").await;
            (ready.status == status).then_some(ready.body)
        })
        .await
    }
}

/// The reason of an answer; empty if it acknowledges the response.
fn reason(answer: &DiscoveryRequest) -> &str {
    let detail = answer.error_detail.as_ref();
    detail.map_or("", |detail| &detail.message)
}

#[tokio::test]
async fn rules_follow_the_xds_server_and_stay_while_it_is_faulty_or_away() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &["--envoy-xds-node-id", "node-7"]);

    let first = ads.asked().await;
    assert_eq!(first.type_url, TYPE);
    assert_eq!(first.node.unwrap().id, "node-7");
    assert_eq!((&*first.version_info, &*first.response_nonce), ("", ""));
    assert!(first.resource_names.is_empty());

    let answer = ads.apply("1", &[domain("a", 10), domain("b", 20)]).await;
    assert_eq!((reason(&answer), &*answer.version_info), ("", "1"));
    assert_eq!(answer.type_url, TYPE);
    assert_eq!(envoy.limits().await, [Some(10), Some(20)]);

    let answer = ads.apply("2", &[domain("b", 21)]).await;
    assert_eq!((reason(&answer), &*answer.version_info), ("", "2"));
    assert_eq!(envoy.limits().await, [None, Some(21)]);

    let mut faulty = domain("b", 22);
    faulty.descriptors[0].rate_limit.as_mut().unwrap().unit = 0;
    let answer = ads.apply("3", &[domain("a", 11), faulty]).await;
    assert_eq!(answer.version_info, "2");
    assert_eq!(answer.error_detail.as_ref().unwrap().code, 3);
    let expected =
        "domain \"b\", descriptor \"user\": error[missing-field]: expected the field unit";
    assert!(reason(&answer).starts_with(expected), "{answer:?}");
    assert_eq!(envoy.limits().await, [None, Some(21)]);
    assert_eq!(envoy.metric(RELOADS, r#"result="ok""#).await, 2);
    assert_eq!(envoy.metric(RELOADS, r#"result="rejected""#).await, 1);
    let connected = "rate_limiter_envoy_xds_connected";
    assert_eq!(envoy.metric(connected, "").await, 1);

    let addr = ads.addr;
    drop(ads);
    until(async || (envoy.metric(connected, "").await == 0).then_some(())).await;
    assert_eq!(envoy.limits().await, [None, Some(21)]);
    assert!(envoy.until_ready(200).await.contains("UP"));

    let mut ads = AdsServer::start_at(addr, Behaviour::Serve);
    let first = ads.asked().await;
    assert_eq!((&*first.version_info, &*first.response_nonce), ("", ""));
    // The rules of before the fault change nothing.
    let answer = ads.apply("1", &[domain("b", 21)]).await;
    assert_eq!((reason(&answer), &*answer.version_info), ("", "1"));
    assert_eq!(envoy.metric(RELOADS, r#"result="ok""#).await, 2);
    ads.apply("2", &[domain("a", 12)]).await;
    assert_eq!(envoy.limits().await, [Some(12), None]);
    let log = envoy.server.log();
    assert_eq!(log.matches("is away, the rules stay").count(), 1, "{log}");
    assert_eq!(log.matches("answers again").count(), 1, "{log}");
    assert_eq!(log.matches("is refused").count(), 1, "{log}");
}

#[tokio::test]
async fn a_limit_holds_and_a_rule_that_keeps_its_path_keeps_its_counts() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    ads.apply("1", &[domain("a", 2)]).await;
    let asked = || request("a", "user", b"alice");
    let codes = envoy.codes([asked()]).await;
    assert_eq!(codes, [Code::Ok]);

    ads.apply("2", &[domain("b", 9), domain("a", 2)]).await;

    assert_eq!(envoy.codes([asked()]).await, [Code::Ok]);
    assert_eq!(envoy.codes([asked()]).await, [Code::OverLimit]);
}

#[tokio::test]
async fn a_server_without_rules_is_not_ready_and_requests_pass() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    let channel = envoy.channel().await;
    let health = async || {
        let mut health = HealthClient::new(channel.clone());
        let service = String::new();
        let response = health.check(HealthCheckRequest { service }).await;
        response.unwrap().into_inner().status()
    };
    ads.asked().await;

    let body = envoy.until_ready(503).await;
    assert!(body.contains("no rules of the xDS server"), "{body}");
    assert_eq!(health().await, ServingStatus::NotServing);
    assert_eq!(envoy.limits().await, [None, None]);
    let unknown = "rate_limiter_envoy_unknown_domains_total";
    assert_eq!(envoy.metric(unknown, "").await, 2);
    let log = envoy.server.log();
    assert_eq!(log.matches("has not sent rules yet").count(), 1, "{log}");

    // A refused response is no rules.
    let answer = ads.apply("1", &[domain("", 1)]).await;
    assert!(reason(&answer).contains("missing-field"), "{answer:?}");
    assert_eq!(answer.version_info, "");
    envoy.until_ready(503).await;

    // No domains are rules.
    let answer = ads.apply("2", &[]).await;
    assert_eq!((reason(&answer), &*answer.version_info), ("", "2"));
    envoy.until_ready(200).await;
    until(async || (health().await == ServingStatus::Serving).then_some(())).await;
}

#[tokio::test]
async fn the_same_domain_twice_is_refused_unless_domains_are_merged() {
    let twice = || {
        let mut second = domain("a", 9);
        second.descriptors[0].key = "path".to_owned();
        [domain("a", 5), second]
    };
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    let answer = ads.apply("1", &twice()).await;
    assert!(reason(&answer).contains("error[duplicate-name]"));
    assert_eq!(envoy.limit_of("a").await, None);

    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &["--envoy-merge-domains"]);
    ads.asked().await;
    let answer = ads.apply("1", &twice()).await;
    assert_eq!(reason(&answer), "");
    assert_eq!(envoy.limit_of("a").await, Some(5));
}

#[tokio::test]
async fn responses_that_come_at_once_are_applied_in_order() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    // Each response has 20,000 rules, so the next ones come while it is applied.
    let large = |limit: u32| {
        let mut large = domain("a", limit);
        let template = large.descriptors[0].clone();
        large.descriptors.extend((0..20_000).map(|number| {
            let mut more = template.clone();
            more.value = format!("user-{number}");
            more
        }));
        large
    };

    for version in 1..=5 {
        ads.send(&version.to_string(), &[large(version)]);
    }

    for version in 1..=5 {
        let answer = ads.asked().await;
        let expected = version.to_string();
        assert_eq!((reason(&answer), &*answer.version_info), ("", &*expected));
    }
    assert_eq!(envoy.limit_of("a").await, Some(5));
    assert_eq!(envoy.metric(RELOADS, r#"result="ok""#).await, 5);
}

#[tokio::test]
async fn warnings_are_logged_once() {
    let mut ads = AdsServer::start();
    let envoy = EnvoyServer::with_xds(&ads.url(), &[]);
    ads.asked().await;
    let mut detailed = domain("a", 1);
    detailed.descriptors[0].detailed_metric = true;
    for version in ["1", "2"] {
        let others = [detailed.clone(), domain("b", version.parse().unwrap())];
        let answer = ads.apply(version, &others).await;
        assert_eq!(reason(&answer), "");
    }
    let log = envoy.server.log();
    let warning = "domain \"a\", descriptor \"user\": warning[ignored-field]: detailed_metric";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
}
