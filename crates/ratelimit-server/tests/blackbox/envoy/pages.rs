//! The examples of the pages about Envoy, beside the bootstrap of `proxy.rs`.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    EnvoyServer, envoy_listen,
    process::{Envoy, bootstrap_with, service_cluster},
};
use crate::server::{Server, binary, until};

const RLS: &str = include_str!("../../../../../docs/guides/envoy.md");
const QUOTA: &str = include_str!("../../../../../docs/guides/envoy-quota.md");

/// The snippets of a page in a language.
fn snippets<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let start = format!("```{language}\n");
    let parts = page.split(&*start).skip(1);
    parts
        .map(|part| part.split_once("```").unwrap().0)
        .collect()
}

fn check_config(args: &[&str]) -> Output {
    let mut command = binary();
    command.args(["check-config", "--strict"]).args(args);
    command.output().unwrap()
}

#[test]
fn check_config_accepts_the_rules_and_files_of_the_pages() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let rules = [snippets(RLS, "envoy")[0], snippets(RLS, "yaml")[1]];
    for (index, rules) in rules.iter().enumerate() {
        let folder = path(&format!("rules{index}"));
        fs::create_dir(&folder).unwrap();
        fs::write(format!("{folder}/edge.yaml"), rules).unwrap();
        let checked = check_config(&["--envoy-config", &folder]);
        assert!(checked.status.success(), "{checked:?}");
    }
    let quota = snippets(QUOTA, "toml");
    for text in [snippets(RLS, "toml")[0], quota[0], quota[1]] {
        fs::write(path("server.toml"), text).unwrap();
        let checked = check_config(&[&path("server.toml")]);
        assert!(checked.status.success(), "{checked:?}");
    }
}

/// The answer to the command of a page that begins with `curl`, with the address of the server.
fn type_curl(command: &str, server: &Server) -> Value {
    let shown = "http://127.0.0.1:8080";
    assert!(command.contains(shown), "{command}");
    let command = command.replace(shown, &format!("http://{}", server.addr));
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{command}: {output:?}"))
}

#[tokio::test]
async fn the_call_in_json_is_answered_as_the_page_says() {
    let envoy = EnvoyServer::start(snippets(RLS, "envoy")[0], &[]);
    let (_, rest) = RLS.split_once("\n$ curl ").unwrap();
    let mut lines = rest.lines();
    let command = format!("curl -s {}", lines.next().unwrap());
    let mut shown: Value = serde_json::from_str(lines.next().unwrap().trim()).unwrap();

    let mut answered = type_curl(&command, &envoy.server);

    for answer in [&mut shown, &mut answered] {
        // It depends on the second of the minute.
        let duration = answer["statuses"][0]["durationUntilReset"].take();
        assert!(duration.as_str().unwrap().ends_with('s'), "{duration}");
    }
    assert_eq!(answered, shown);
}

#[tokio::test]
async fn a_rule_of_the_file_and_the_rest_call_of_the_page_spend_one_budget() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("server.toml");
    let config = snippets(RLS, "toml")[0].replace("127.0.0.1:8081", "127.0.0.1:0");
    fs::write(&file, config).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let (_, path) = RLS.split_once("\nGET ").unwrap();
    let path = path.lines().next().unwrap();
    let entry = |key: &str, value: &str| json!({ "key": key, "value": value });
    let ask = async |user: &str| {
        let entries = [
            entry("generic_key", "api"),
            entry("user", user),
            entry("remote_address", "192.0.2.1"),
        ];
        let request = json!({ "domain": "edge", "descriptors": [{ "entries": entries }] });
        let response = server.post("/json", request.to_string()).await;
        serde_json::from_str::<Value>(&response.body).unwrap()["statuses"][0].take()
    };

    let by_rest = server.get(path).await;
    let by_envoy = ask("alice").await;
    let tenant = ask("acme").await;

    assert_eq!(by_rest.status, 200);
    let remaining = by_envoy["limitRemaining"].as_u64().unwrap();
    // 50 less two, and what one of the two has gained since.
    assert!((48..50).contains(&remaining), "{by_envoy}");
    assert_eq!(tenant["currentLimit"]["requestsPerUnit"], 500);
}

#[tokio::test]
async fn a_real_envoy_with_the_filter_of_the_page_gets_grants() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("server.toml");
    let config = snippets(QUOTA, "toml")[0].replace("0.0.0.0:8081", "127.0.0.1:0");
    fs::write(&file, config).unwrap();
    let server = Server::start(&["--config", file.to_str().unwrap()]);
    let port = envoy_listen(&server.banner).rsplit(':').next().unwrap();
    let filter =
        snippets(QUOTA, "yaml")[0].replace("cluster_name: ratelimit", "cluster_name: service");
    let filter: Vec<String> = filter
        .lines()
        .map(|line| format!("          {line}\n"))
        .collect();
    let routes =
        "              - match: { prefix: / }\n                route: { cluster: upstream }\n";
    let envoy = Envoy::launch(vec![port.parse().unwrap()], |ports| {
        bootstrap_with(ports, &filter.concat(), routes, &service_cluster(ports))
    });

    // The first requests of a bucket are denied until the first answer. A value that is not plain has no bucket of its own.
    for headers in [
        &[("x-user", &b"alice"[..])][..],
        &[("x-user", b"a\xff")],
        &[("x-user", b"")],
        &[],
    ] {
        until(async || {
            let response = envoy.get("/", headers).await;
            response.filter(|(status, _)| *status == 200)
        })
        .await;
    }

    let page = server.get("/actuator/prometheus").await.body;
    for policy in [r#"policy="api""#, r#"policy="rlqs:edge:limit@anonymous""#] {
        let granted = page.lines().find(|line| {
            line.starts_with("rate_limiter_envoy_quota_units_total{")
                && line.contains(policy)
                && line.contains(r#"state="granted""#)
        });
        assert!(granted.is_some_and(|line| !line.ends_with(" 0")), "{page}");
    }
    let not_utf8 = r#"reason="not_utf8""#;
    let ungranted = page.lines().find(|line| line.contains(not_utf8));
    assert!(ungranted.unwrap().ends_with(" 0"), "{ungranted:?}");
}
