//! Calls of operators about the policies of Envoy rules.

use crate::server::{EXPLAIN, OFFENDERS, RESET};

use super::{EnvoyServer, request};

const RULES: &str = "
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: path, value: '/a', rate_limit: {unit: day, requests_per_unit: 9}}
";

#[tokio::test]
async fn an_operator_explains_and_resets_the_key_of_an_envoy_rule_as_offenders_shows_it() {
    let args = ["--admin-without-token", "--offender-keys", "shown"];
    let envoy = EnvoyServer::start(RULES, &args);
    for value in ["alice b/c"; 5] {
        envoy
            .ask(request("edge", "user", value.as_bytes()))
            .await
            .unwrap();
    }
    let server = &envoy.server;

    let shown = server
        .get(&format!("{OFFENDERS}?policy=rls:edge:user"))
        .await
        .json();
    let key = shown["policies"]["rls:edge:user"][0]["key"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(key.starts_with("k:user/v:alice"), "{key}");
    let encoded = percent_encoding::utf8_percent_encode(&key, percent_encoding::NON_ALPHANUMERIC);
    let query = format!("policy=rls:edge:user&key={encoded}");

    let explained = server.get(&format!("{EXPLAIN}?{query}")).await.json();
    assert_eq!(explained["key"], key);
    assert_eq!(explained["allowed"], false, "{explained}");
    assert_eq!(explained["limits"][0]["remaining"], 0, "{explained}");
    assert_eq!(explained["limits"][0]["limit"], 3, "{explained}");
    let forecast = server
        .get(&format!("/console/api/forecast?{query}"))
        .await
        .json();
    assert_eq!(forecast["limit"], 3, "{forecast}");

    let reset = server.delete(&format!("{RESET}?{query}")).await;
    assert_eq!(reset.json()["reset"], true, "{reset:?}");
    assert_eq!(envoy.remaining("user", b"alice b/c").await, 3);
    let explained = server.get(&format!("{EXPLAIN}?{query}")).await.json();
    assert_eq!(explained["allowed"], true, "{explained}");

    let detail = server
        .get(&format!("{EXPLAIN}?policy=rls:edge:user&key=alice"))
        .await;
    assert!(detail.problem(400).contains("such as k:user/v:alice"));
    let unknown = server
        .get(&format!("{EXPLAIN}?policy=rls:edge:usr&key={encoded}"))
        .await;
    assert!(unknown.problem(400).starts_with("unknown policy"));
}
