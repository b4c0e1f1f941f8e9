//! The pages for operators, held to the alert rules, the source and the measured numbers.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use ratelimit_tests::redis::RedisProcess;
use serde_json::Value;

use crate::server::{CHECK, RESET, Server, until};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const ALERTS: &str = include_str!("../../../../docs/grafana/alerts.yml");
const ALERT_TESTS: &str = include_str!("../../../../docs/grafana/alerts_test.yml");
const RUNBOOKS: &str = include_str!("../../../../docs/operate/runbooks.md");
const TROUBLESHOOTING: &str = include_str!("../../../../docs/operate/troubleshooting.md");
const GLOSSARY: &str = include_str!("../../../../docs/glossary.md");
const SIZING: &str = include_str!("../../../../docs/operate/sizing.md");
const BENCH: &str = include_str!("../../../../docs/bench/bench.json");

/// The values of the lines `KEY: VALUE`, in their order.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches("- "));
    let values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    values.collect()
}

/// The files below a directory whose names end in `.EXTENSION`.
fn files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
}

/// The pages of operators, of reference and of explanations, with their names.
fn pages() -> Vec<(String, String)> {
    let mut paths = Vec::new();
    for folder in ["docs/operate", "docs/reference", "docs/explain"] {
        files(&Path::new(ROOT).join(folder), "md", &mut paths);
    }
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let read = |path: PathBuf| (name(&path), fs::read_to_string(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The source of all crates. Texts that continue on the next line are joined, and `{...}` in them is
/// written as `...`.
fn source() -> String {
    let mut paths = Vec::new();
    for member in fs::read_dir(Path::new(ROOT).join("crates")).unwrap() {
        let directory = member.unwrap().path().join("src");
        if directory.is_dir() {
            files(&directory, "rs", &mut paths);
        }
    }
    let mut source = String::new();
    for path in paths {
        let text = fs::read_to_string(path).unwrap();
        let mut parts = text.split("\\\n");
        source += parts.next().unwrap_or_default();
        parts.for_each(|part| source += part.trim_start());
    }
    let mut parts = source.split('{');
    let mut written = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((name, rest)) if !name.contains(['\n', '"']) => {
                written += "...";
                written += rest;
            }
            _ => {
                written.push('{');
                written += part;
            }
        }
    }
    written
}

/// The lines of the blocks that are fenced as `log`, and the first column of the tables of log lines.
fn log_lines(page: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let (mut is_log, mut is_table) = (false, false);
    for line in page.lines().map(str::trim) {
        if line.ends_with("```log") {
            is_log = true;
        } else if line == "```" {
            is_log = false;
        } else if is_log {
            lines.push(line);
        } else if line.starts_with("| log line |") {
            is_table = true;
        } else if !line.starts_with('|') {
            is_table = false;
        } else if is_table {
            lines.extend(line.split('`').nth(1));
        }
    }
    lines
}

#[test]
fn every_alert_has_a_runbook_and_a_test() {
    let alerts = values(ALERTS, "alert");
    let headings = RUNBOOKS.lines().filter_map(|line| line.strip_prefix("## "));
    let headings: Vec<&str> = headings
        .filter(|text| text.starts_with("RateLimiter"))
        .collect();
    assert_eq!(headings, alerts, "a section for each alert, in their order");

    let links: Vec<String> = alerts
        .iter()
        .map(|alert| format!("docs/operate/runbooks.md#{}", alert.to_lowercase()))
        .collect();
    assert_eq!(values(ALERTS, "runbook_url"), links);

    for (alert, section) in alerts
        .iter()
        .zip(RUNBOOKS.split("\n## RateLimiter").skip(1))
    {
        for part in ["**Users see**", "**Look at**", "**Do**", "**Do not**"] {
            assert!(section.contains(part), "{alert} has no {part}");
        }
    }

    let tested: BTreeSet<&str> = values(ALERT_TESTS, "alertname").into_iter().collect();
    assert_eq!(tested, alerts.into_iter().collect());
}

#[test]
fn every_quoted_log_line_and_metric_is_in_the_source() {
    let source = source();
    let mut quoted = 0;
    for (name, page) in pages() {
        for line in log_lines(&page) {
            quoted += 1;
            let is_text = source.contains(&format!("\"{line}\""));
            assert!(is_text, "{name} quotes a line that no code writes: {line}");
        }
        let words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words.filter(|word| word.starts_with("rate_limiter_")) {
            let metric = word.trim_end_matches("_bucket");
            let is_metric = source.contains(&format!("\"{metric}\""));
            assert!(is_metric, "{name} names a metric that no code has: {word}");
        }
    }
    assert!(quoted >= 40, "{quoted} lines are quoted");
}

#[test]
fn every_test_that_a_page_names_exists() {
    let mut paths = Vec::new();
    for directory in ["crates", "tests"] {
        files(&Path::new(ROOT).join(directory), "rs", &mut paths);
    }
    let source: String = paths
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let mut named = 0;
    for (name, page) in pages() {
        for span in page.split('`').skip(1).step_by(2) {
            let span = span.rsplit("::").next().unwrap();
            let is_test = span.matches('_').count() >= 4
                && !span.starts_with("rate_limiter_")
                && span
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            if is_test {
                named += 1;
                let exists = source.contains(&format!("fn {span}("));
                assert!(exists, "{name} names a test that does not exist: {span}");
            }
        }
    }
    assert!(named >= 20, "{named} tests are named");
}

#[test]
fn the_glossary_has_each_term_once_in_alphabetical_order() {
    let rows = GLOSSARY.lines().filter(|line| line.starts_with("| "));
    let terms = rows.skip(1).filter_map(|row| row.split('|').nth(1));
    let terms: Vec<String> = terms.map(|term| term.trim().to_lowercase()).collect();
    let sorted: BTreeSet<String> = terms.iter().cloned().collect();
    assert_eq!(terms, Vec::from_iter(sorted));
    assert!(terms.len() > 80, "{} terms", terms.len());
}

/// The number of `155,000 checks/s` and its unit.
fn quantity(cell: &str) -> (f64, &str) {
    let (number, unit) = cell.split_once(' ').unwrap();
    (number.replace(',', "").parse().unwrap(), unit)
}

/// The number that a cell such as "row `WHAT`", "chart `NAME` at X" or "chart `NAME`, `SERIES` at X" names.
fn measured(bench: &Value, source: &str, unit: &str) -> Option<f64> {
    let names: Vec<&str> = source.split('`').skip(1).step_by(2).collect();
    if source.starts_with("row ") {
        let mut rows = bench["rows"].as_array()?.iter();
        let row = rows.find(|row| row["what"] == names[0] && row["unit"] == unit)?;
        return row["ours"]["median"].as_f64();
    }
    let x: f64 = source
        .rsplit_once(" at ")?
        .1
        .replace(',', "")
        .parse()
        .ok()?;
    let mut charts = bench["charts"].as_array()?.iter();
    let chart = charts.find(|chart| chart["name"] == names[0])?;
    let mut series = chart["series"].as_array()?.iter();
    let series = match names.get(1) {
        Some(name) => series.find(|series| series["name"] == *name)?,
        None => series.next()?,
    };
    let mut points = series["points"].as_array()?.iter();
    points.find(|point| point[0].as_f64() == Some(x))?[1].as_f64()
}

/// Rates and times vary from run to run, instructions and bytes hardly do.
fn tolerance(unit: &str) -> f64 {
    match unit {
        "instructions" | "bytes" => 0.05,
        _ => 0.4,
    }
}

#[test]
fn the_numbers_of_the_sizing_page_are_those_of_the_bench() {
    let bench: Value = serde_json::from_str(BENCH).unwrap();
    let mut compared = 0;
    for line in SIZING.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let source = cells.last().unwrap();
        if !source.starts_with("row `") && !source.starts_with("chart `") {
            continue;
        }
        let (number, unit) = quantity(cells[1]);
        let measured = measured(&bench, source, unit);
        let measured = measured.unwrap_or_else(|| panic!("bench.json has no {source} in {unit}"));
        assert!(
            (number - measured).abs() <= tolerance(unit) * measured,
            "{line}\nthe bench has {measured}"
        );
        compared += 1;
    }
    assert!(compared >= 15, "{compared} numbers");
}

/// Waits until the log of a server on that Redis has a line with the word, and asserts that the page names it.
async fn is_logged(redis: &str, word: &str) {
    let line = "no connection to Redis, the failure mode decides";
    assert!(
        TROUBLESHOOTING.contains(&format!("| `{word}`")),
        "the page does not name {word}"
    );
    let server = Server::start(&["--redis", redis]);
    until(async || {
        let log = server.log();
        let mut lines = log.lines().filter(|logged| logged.contains(line));
        lines.any(|logged| logged.contains(word)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_log_names_the_causes_of_the_troubleshooting_page() {
    let mut redis = RedisProcess::start(&["--maxmemory", "1"]);
    let set = |words: &[&str]| redis.command::<()>(words).unwrap();
    is_logged(&redis.url(), "OOM").await;

    set(&["CONFIG", "SET", "maxmemory", "0"]);
    set(&["REPLICAOF", "127.0.0.1", "1"]);
    is_logged(&redis.url(), "ReadOnly").await;
    set(&["REPLICAOF", "NO", "ONE"]);

    let commands = [
        "+evalsha", "+eval", "+get", "+set", "+del", "+time", "+info",
    ];
    let user = ["ACL", "SETUSER", "limiter", "on", ">password", "~other:*"];
    set(&[&user[..], &commands[..]].concat());
    let at = format!("127.0.0.1:{}", redis.port());
    is_logged(&format!("redis://limiter:password@{at}"), "NoPerm").await;
    is_logged(
        &format!("redis://limiter:wrong@{at}"),
        "AuthenticationFailed",
    )
    .await;

    set(&["CONFIG", "SET", "requirepass", "password"]);
    is_logged(&redis.url(), "NOAUTH").await;

    redis.kill();
    is_logged(&redis.url(), "Connection refused").await;
}

#[tokio::test]
async fn a_reset_ends_the_refused_calls_of_a_key_as_its_runbook_says() {
    let redis = RedisProcess::start(&[]);
    let name = |key: &str| format!("rate_limiter:v1:login:{{key:{key}}}");
    redis
        .command::<()>(&["LPUSH", &name("alice"), "x"])
        .unwrap();
    redis
        .command::<()>(&["SET", &name("bob"), "damaged"])
        .unwrap();

    for (key, word) in [("alice", "WRONGTYPE"), ("bob", "ResponseError")] {
        // A server for each, because a server logs few refusals a minute.
        let server = Server::start_connected(&[
            "--redis",
            &redis.url(),
            "--policy",
            "login=5/min",
            "--time-budget",
            "10s",
        ]);
        let query = format!("?policy=login&key={key}");
        let refused = server.get(&format!("{CHECK}{query}")).await;
        assert_eq!(refused.json()["store"], "local", "{refused:?}");
        let log = server.log();
        let mut lines = log
            .lines()
            .filter(|line| line.contains("Redis refused a call"));
        assert!(lines.any(|line| line.contains(word)), "{log}");
        assert!(RUNBOOKS.contains(&format!("`{word}`")), "{word}");

        assert_eq!(server.delete(&format!("{RESET}{query}")).await.status, 200);
        let decided = server.get(&format!("{CHECK}{query}")).await;
        assert!(decided.json().get("store").is_none(), "{decided:?}");
    }
}
