//! The metrics of Envoy's own rate limit server, its shadow and quota modes, and its header fields.

use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride,
    service::ratelimit::v3::{
        RateLimitRequest,
        rate_limit_response::{Code, rate_limit::Unit},
    },
};

use super::{EnvoyServer, and, request};
use crate::server::until;

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: path, value: '/a/*', rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: zero, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: tenant, value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: api_key, value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: each, detailed_metric: true, rate_limit: { unit: day, requests_per_unit: 5 } }
  - key: deep
    value: x
    descriptors:
      - key: second
        descriptors:
          - { key: third, rate_limit: { unit: day, requests_per_unit: 5 } }
";

const METRICS: &[&str] = &["--envoy-ratelimit-metrics"];

fn of(key: &str, value: &[u8], hits_addend: u32) -> RateLimitRequest {
    let mut request = request("edge", key, value);
    request.hits_addend = hits_addend;
    request
}

impl EnvoyServer {
    /// The values of `total_hits`, `over_limit`, `near_limit`, `within_limit` and `shadow_mode` of a key.
    async fn hits(&self, key1: &str) -> [u64; 5] {
        let page = self.server.get("/actuator/prometheus").await.body;
        hits_in(&page, key1)
    }
}

/// The same of a page of metrics.
fn hits_in(page: &str, key1: &str) -> [u64; 5] {
    let label = format!(r#"domain="edge",key1="{key1}""#);
    let names = [
        "total_hits",
        "over_limit",
        "near_limit",
        "within_limit",
        "shadow_mode",
    ];
    names.map(|name| {
        let name = format!("ratelimit_service_rate_limit_{name}{{");
        let lines = page
            .lines()
            .filter(|line| line.starts_with(&name) && line.contains(&label));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        values.sum()
    })
}

#[tokio::test]
async fn the_value_of_a_credential_is_no_label() {
    let envoy = EnvoyServer::start(RULES, METRICS);

    for key in ["tenant", "api_key"] {
        envoy.ask(of(key, b"s3cret", 1)).await.unwrap();
    }

    assert_eq!(envoy.hits("tenant_s3cret").await[0], 1);
    assert_eq!(envoy.hits("api_key").await[0], 1);
    let page = envoy.server.get("/actuator/prometheus").await.body;
    assert!(!page.contains("api_key_s3cret"));
}

#[tokio::test]
async fn hits_are_counted_by_rule_as_envoys_server_counts_them() {
    let envoy = EnvoyServer::start(RULES, METRICS);
    let mut invalid = request("", "user", b"a");
    invalid.descriptors.clear();
    assert!(envoy.ask(invalid).await.is_err());
    for (asked, expected) in [
        (of("user", b"a", 7), Code::Ok),
        // Of these hits one is near the limit: the ninth.
        (of("user", b"a", 2), Code::Ok),
        // One of them is near the limit, the tenth, and two are over it. None is charged.
        (of("user", b"a", 3), Code::OverLimit),
        (of("path", b"/a/b", 1), Code::Ok),
        (of("shadow", b"a", 1), Code::Ok),
        (of("shadow", b"a", 1), Code::Ok),
        (of("zero", b"a", 2), Code::OverLimit),
        (of("free", b"a", 1), Code::Ok),
        (of("unknown", b"a", 1), Code::Ok),
    ] {
        let response = envoy.ask(asked).await.unwrap();
        assert_eq!(response.overall_code(), expected);
    }
    for (key, expected) in [
        ("user", [12, 2, 2, 9, 0]),
        ("path_/a/*", [1, 0, 0, 1, 0]),
        ("shadow", [2, 1, 1, 1, 1]),
        ("zero", [2, 2, 0, 0, 0]),
        ("free", [0; 5]),
        ("unknown", [0; 5]),
    ] {
        assert_eq!(envoy.hits(key).await, expected, "{key}");
    }
    let requests = envoy.metric(
        "ratelimit_service_total_requests",
        r#"grpc_method="ShouldRateLimit""#,
    );
    assert_eq!(requests.await, 10);
    let times = "ratelimit_service_response_time_seconds_count";
    assert_eq!(envoy.metric(times, "").await, 9);
    let errors = "ratelimit_service_should_rate_limit_error";
    assert_eq!(envoy.metric(errors, r#"err_type="service_error""#).await, 1);
    assert_eq!(envoy.metric(errors, r#"err_type="redis_error""#).await, 0);
}

#[tokio::test]
async fn readings_looks_and_credits_are_counted() {
    let envoy = EnvoyServer::start(RULES, METRICS);
    let own = |units: Option<u64>, is_negative: bool| {
        let mut request = request("edge", "user", b"a");
        request.descriptors[0].hits_addend = units;
        request.descriptors[0].is_negative_hits = is_negative;
        request
    };
    for (asked, total) in [
        (own(Some(9), false), 9),
        (own(Some(0), false), 9),
        (own(Some(3), true), 9),
        (own(Some(1), false), 10),
        (own(Some(20), false), 30),
    ] {
        envoy.ask(asked).await.unwrap();
        assert_eq!(envoy.hits("user").await[0], total);
    }
    // The first reading ends at 9 of 10, so one hit is near. The last one is over as a whole.
    assert_eq!(envoy.hits("user").await, [30, 20, 1, 10, 0]);
}

#[tokio::test]
async fn values_are_in_labels_only_if_a_rule_asks_for_them() {
    let envoy = EnvoyServer::start(RULES, METRICS);
    let mut deep = request("edge", "deep", b"x");
    for key in ["second", "third"] {
        let entry = request("edge", key, b"secret").descriptors[0].entries[0].clone();
        deep.descriptors[0].entries.push(entry);
    }
    let mut overridden = request("edge", "user", b"secret");
    overridden.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: 5,
        unit: Unit::Day.into(),
        unit_multiplier: None,
    });
    for asked in [
        deep,
        overridden,
        of("user", b"secret", 1),
        of("tenant", b"10.1.2.3", 1),
        of("each", b"a:b", 1),
        and(of("tenant", b"t", 1), "each", b"t"),
    ] {
        assert_eq!(envoy.ask(asked).await.unwrap().overall_code(), Code::Ok);
    }
    for (key, total) in [
        ("tenant_10_1_2_3", 1),
        ("each_a_b", 1),
        ("tenant_t", 1),
        ("each_t", 1),
        ("user", 2),
    ] {
        assert_eq!(envoy.hits(key).await[0], total, "{key}");
    }
    let labels = r#"domain="edge",key1="deep_x",key2="second""#;
    let total = "ratelimit_service_rate_limit_total_hits";
    assert_eq!(envoy.metric(total, labels).await, 1);
    let page = envoy.server.get("/actuator/prometheus").await.body;
    assert!(!page.contains("secret"));
}

#[tokio::test]
async fn at_most_10000_series_have_values() {
    let envoy = EnvoyServer::start(RULES, METRICS);
    for thousand in 0..11 {
        let numbers = thousand * 1_000..(thousand + 1) * 1_000;
        let asked = numbers.map(|number: u32| of("each", number.to_string().as_bytes(), 1));
        envoy.codes(asked).await;
    }
    // A known value is still counted on its own.
    envoy.ask(of("each", b"7", 1)).await.unwrap();

    let page = envoy.server.get("/actuator/prometheus").await.body;
    assert_eq!(hits_in(&page, "other")[0], 1_000);
    assert_eq!(hits_in(&page, "each_7")[0], 2);
    let series = page
        .lines()
        .filter(|line| line.starts_with("ratelimit_service_rate_limit_total_hits{"));
    assert_eq!(series.count(), 10_001);
}

#[tokio::test]
async fn a_long_or_hostile_value_makes_a_short_label_of_one_line() {
    let envoy = EnvoyServer::start(RULES, METRICS);
    let long = "x".repeat(60_000);
    for value in [&*long, "a\nb\"} 1", "a\\"] {
        envoy.ask(of("each", value.as_bytes(), 1)).await.unwrap();
        envoy.ask(of("tenant", value.as_bytes(), 1)).await.unwrap();
    }

    let page = envoy.server.get("/actuator/prometheus").await.body;

    let cut = format!("each_{}...", "x".repeat(192));
    for key in [&*cut, r#"each_a\nb\"} 1"#, r"each_a\\"] {
        assert_eq!(hits_in(&page, key)[0], 1, "{key}");
    }
    let longest = page.lines().map(str::len).max().unwrap();
    assert!(longest < 500, "{longest}");
}

#[tokio::test]
async fn without_the_metrics_a_rule_that_asks_for_values_gets_a_warning() {
    let envoy = EnvoyServer::start(RULES, &[]);
    let log = envoy.server.log();
    for name in ["detailed_metric", "value_to_metric"] {
        let warning = format!("{name} has no effect without envoy-ratelimit-metrics");
        assert!(log.contains(&warning), "{log}");
    }
    let counted = EnvoyServer::start(RULES, METRICS);
    assert!(!counted.server.log().contains("has no effect"));
    let success = "ratelimit_service_config_load_success";
    let error = "ratelimit_service_config_load_error";
    assert_eq!(counted.metric(success, "").await, 1);
    counted.write_rules("domain: edge\ndescriptors: 5\n");
    until(async || (counted.metric(error, "").await == 1).then_some(())).await;
    counted.write_rules(&RULES.replace("requests_per_unit: 10", "requests_per_unit: 11"));
    until(async || (counted.metric(success, "").await == 2).then_some(())).await;
}

#[tokio::test]
async fn calls_that_redis_does_not_answer_are_errors_of_redis() {
    let down = ["--redis", "redis://127.0.0.1:1", "--on-failure", "open"];
    let envoy = EnvoyServer::start(RULES, &[METRICS, &down].concat());

    let response = envoy.ask(of("user", b"a", 2)).await.unwrap();

    assert_eq!(response.overall_code(), Code::Ok);
    let errors = "ratelimit_service_should_rate_limit_error";
    assert_eq!(envoy.metric(errors, r#"err_type="redis_error""#).await, 1);
    assert_eq!(envoy.hits("user").await, [2, 0, 0, 0, 0]);
}

#[tokio::test]
async fn shadow_lets_every_request_pass_and_counts_the_others() {
    let envoy = EnvoyServer::start(RULES, &["--envoy-shadow"]);
    for (hits, status) in [(10, Code::Ok), (1, Code::OverLimit)] {
        let response = envoy.ask(of("user", b"a", hits)).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        assert_eq!(response.statuses[0].code(), status);
    }
    let requests = "rate_limiter_envoy_requests_total";
    assert_eq!(envoy.metric(requests, r#"code="shadow""#).await, 1);
    assert_eq!(envoy.metric(requests, r#"code="over_limit""#).await, 0);
}

#[tokio::test]
async fn in_quota_mode_a_request_passes_if_one_descriptor_does() {
    let envoy = EnvoyServer::start(RULES, &["--envoy-quota"]);
    let both = || and(of("user", b"a", 5), "each", b"a");
    for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
        // The limit of `each` has 5 hits, that of `user` 10.
        let response = envoy.ask(both()).await.unwrap();
        assert_eq!(response.overall_code(), expected);
    }
    // A descriptor without a limit passes, and so does the request.
    let free = and(both(), "unknown", b"a");
    assert_eq!(envoy.ask(free).await.unwrap().overall_code(), Code::Ok);
    let alone = envoy.ask(of("zero", b"a", 1)).await.unwrap();
    assert_eq!(alone.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn response_headers_have_the_numbers_of_the_tightest_limit() {
    let names = "RateLimit-Limit,RateLimit-Remaining,RateLimit-Reset";
    let envoy = EnvoyServer::start(RULES, &["--envoy-response-headers", names]);
    let headers = async |asked: RateLimitRequest| {
        let response = envoy.ask(asked).await.unwrap();
        let headers = response.response_headers_to_add.into_iter();
        let headers = headers.map(|header| {
            let value = String::from_utf8(header.value.to_vec()).unwrap();
            (header.key, value)
        });
        headers.collect::<Vec<(String, String)>>()
    };

    let allowed = headers(and(of("user", b"a", 1), "each", b"a")).await;
    let denied = headers(and(of("user", b"a", 8), "each", b"b")).await;
    let unlimited = headers(of("unknown", b"a", 1)).await;

    for (found, limit, remaining) in [(&allowed, "5", "4"), (&denied, "5", "0")] {
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(
            found[..2],
            [
                ("RateLimit-Limit", limit),
                ("RateLimit-Remaining", remaining)
            ]
        );
        assert_eq!(found[2].0, "RateLimit-Reset");
        assert!((1..=86_400).contains(&found[2].1.parse::<u64>().unwrap()));
    }
    assert_eq!(unlimited, []);
}
