//! Calls that a misconfigured caller sends: they are refused, counted and logged.

use http::{Method, StatusCode};
use serde_json::json;
use tempfile::TempDir;

use crate::server::{
    CHECK, EXPLAIN, OFFENDERS, REFUND, RELEASE, REMAINING, RENEW, RESET, SETTLE, Server, until,
};

const FORWARD_AUTH: &str = "/api/v1/rate-limit/forward-auth";
const METRICS: &str = "/actuator/prometheus";

fn server(args: &[&str]) -> Server {
    let policies = [
        "--policy",
        "api=fixed_window 2/d",
        "--policy",
        "login=5/min",
    ];
    Server::start_admin(&[&policies, args].concat())
}

/// The value of the counter of refused calls.
async fn refused(server: &Server, reason: &str) -> u64 {
    let metrics = server.get(METRICS).await.body;
    let label = format!("reason=\"{reason}\"");
    let mut lines = metrics.lines();
    let line = lines.find(|line| {
        line.starts_with("rate_limiter_refused_calls_total{") && line.contains(&label)
    });
    let value = line.and_then(|line| line.rsplit(' ').next());
    value.and_then(|value| value.parse().ok()).expect("a count")
}

#[tokio::test]
async fn a_misspelt_parameter_is_refused_in_every_call() {
    let server = server(&[]);
    let calls = [
        (Method::GET, CHECK),
        (Method::GET, REMAINING),
        (Method::GET, EXPLAIN),
        (Method::DELETE, RESET),
        (Method::GET, FORWARD_AUTH),
        (Method::POST, FORWARD_AUTH),
        (Method::GET, OFFENDERS),
        (Method::GET, "/console/api/forecast"),
    ];
    for (method, call) in calls {
        let path = format!("{call}?polcy=api");
        let answer = server.send(server.request(method, &path), "").await;

        let detail = answer.problem(400);
        let expected = "unknown parameter \"polcy\": did you mean policy?";
        assert_eq!(detail, expected, "{call}");
    }
    // The parameters of these calls are in the body.
    for call in [CHECK, REFUND, SETTLE, RELEASE, RENEW] {
        let answer = server.post(&format!("{call}?policy=api"), "{}").await;
        let detail = answer.problem(400);
        assert!(detail.contains("takes none in its query"), "{detail}");
    }
    for (call, wrong) in [
        (CHECK, "denied=403"),
        (REMAINING, "receipt=true"),
        (EXPLAIN, "user=a"),
    ] {
        let answer = server
            .get(&format!("{call}?policy=api&key=k&{wrong}"))
            .await;
        answer.problem(400);
    }

    let look = server.get(&format!("{REMAINING}?policy=api&key=k")).await;
    assert_eq!(look.json()["remaining"], 2, "nothing was charged");
    assert_eq!(refused(&server, "unknown_parameter").await, 16);
}

#[tokio::test]
async fn a_call_without_a_policy_is_refused_where_policies_are_configured() {
    let server = server(&[]);

    for call in [CHECK, REMAINING, EXPLAIN, FORWARD_AUTH] {
        let detail = server.get(&format!("{call}?key=k")).await.problem(400);
        assert!(detail.contains("policy=api, login"), "{detail}");
    }
    let body = json!({"checks": [{"policy": "api", "key": "k"}, {"key": "k"}]}).to_string();
    let detail = server.post(CHECK, body).await.problem(400);
    assert!(detail.starts_with("checks[1]: name a policy"), "{detail}");
    server.delete(&format!("{RESET}?key=k")).await.problem(400);

    assert_eq!(refused(&server, "no_policy").await, 6);
    let expected = "refused a call, and charged nothing: name a policy of this server";
    until(|| async { server.log().contains(expected).then_some(()) }).await;
    assert_eq!(server.log().matches("refused a call").count(), 1);

    // A call that names an algorithm names its limits.
    let named = server
        .get(&format!("{CHECK}?algorithm=token_bucket&key=k"))
        .await;
    assert_eq!(named.json()["policy"], "token_bucket");
    assert_eq!(named.json()["limit"], 100);
    let tried = server.banner.split('\'').nth(1).expect("a command to try");
    let (_, path) = tried.split_once("/api").expect("a path");
    assert_eq!(
        server.get(&format!("/api{path}")).await.status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_setting_says_whether_a_policy_is_required() {
    let lenient = server(&["--require-policy=false"]);
    let strict = Server::start(&["--require-policy"]);
    let chosen = Server::start(&["--policy", "token_bucket=7/h", "--policy", "api=5/h"]);
    let none = Server::start(&[]);

    let status = async |server: &Server| server.get(&format!("{CHECK}?key=k")).await.status;
    assert_eq!(status(&lenient).await, StatusCode::OK);
    assert_eq!(status(&strict).await, StatusCode::BAD_REQUEST);
    assert_eq!(status(&none).await, StatusCode::OK);
    // A configured `token_bucket` is the default that was chosen.
    let answer = chosen.get(&format!("{CHECK}?key=k")).await.json();
    assert_eq!(answer["limit"], 7);
}

#[tokio::test]
async fn a_reload_that_adds_the_first_policy_requires_one() {
    let dir = TempDir::new().unwrap();
    let server = Server::with_file(&dir, "require-policy: false\npolicy: {api: 5/h}\n");
    assert_eq!(server.get(&format!("{CHECK}?key=k")).await.status, 200);

    let path = dir.path().join("server.yaml");
    crate::server::write_atomically(&path, "policy: {api: 5/h}\n");

    until(|| async {
        let answer = server.get(&format!("{CHECK}?key=k")).await;
        (answer.status == 400).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_unknown_policy_is_logged_counted_and_a_404_of_forward_auth() {
    let server = server(&[]);

    for _ in 0..3 {
        let detail = server
            .get(&format!("{CHECK}?policy=apj&key=k"))
            .await
            .problem(400);
        assert_eq!(detail, "unknown policy \"apj\": did you mean api?");
    }
    server
        .get(&format!("{OFFENDERS}?policy=other"))
        .await
        .problem(400);
    server
        .get(&format!("{CHECK}?algorithm=guess"))
        .await
        .problem(400);
    server
        .get(&format!("{FORWARD_AUTH}?policy=renamed"))
        .await
        .problem(404);
    server
        .get(&format!("{FORWARD_AUTH}?policy=api&denied=x"))
        .await
        .problem(400);

    assert_eq!(refused(&server, "unknown_policy").await, 6);
    let expected = "refused a call, and charged nothing: unknown policy \"apj\"";
    until(|| async { server.log().contains(expected).then_some(()) }).await;
    let line = "refused a call, and charged nothing: unknown policy";
    assert_eq!(server.log().matches(line).count(), 1);
}
