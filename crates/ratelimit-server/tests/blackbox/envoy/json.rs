//! `POST /json`.

use serde_json::{Value, json};

use super::EnvoyServer;

const RULES: &str = "
domain: edge
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 5, name: per-user } }
  - { key: free, rate_limit: { unlimited: true }, metadata: { plan: { name: free, seats: 2 } } }
";

/// The status and the body of a call.
async fn ask(envoy: &EnvoyServer, body: &Value) -> (u16, Value) {
    let response = envoy.server.post("/json", body.to_string()).await;
    let body = serde_json::from_str(&response.body).unwrap_or_default();
    (response.status.as_u16(), body)
}

fn user(hits: &Value) -> Value {
    let entries = json!([{ "key": "user", "value": "ä" }]);
    json!({ "domain": "edge", "descriptors": [{ "entries": entries }], "hitsAddend": hits })
}

#[tokio::test]
async fn a_request_in_json_is_answered_as_one_over_grpc() {
    let envoy = EnvoyServer::start(RULES, &[]);

    let (status, body) = ask(&envoy, &user(&json!("3"))).await;
    let (over, denied) = ask(&envoy, &user(&json!(3))).await;

    assert_eq!((status, over), (200, 429));
    assert_eq!(body["overallCode"], "OK");
    let limit = json!({ "name": "per-user", "requestsPerUnit": 5, "unit": "DAY" });
    assert_eq!(body["statuses"][0]["currentLimit"], limit);
    assert_eq!(body["statuses"][0]["limitRemaining"], 2);
    let reset = body["statuses"][0]["durationUntilReset"].as_str().unwrap();
    assert!(reset.strip_suffix('s').unwrap().parse::<u32>().is_ok());
    assert_eq!(denied["overallCode"], "OVER_LIMIT");
    assert_eq!(denied["statuses"][0]["code"], "OVER_LIMIT");
    // Envoy's calls spend the same budget.
    assert_eq!(envoy.remaining("user", "ä".as_bytes()).await, 2);
}

#[tokio::test]
async fn limits_looks_and_metadata_are_in_json_too() {
    let envoy = EnvoyServer::start(RULES, &["--envoy-dynamic-metadata"]);
    let entries = json!([{ "key": "user", "value": "a" }]);
    let limit = json!({ "requests_per_unit": 2, "unit": "HOUR" });
    let descriptor = json!({ "entries": entries, "limit": limit, "hits_addend": 0 });
    let free = json!({ "entries": [{ "key": "free" }] });
    let request = json!({ "domain": "edge", "descriptors": [descriptor, free] });

    let (status, body) = ask(&envoy, &request).await;

    assert_eq!(status, 200);
    let limit = json!({ "requestsPerUnit": 2, "unit": "HOUR" });
    assert_eq!(body["statuses"][0]["currentLimit"], limit);
    assert_eq!(body["statuses"][0]["limitRemaining"], 2);
    assert_eq!(body["statuses"][1]["limitRemaining"], u32::MAX);
    let plan = json!({ "plan": { "name": "free", "seats": 2.0 } });
    assert_eq!(body["dynamicMetadata"]["metadata"], plan);
}

#[tokio::test]
async fn a_malformed_request_is_a_400() {
    let envoy = EnvoyServer::start(RULES, &[]);
    for body in [
        json!({}),
        json!({ "domain": "edge" }),
        json!({ "domain": 5 }),
        json!({ "domain": "edge", "descriptor": [] }),
        user(&json!(-1)),
        user(&json!(4_294_967_296_u64)),
        user(&json!("many")),
        json!([]),
    ] {
        let (status, _) = ask(&envoy, &body).await;
        assert_eq!(status, 400, "{body}");
    }
    assert_eq!(envoy.server.post("/json", "{").await.status, 400);
    assert_eq!(envoy.remaining("user", "ä".as_bytes()).await, 5);
}

#[tokio::test]
async fn a_page_of_another_origin_can_send_nothing_but_json() {
    let envoy = EnvoyServer::start(RULES, &[]);
    let url = format!("http://{}/json", envoy.server.addr);
    let post = |headers: &[&str]| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-d"]);
        curl.arg(user(&json!(1)).to_string());
        for header in headers {
            curl.args(["-H", header]);
        }
        let output = curl.arg(&url).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let origin = "Origin: http://evil.example";

    // Clients of the other server send any type.
    assert_eq!(post(&[]), "200");
    assert_eq!(post(&["Content-Type: text/plain"]), "200");
    // A browser sends the origin with each POST, and asks first if the type is JSON.
    assert_eq!(post(&[origin]), "415");
    assert_eq!(post(&[origin, "Content-Type: text/plain"]), "415");
    assert_eq!(post(&[origin, "Content-Type: application/json"]), "200");
    assert_eq!(envoy.remaining("user", "ä".as_bytes()).await, 2);
}

#[tokio::test]
async fn a_limit_without_entries_is_counted_as_ignored() {
    let envoy = EnvoyServer::start(RULES, &[]);
    let limit = json!({ "requestsPerUnit": 1, "unit": "HOUR" });
    let request = json!({ "domain": "edge", "descriptors": [{ "limit": limit }] });

    let (status, _) = ask(&envoy, &request).await;

    assert_eq!(status, 200);
    let ignored = "rate_limiter_envoy_ignored_total";
    assert_eq!(envoy.metric(ignored, r#"part="limit""#).await, 1);
}

#[tokio::test]
async fn more_than_1024_descriptors_are_a_400() {
    let envoy = EnvoyServer::start(RULES, &[]);
    // They match no rule, so the limit for those with a budget does not count them.
    let request = |count: usize| json!({ "domain": "edge", "descriptors": vec![json!({}); count] });

    let (most, body) = ask(&envoy, &request(1_024)).await;
    let (more, _) = ask(&envoy, &request(1_025)).await;

    assert_eq!((most, more), (200, 400));
    assert_eq!(body["statuses"].as_array().unwrap().len(), 1_024);
}
