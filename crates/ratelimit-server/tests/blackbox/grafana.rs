//! The dashboard and the alert rules, held to what the server exposes.

use std::{collections::BTreeSet, process::Command};

use ratelimit_tests::{page::Page, redis::RedisProcess};
use serde_json::Value;

use crate::server::{CHECK, Server, until};

const DASHBOARD: &str = include_str!("../../../../docs/grafana/dashboard.json");
const ALERTS: &str = include_str!("../../../../docs/grafana/alerts.yml");

/// All that servers expose: one with its Redis, one whose Redis is away, and one in memory.
async fn exposed() -> String {
    let redis = RedisProcess::start(&["--maxmemory", "100mb"]);
    let url = redis.url();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("redis://{}", free.local_addr().unwrap());
    drop(free);
    let mut all = String::new();
    let args = |url| ["--redis", url, "--redis-prefix", "grafana"];
    let connected = Server::start_connected(&args(&url));
    until(async || {
        let metrics = connected.get("/actuator/prometheus").await.body;
        metrics.contains("redis_memory_used_ratio").then_some(())
    })
    .await;
    for server in [connected, Server::start(&args(&nowhere))] {
        server.get(&format!("{CHECK}?key=k")).await;
        all += &server.get("/actuator/prometheus").await.body;
    }
    let in_memory = Server::start(&[]);
    in_memory.get(&format!("{CHECK}?key=k")).await;
    all += &in_memory.get("/actuator/prometheus").await.body;
    all
}

/// The expressions of the dashboard, wherever they stand.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            found.extend(
                members
                    .get("expr")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            members
                .values()
                .for_each(|member| expressions(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// The queries that pages show, one on each line.
fn queries() -> Vec<String> {
    let blocks = Page::all().into_iter().flat_map(|page| page.blocks());
    let blocks = blocks.filter(|block| block.language == "promql" && !block.is_untested);
    let lines = |text: String| text.lines().map(str::to_owned).collect::<Vec<_>>();
    blocks.flat_map(|block| lines(block.text)).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The labels that an expression groups by.
fn grouping(expression: &str) -> BTreeSet<&str> {
    let groups = expression.split("by (").skip(1);
    let labels = groups.flat_map(|rest| words(rest.split(')').next().unwrap_or_default()));
    labels.filter(|label| !label.is_empty()).collect()
}

#[tokio::test]
async fn every_metric_and_label_of_dashboard_alerts_and_pages_is_exposed() {
    let exposed = exposed().await;
    let mut asked = Vec::new();
    expressions(&serde_json::from_str(DASHBOARD).unwrap(), &mut asked);
    let panels = asked.len();
    asked.extend(ALERTS.split("expr:").skip(1).map(|rule| {
        let ends = ["for:", "labels:"].map(|next| rule.find(next));
        let end = ends.into_iter().flatten().min().expect("something follows");
        rule[..end].to_owned()
    }));
    assert!(panels >= 9 && asked.len() >= panels + 4, "{asked:?}");
    let queries = queries();
    assert!(queries.len() >= 3, "{queries:?}");
    asked.extend(queries);

    for expression in &asked {
        let metrics: Vec<&str> = words(expression)
            .filter(|word| word.starts_with("rate_limiter_"))
            .collect();
        assert!(!metrics.is_empty(), "{expression}");
        for metric in metrics {
            let line = exposed.lines().find(|line| {
                let rest = line.strip_prefix(metric);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            });
            let line = line.unwrap_or_else(|| panic!("{metric} is not in\n{exposed}"));
            for label in grouping(expression) {
                assert!(
                    line.contains(&format!("{label}=\"")),
                    "{expression}: {line}"
                );
            }
        }
    }
}

#[test]
fn promtool_accepts_the_alert_rules() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana/alerts.yml");

    let output = Command::new("promtool")
        .args(["check", "rules", rules])
        .output()
        .expect("promtool, as in `apt-get install prometheus`");

    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && told.contains("9 rules found"),
        "{output:?}"
    );
}

#[test]
fn the_alert_rules_fire_when_they_should() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/grafana");

    let output = Command::new("promtool")
        .args(["test", "rules", "alerts_test.yml"])
        .current_dir(folder)
        .output()
        .expect("promtool, as in `apt-get install prometheus`");

    assert!(output.status.success(), "{output:?}");
}
