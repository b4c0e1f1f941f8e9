//! Checks, looks and resets over REST.

use http::{HeaderName, Method, StatusCode};
use serde_json::json;

use crate::server::{CHECK, EXPLAIN, REMAINING, RESET, SETTLE, Server};

const ALGORITHMS: [&str; 5] = [
    "TOKEN_BUCKET",
    "LEAKY_BUCKET",
    "FIXED_WINDOW",
    "SLIDING_WINDOW",
    "SLIDING_WINDOW_COUNTER",
];

#[tokio::test]
async fn a_policy_says_what_a_check_costs() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("server.yaml");
    std::fs::write(
        &path,
        "policy:\n  dear: { limits: fixed_window 10/d, cost: 4 }\n",
    )
    .unwrap();
    let server = Server::start_admin(&["--config", path.to_str().unwrap()]);

    let first = server.get(&format!("{CHECK}?policy=dear&key=k")).await;
    assert_eq!(first.json()["remaining"], 6);
    let named = server
        .get(&format!("{CHECK}?policy=dear&key=k&permits=1"))
        .await;
    assert_eq!(named.json()["remaining"], 5);
    let body = r#"{"policy":"dear","key":"k"}"#;
    assert_eq!(server.post(CHECK, body).await.json()["remaining"], 1);
    let last = server.get(&format!("{CHECK}?policy=dear&key=k")).await;
    assert_eq!(last.status, 429);
}

#[tokio::test]
async fn a_check_answers_nine_fields_in_order() {
    let server = Server::start_admin(&["--policy", "day=fixed_window 100/d"]);

    let answer = server
        .get(&format!("{CHECK}?policy=day&key=user:123"))
        .await;

    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let reset = answer.json()["resetAfterSeconds"].as_u64().unwrap();
    let expected = format!(
        "{{\"allowed\":true,\"key\":\"user:123\",\"policy\":\"day\",\"algorithm\":\"FIXED_WINDOW\",\
         \"limit\":100,\"remaining\":99,\"resetAfterSeconds\":{reset},\"retryAfterSeconds\":0,\"message\":\"Request allowed\"}}"
    );
    assert_eq!(answer.body, expected);
}

#[tokio::test]
async fn every_algorithm_admits_a_hundred_and_agrees_with_its_headers() {
    // A day in place of a minute, which could end during the test.
    let server = Server::start_admin(&["--policy", "fixed_window=fixed_window 100/d"]);

    for algorithm in ALGORITHMS {
        let path = format!("{CHECK}?algorithm={algorithm}&key=k");
        let first = server.get(&path).await;
        assert_eq!(first.json()["remaining"], 99, "{algorithm}");
        assert_eq!(first.json()["algorithm"], algorithm);
        let all = server.get(&format!("{path}&permits=99")).await;
        assert_eq!(all.status, StatusCode::OK, "{algorithm}");

        let denied = server.get(&format!("{path}&permits=100")).await;

        let json = denied.json();
        assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS, "{algorithm}");
        assert_eq!(json["allowed"], false);
        assert_eq!(json["message"], "Rate limit exceeded");
        assert!(json["retryAfterSeconds"].as_u64().unwrap() >= 1);
        assert_eq!(
            denied.header("retry-after").unwrap(),
            json["retryAfterSeconds"].to_string()
        );
        assert_eq!(denied.header("x-ratelimit-limit"), Some("100"));
        assert_eq!(
            denied.header("x-ratelimit-remaining").unwrap(),
            json["remaining"].to_string()
        );
        assert_eq!(denied.header("cache-control"), Some("no-store"));
    }
}

#[tokio::test]
async fn algorithms_are_known_by_either_name_in_any_case() {
    let server = Server::start_admin(&[]);

    for (name, wire) in [
        ("sliding_window_log", "SLIDING_WINDOW"),
        ("Sliding_Window", "SLIDING_WINDOW"),
        ("leaky_bucket", "LEAKY_BUCKET"),
    ] {
        let answer = server
            .get(&format!("{CHECK}?algorithm={name}&key={name}"))
            .await;
        assert_eq!(answer.json()["algorithm"], wire);
    }
    let default = server.get(&format!("{CHECK}?key=k")).await;
    assert_eq!(default.json()["algorithm"], "TOKEN_BUCKET");
}

#[tokio::test]
async fn an_impossible_cost_is_denied_without_a_wait() {
    let server = Server::start_admin(&[]);

    for permits in ["101", "18446744073709551615"] {
        let answer = server
            .get(&format!("{CHECK}?key=k&permits={permits}"))
            .await;

        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.json()["retryAfterSeconds"], serde_json::Value::Null);
        assert_eq!(answer.json()["remaining"], 100);
        assert_eq!(answer.header("retry-after"), None);
    }
}

#[tokio::test]
async fn a_shaped_check_says_how_long_to_wait() {
    let server = Server::start_admin(&["--policy", "slow=leaky_bucket 1/h queue 3"]);
    let path = format!("{CHECK}?policy=slow&key=k");

    let (first, second) = (server.get(&path).await, server.get(&path).await);

    assert_eq!(first.json().get("delayMicros"), None);
    assert!(second.json()["delayMicros"].as_u64().unwrap() > 3_500_000_000);
}

#[tokio::test]
async fn a_policy_is_spent_as_one_and_names_the_limit_that_speaks() {
    let server =
        Server::start_admin(&["--policy", "login=sliding_window_log 3/h; fixed_window 2/d"]);
    let path = format!("{CHECK}?policy=login&key=k");

    server.get(&path).await;
    server.get(&path).await;
    let denied = server.get(&path).await;

    assert_eq!(denied.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(denied.json()["algorithm"], "FIXED_WINDOW");
    let explained = server
        .get(&format!("{EXPLAIN}?policy=login&key=k"))
        .await
        .json();
    assert_eq!(explained["limits"][0]["remaining"], 1, "{explained}");
}

#[tokio::test]
async fn a_policy_in_shadow_mode_reports_no_numbers() {
    let dir = tempfile::TempDir::new().unwrap();
    let server = Server::with_file(
        &dir,
        "policy:\n  tried: {limits: fixed_window 1/d, shadow: true}\n",
    );
    let path = format!("{CHECK}?policy=tried&key=k");

    let first = server.get(&path).await;
    let second = server.get(&path).await;

    let numbers = |name: &&HeaderName| name.as_str().contains("ratelimit");
    assert_eq!(first.headers.keys().find(numbers), None);
    assert_eq!(second.headers.keys().find(numbers), None);
    assert_eq!(
        (second.status, &second.json()["shadow"]),
        (StatusCode::OK, &json!(true))
    );
}

#[tokio::test]
async fn the_described_policy_says_in_which_time_a_burst_is_restored() {
    let server = Server::start(&["--headers", "ietf", "--policy", "p=10/s burst 100"]);

    let answer = server.get(&format!("{CHECK}?policy=p&key=k")).await;

    assert_eq!(answer.header("ratelimit-policy"), Some(r#""p";q=100;w=10"#));
}

#[tokio::test]
async fn a_policy_named_like_an_algorithm_replaces_its_default() {
    let server = Server::start_admin(&["--policy", "TOKEN_BUCKET=token_bucket 2/h"]);

    let by_algorithm = server
        .get(&format!("{CHECK}?algorithm=TOKEN_BUCKET&key=k"))
        .await;
    let by_policy = server
        .get(&format!("{CHECK}?policy=token_bucket&key=k"))
        .await;

    assert_eq!(by_algorithm.json()["remaining"], 1);
    assert_eq!(by_policy.json()["remaining"], 0);
}

#[tokio::test]
async fn a_look_spends_nothing_and_is_never_denied() {
    let server = Server::start_admin(&["--policy", "two=fixed_window 2/d"]);
    let look = format!("{REMAINING}?policy=two&key=k");

    let fresh = server.get(&look).await;
    server
        .get(&format!("{CHECK}?policy=two&key=k&permits=2"))
        .await;
    let spent = server.get(&look).await;

    assert_eq!(
        (fresh.status, fresh.json()["remaining"].as_u64()),
        (StatusCode::OK, Some(2))
    );
    assert_eq!(fresh.json()["allowed"], true);
    assert_eq!(
        (spent.status, spent.json()["remaining"].as_u64()),
        (StatusCode::OK, Some(0))
    );
    assert_eq!(spent.json().as_object().unwrap().len(), 9);
    assert_eq!(spent.json()["allowed"], false);
    assert_eq!(
        spent.json()["retryAfterSeconds"],
        spent.json()["resetAfterSeconds"]
    );
    assert_eq!(spent.header("x-ratelimit-remaining"), Some("0"));
}

#[tokio::test]
async fn a_dry_run_says_whether_the_permits_would_be_allowed() {
    let server = Server::start_admin(&["--policy", "nine=fixed_window 9/d"]);
    let path = "?policy=nine&key=k&permits=";
    server.get(&format!("{CHECK}{path}5")).await;

    for (permits, allowed) in [("4", true), ("5", false), ("9", false), ("10", false)] {
        let look = server.get(&format!("{REMAINING}{path}{permits}")).await;
        let json = look.json();
        assert_eq!(
            (look.status, &json["remaining"]),
            (StatusCode::OK, &4.into())
        );
        assert_eq!(json["allowed"], allowed, "{permits}");
        let waits = json["retryAfterSeconds"].as_u64();
        assert_eq!(waits.is_none(), permits == "10", "{json}");
        assert_eq!(waits == Some(0), allowed, "{json}");
    }
}

#[tokio::test]
async fn a_reset_touches_one_key_and_no_pattern() {
    let server = Server::start_admin(&["--policy", "two=fixed_window 2/d"]);
    for key in ["al*", "alice", "al%2A2"] {
        server.get(&format!("{CHECK}?policy=two&key={key}")).await;
    }

    let reset = server.delete(&format!("{RESET}?policy=two&key=al*")).await;

    assert_eq!(reset.status, StatusCode::OK);
    assert_eq!(
        reset.body,
        r#"{"key":"al*","policy":"two","algorithm":"FIXED_WINDOW","reset":true}"#
    );
    for key in ["al*", "nobody"] {
        let again = server
            .delete(&format!("{RESET}?policy=two&key={key}"))
            .await;
        assert_eq!(again.json()["reset"], false, "{key} has spent nothing");
    }
    for (key, remaining) in [("al*", 2), ("alice", 1), ("al%2A2", 1)] {
        let look = server
            .get(&format!("{REMAINING}?policy=two&key={key}"))
            .await;
        assert_eq!(look.json()["remaining"], remaining, "{key}");
    }
}

#[tokio::test]
async fn without_a_key_the_caller_spends_its_own() {
    let policy = "token_bucket=100/d";
    let server = Server::start_admin(&["--trusted", "127.0.0.1", "--policy", policy]);
    let behind = |client: &str| {
        let request = server.request(Method::GET, CHECK);
        request.header("x-forwarded-for", client)
    };

    let direct = server.get(CHECK).await;
    let again = server.get(CHECK).await;
    let one = server.send(behind("6.6.6.6, 203.0.113.7"), "").await;
    let other = server.send(behind("2001:db8::1"), "").await;

    assert_eq!(direct.json()["key"], "ip:127.0.0.1");
    assert_eq!(again.json()["remaining"], 98);
    assert_eq!(one.json()["key"], "ip:203.0.113.7");
    assert_eq!(one.json()["remaining"], 99);
    assert_eq!(other.json()["key"], "ip:2001:db8::/64");
}

#[tokio::test]
async fn a_body_asks_what_a_query_asks() {
    let server = Server::start_admin(&["--policy", "two=fixed_window 2/d"]);

    let body = r#"{"policy":"two","key":"k","permits":2}"#;
    let first = server.post(CHECK, body).await;
    let second = server.get(&format!("{CHECK}?policy=two&key=k")).await;

    assert_eq!(
        (first.status, first.json()["remaining"].as_u64()),
        (StatusCode::OK, Some(0))
    );
    assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn a_batch_is_answered_in_order() {
    let server = Server::start_admin(&["--policy", "many=fixed_window 600/d"]);
    let checks: Vec<_> = (0..1000)
        .map(|_| json!({"policy": "many", "key": "k"}))
        .collect();

    let answer = server
        .post(CHECK, json!({ "checks": checks }).to_string())
        .await;

    assert_eq!(answer.status, StatusCode::OK);
    let json = answer.json();
    let results = json["results"].as_array().unwrap();
    let remaining = results
        .iter()
        .map(|result| result["remaining"].as_u64().unwrap());
    let expected = (0..600).rev().chain(std::iter::repeat_n(0, 400));
    assert!(remaining.eq(expected));
    assert_eq!(results[599]["allowed"], true);
    assert_eq!(results[600]["allowed"], false);
}

#[tokio::test]
async fn checks_together_are_all_charged_or_none() {
    let server = Server::start_admin(&[
        "--policy",
        "user=fixed_window 5/d",
        "--policy",
        "route=fixed_window 1/d",
    ]);
    let checks = json!([
        {"policy": "user", "key": "alice", "permits": 2},
        {"policy": "route", "key": "search"},
    ]);
    let body = json!({ "checks": checks, "together": true }).to_string();

    let first = server.post(CHECK, body.clone()).await;
    let second = server.post(CHECK, body).await;

    assert_eq!(first.status, StatusCode::OK);
    assert_eq!(first.json()["allowed"], true);
    assert_eq!(first.json()["results"][0]["remaining"], 3);
    assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS);
    let denied = second.json();
    assert_eq!(denied["allowed"], false);
    assert_eq!(denied["results"][0]["allowed"], true);
    assert_eq!(denied["results"][0]["remaining"], 3);
    assert_eq!(denied["results"][1]["allowed"], false);
    let wait = denied["results"][1]["retryAfterSeconds"].to_string();
    assert_eq!(second.headers["retry-after"], wait);
}

#[tokio::test]
async fn checks_together_are_1_to_64_and_give_no_receipts() {
    let server = Server::start_admin(&["--policy", "token_bucket=100/d"]);
    let ask = |checks: serde_json::Value| json!({"checks": checks, "together": true}).to_string();
    let many = |count: usize| json!(vec![json!({"key": "k"}); count]);

    let detail = server.post(CHECK, ask(many(65))).await.problem(400);
    assert_eq!(detail, "at most 64 checks in one request");
    server.post(CHECK, ask(many(0))).await.problem(400);
    let receipt = ask(json!([{"key": "k"}, {"key": "k", "receipt": true}]));
    let detail = server.post(CHECK, receipt).await.problem(400);
    assert!(detail.starts_with("checks[1]: "), "{detail}");

    let look = server.get(&format!("{REMAINING}?key=k")).await;
    assert_eq!(look.json()["remaining"], 100);
    let most = server.post(CHECK, ask(many(64))).await;
    assert_eq!(most.status, StatusCode::OK);
    let look = server.get(&format!("{REMAINING}?key=k")).await;
    assert_eq!(look.json()["remaining"], 36);
}

#[tokio::test]
async fn checks_together_with_too_many_log_entries_are_refused() {
    let server = Server::start_admin(&["--policy", "log=sliding_window_log 10000/d"]);
    let ask = |count: usize| {
        let check = json!({"policy": "log", "key": "k"});
        json!({"checks": vec![check; count], "together": true}).to_string()
    };

    let detail = server.post(CHECK, ask(11)).await.problem(400);

    assert!(detail.contains("110000 entries"), "{detail}");
    let most = server.post(CHECK, ask(10)).await;
    assert_eq!(most.status, StatusCode::OK);
    let look = server.get(&format!("{REMAINING}?policy=log&key=k")).await;
    assert_eq!(look.json()["remaining"], 9_990);
}

#[tokio::test]
async fn a_batch_with_a_mistake_spends_nothing() {
    let server = Server::start_admin(&[]);
    let body = json!({"checks": [{"key": "k"}, {"key": "k", "permits": 0}]}).to_string();
    let too_many = json!({"checks": vec![json!({"key": "k"}); 1001]}).to_string();
    let unknown = json!({"checks": [{"key": "k"}, {"algorithm": "guess"}]}).to_string();

    server.post(CHECK, body).await.problem(400);
    server.post(CHECK, too_many).await.problem(400);
    let detail = server.post(CHECK, unknown).await.problem(400);

    assert!(
        detail.starts_with("checks[1]: unknown algorithm"),
        "{detail}"
    );
    let look = server.get(&format!("{REMAINING}?key=k")).await;
    assert_eq!(look.json()["remaining"], 100);
}

#[tokio::test]
async fn an_explanation_says_which_limit_denies_and_until_when() {
    let server = Server::start_admin(&["--policy", "login=10/s; fixed_window 2/d"]);
    server
        .get(&format!("{CHECK}?policy=login&key=k&permits=2"))
        .await;

    let explained = server
        .get(&format!("{EXPLAIN}?policy=login&key=k"))
        .await
        .json();

    assert_eq!(explained["allowed"], false);
    assert_eq!(explained["reason"], "fixed_window 2/d has 0 left of 2");
    assert_eq!(explained["limits"][0]["allowed"], true);
    assert_eq!(
        explained["limits"][1]["passesAfterMicros"],
        explained["passesAfterMicros"]
    );
}

#[tokio::test]
async fn other_header_styles_are_a_setting() {
    let ietf = Server::start_admin(&["--headers", "ietf", "--policy", "p=fixed_window 5/d"]);
    let none = Server::start_admin(&["--headers", "none"]);

    let told = ietf.get(&format!("{CHECK}?policy=p&key=k")).await;
    let silent = none.get(&format!("{CHECK}?key=k")).await;

    assert!(
        told.header("ratelimit")
            .unwrap()
            .starts_with("\"p\";r=4;t=")
    );
    assert_eq!(told.header("ratelimit-policy"), Some("\"p\";q=5;w=86400"));
    assert!(
        !silent
            .headers
            .keys()
            .any(|name| name.as_str().contains("ratelimit"))
    );
}

#[tokio::test]
async fn operators_find_health_info_and_the_document() {
    let server = Server::start_admin(&["--application", "shop", "--policy", "login=5/min"]);

    for path in [
        "/actuator/health",
        "/actuator/health/liveness",
        "/actuator/health/readiness",
    ] {
        assert_eq!(server.get(path).await.body, r#"{"status":"UP"}"#);
    }
    for alias in ["/healthz", "/readyz", "/livez"] {
        assert_eq!(server.get(alias).await.body, r#"{"status":"UP"}"#);
    }
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("rate_limiter_build_info"), "{metrics}");
    let index = server.get("/").await.json();
    for path in ["api", "health", "metrics", "console"] {
        let path = index[path].as_str().unwrap();
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    let info = server.get("/actuator/info").await.json();
    assert_eq!(info["app"]["name"], "shop");
    assert_eq!(info["store"]["kind"], "memory");
    assert_eq!(info["store"]["onFailure"], "local");
    assert_eq!(info["policies"]["login"], "token_bucket 5/min");
    assert_eq!(server.get("/openapi.json").await.json()["openapi"], "3.1.0");
}

#[tokio::test]
async fn every_operation_of_the_document_is_served() {
    let server = Server::start_admin(&["--console", "write"]);
    let document = server.get("/openapi.json").await.json();

    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let method: Method = method.to_uppercase().parse().unwrap();
            // A stream does not end.
            if operation["responses"]["200"]["content"]["text/event-stream"].is_object() {
                continue;
            }
            let body = body_for(&server, path, &method).await;
            let path = path.replace("{name}", "token_bucket");
            let request = server.request(method.clone(), &path);
            let request = request.header("content-type", "application/json");
            let answer = server.send(request, body).await;

            let status = answer.status.as_str();
            assert!(
                operation["responses"].get(status).is_some(),
                "{method} {path}: {answer:?}"
            );
            assert!(answer.status.is_success(), "{method} {path}: {answer:?}");
        }
    }
}

/// A body that the operation is content with; most ask for a receipt.
async fn body_for(server: &Server, path: &str, method: &Method) -> String {
    if method != Method::POST {
        return String::new();
    }
    if path == CHECK {
        return "{}".to_owned();
    }
    match path {
        "/console/api/session" => return r#"{"token":"none is needed"}"#.to_owned(),
        "/console/api/check-config" => return r#"{"format":"toml","text":""}"#.to_owned(),
        "/console/api/client-key" => return "{}".to_owned(),
        "/console/api/simulate" => {
            let asked = json!({"policies": [{"limits": "10/s"}], "traffic": {"kind": "burst"}});
            return asked.to_string();
        }
        _ => {}
    }
    let mut body = server.post(CHECK, r#"{"receipt":true}"#).await.json();
    let receipt = body["receipt"].take();
    let settled = json!({"receipt": receipt, "actual": 0});
    let other = json!({ "receipt": receipt });
    if path == SETTLE { settled } else { other }.to_string()
}
