//! The tables of docs/reference/settings.md, held to the code.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use clap::CommandFactory as _;
use ratelimit_http::policy_file::policy_field_names;
use tempfile::TempDir;

use crate::server::{CHECK, Server, binary, until};

const PAGE: &str = include_str!("../../../../docs/reference/settings.md");

/// The methods that make a layer, and those that its own crate needs.
const NOT_SETTINGS: [&str; 4] = ["new", "named", "per_client", "map_config"];

/// The rows of the table under a heading, each as its cells.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let (_, section) = PAGE.split_once(heading).expect("the heading");
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let table = lines.take_while(|line| line.starts_with('|'));
    let rows = table.skip(2).map(|line| {
        let line = line.trim_matches('|');
        line.split('|').map(str::trim).collect()
    });
    rows.collect()
}

/// The name in the first cell of a row.
fn name<'a>(row: &[&'a str]) -> &'a str {
    row[0].split('`').nth(1).expect("a name in backticks")
}

fn names(heading: &str) -> BTreeSet<&'static str> {
    rows(heading).iter().map(|row| name(row)).collect()
}

fn source(path: &str) -> String {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect();
    fs::read_to_string(root.join(path)).expect("a file of the workspace")
}

/// The public methods of a source that take the layer and return it.
fn setters(path: &str) -> BTreeSet<String> {
    let text = source(path);
    let methods = text.split("pub fn ").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        rest[..end.expect("an end")].to_owned()
    });
    let methods = methods.filter(|name| !NOT_SETTINGS.contains(&name.as_str()));
    methods.collect()
}

/// A server with a policy called `p` that has these fields.
fn with_fields(dir: &TempDir, fields: &str, more: &[&str]) -> (Server, String) {
    let path = dir.path().join("server.toml");
    fs::write(&path, format!("[policy.p]\n{fields}\n")).unwrap();
    let path = path.to_str().unwrap();
    let checked = binary().args(["check-config", path]).output().unwrap();
    let server = Server::start(&[&["--config", path], more].concat());
    (server, String::from_utf8(checked.stdout).unwrap())
}

#[test]
fn every_policy_field_is_listed() {
    let listed = names("## Fields of a policy");

    assert_eq!(listed, policy_field_names().collect());
}

#[test]
fn every_method_of_a_layer_is_listed() {
    let shared = setters("crates/ratelimit-http/src/middleware/builder.rs");
    let columns = [
        (1, "crates/ratelimit-tower/src/layer.rs", true),
        (2, "crates/ratelimit-axum/src/layer.rs", true),
        (3, "crates/ratelimit-actix/src/middleware.rs", true),
        (4, "crates/ratelimit-tower/src/outgoing.rs", false),
    ];
    for (column, path, has_shared) in columns {
        let mut methods = setters(path);
        methods.extend(shared.iter().filter(|_| has_shared).cloned());
        let rows = rows("## Settings of a layer");
        let honoured = rows.iter().filter(|row| row[column] == "yes");
        let listed: BTreeSet<String> = honoured.map(|row| name(row).to_owned()).collect();

        assert_eq!(listed, methods, "{path}");
    }
}

#[test]
fn every_setting_of_the_server_is_listed() {
    let command = ratelimit_server::Cli::command();
    let flags = command.get_arguments().filter_map(clap::Arg::get_long);
    let flags: BTreeSet<&str> = flags
        .filter(|flag| !["config", "help", "version"].contains(flag))
        .collect();

    assert_eq!(names("## Settings of the server"), flags);
}

#[test]
fn every_field_of_an_envoy_rule_is_listed_and_excludes_a_policy() {
    let rows = rows("## Fields of an Envoy rule");
    let listed: BTreeSet<&str> = rows.iter().map(|row| name(row)).collect();
    assert_eq!(listed, ratelimit_envoy::rule_field_names().collect());

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    let beside_policy = rows.iter().filter(|row| row[2].starts_with("error"));
    for field in beside_policy.map(|row| name(row)) {
        let rule = "[[envoy.rule]]\ndomain = 'edge'\nmatch = ['user']\npolicy = 'token_bucket'\n";
        fs::write(&path, format!("{rule}{field} = 1\n")).unwrap();
        let output = binary().arg("check-config").arg(&path).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert!(
            out.contains("server.toml:5: error[conflicting-fields]"),
            "{out}"
        );
    }
}

#[test]
fn every_test_that_the_page_names_is_there() {
    let named = PAGE.split('`').skip(1).step_by(2);
    let named = named.filter(|name| name.matches('_').count() > 3 && !name.contains('/'));
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect();
    let mut found = 0;
    for test in named {
        let listed = Command::new("grep")
            .args(["-rlF", "--include=*.rs", &format!("fn {test}()")])
            .args([
                root.join("tests/tests"),
                root.join("crates/ratelimit-server/tests/blackbox"),
            ])
            .output()
            .unwrap();

        assert!(!listed.stdout.is_empty(), "{test} is not a test");
        found += 1;
    }
    assert!(found > 8, "{found}");
}

#[test]
fn settings_without_effect_in_memory_are_errors() {
    let pem = std::env::current_exe().unwrap();
    let pem = pem.to_str().unwrap();
    let values = [
        ("redis-ca", pem),
        ("redis-cert", pem),
        ("redis-key", pem),
        ("redis-prefix", "p"),
        ("time-budget", "20ms"),
        ("on-failure", "open"),
        ("no-deny-cache", "true"),
        ("local-keys", "100"),
        ("readiness-grace", "5s"),
    ];
    let rows = rows("## Settings of the server");
    let errors = rows.iter().filter(|row| row[1] == "error");
    let errors: BTreeSet<&str> = errors.map(|row| name(row)).collect();
    assert_eq!(errors, values.iter().map(|(name, _)| *name).collect());

    for (name, value) in values {
        let variable = format!("RATELIMIT_{}", name.to_uppercase().replace('-', "_"));
        let mut server = Command::new("timeout");
        server.arg("10").arg(binary().get_program());
        server
            .args(["--listen", "127.0.0.1:0"])
            .env(variable, value);
        let ended = server.output().unwrap();

        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{name}: {told}");
        let expected = format!("{name} has no effect without redis");
        assert!(told.contains(&expected), "{told}");
    }
}

#[test]
fn settings_of_the_memory_store_are_errors_with_redis() {
    for setting in ["memory-keys", "memory-bytes"] {
        let mut server = Command::new("timeout");
        server.arg("10").arg(binary().get_program());
        server.args(["--listen", "127.0.0.1:0", "--redis", "redis://127.0.0.1:1"]);
        server.args([format!("--{setting}"), "1000".to_owned()]);
        let ended = server.output().unwrap();

        let told = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{setting}: {told}");
        let expected = format!("{setting} has no effect with redis");
        assert!(told.contains(&expected), "{told}");
    }
}

#[tokio::test]
async fn every_policy_field_is_honoured_or_warned_of_by_the_server() {
    const DOWN: &[&str] = &["--redis", "redis://127.0.0.1:1"];
    const ONE: &str = "limits = 'fixed_window 1/d'";
    let tiers = format!("{ONE}\ntiers = {{ pro = 'fixed_window 2/d' }}\ntenants = {{ k = 'pro' }}");
    // The statuses of checks of one key, and of calls of forward-auth.
    let honoured: [(&str, String, &[&str], &[u16]); 10] = [
        ("limits", ONE.to_owned(), &[], &[200, 429]),
        (
            "cost",
            "limits = 'fixed_window 2/d'\ncost = 2".to_owned(),
            &[],
            &[200, 429],
        ),
        (
            "throttle",
            format!("{ONE}\nthrottle = 'soft 100%'"),
            &[],
            &[200, 200, 429],
        ),
        ("shadow", format!("{ONE}\nshadow = true"), &[], &[200, 200]),
        ("enforced", format!("{ONE}\nenforced = 0"), &[], &[200, 200]),
        (
            "prefetch",
            format!("{ONE}\nprefetch = '5%'"),
            &[],
            &[200, 429],
        ),
        ("tiers", tiers.clone(), &[], &[200, 200, 429]),
        ("tenants", tiers, &[], &[200, 200, 429]),
        (
            "on_failure",
            format!("{ONE}\non_failure = 'closed'"),
            DOWN,
            &[503],
        ),
        (
            "instances",
            "limits = 'fixed_window 4/d'\non_failure = 'local_share'\ninstances = 2".to_owned(),
            DOWN,
            &[200, 200, 429],
        ),
    ];
    let rules: [(&str, String, u16); 3] = [
        ("exempt", format!("{ONE}\nexempt = ['key:k']"), 200),
        ("blocked", format!("{ONE}\nblocked = ['key:k']"), 403),
        (
            "blocked_status",
            format!("{ONE}\nblocked = ['key:k']\nblocked_status = 429"),
            429,
        ),
    ];
    let ignored = [
        ("cost", "cost = 'header:x-tokens'"),
        ("charge_on", "charge_on = ['5xx']"),
        ("settle", "settle = 'response-bytes'"),
    ];
    let covered = honoured.iter().map(|case| case.0);
    let covered = covered.chain(rules.iter().map(|case| case.0));
    let covered: BTreeSet<&str> = covered.chain(ignored.iter().map(|case| case.0)).collect();
    assert_eq!(covered, policy_field_names().collect());

    for call in [CHECK, "/api/v1/rate-limit/forward-auth"] {
        let path = format!("{call}?policy=p&key=k");
        for (field, fields, more, expected) in &honoured {
            let dir = TempDir::new().unwrap();
            let (server, _) = with_fields(&dir, fields, more);
            for status in *expected {
                assert_eq!(server.get(&path).await.status, *status, "{field} in {call}");
            }
        }
    }
    for (field, fields, expected) in &rules {
        let dir = TempDir::new().unwrap();
        let (server, _) = with_fields(&dir, fields, &[]);
        let path = "/api/v1/rate-limit/forward-auth?policy=p&key=k";
        assert_eq!(server.get(path).await.status, *expected, "{field}");
        assert_eq!(server.get(path).await.status, *expected, "{field}");
    }
    for (field, text) in ignored {
        let dir = TempDir::new().unwrap();
        let (server, checked) = with_fields(&dir, &format!("{ONE}\n{text}"), &[]);
        let expected = format!("so {field} has no effect");
        assert!(
            checked.contains("warning[ignored-field]"),
            "{field}: {checked}"
        );
        assert!(checked.contains(&expected), "{field}: {checked}");
        until(|| async { server.log().contains(&expected).then_some(()) }).await;
    }
}
