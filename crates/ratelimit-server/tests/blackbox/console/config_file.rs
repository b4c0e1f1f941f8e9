//! The policy file: its text, its findings, and a reload.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Server, binary, until};

const CONFIG: &str = "/console/api/config";
const CHECK_CONFIG: &str = "/console/api/check-config";
const RELOAD: &str = "/console/api/reload";

const FILE: &str = "admin-without-token = true
redis-prefix = \"shop\"
redis = \"redis://:s3cr3t@127.0.0.1:1/2\"
[policy]
login = \"5/min\"
upload = \"1/h\"
[policy.search]
limits = \"10/s burst 30\"
exempt = [\"secret:api-key:t0psecret\"]
[policy.search.tiers]
pro = \"99/s\"
[policy.search.tenants]
\"secret:api-key:t0psecret\" = \"pro\"
\"secret:api-key:an0ther\" = \"pro\"
";

struct Subject {
    server: Server,
    path: PathBuf,
    _dir: TempDir,
}

impl Subject {
    fn new(text: &str) -> Subject {
        Subject::with_args(text, &[])
    }

    fn with_args(text: &str, args: &[&str]) -> Subject {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("server.toml");
        fs::write(&path, text).unwrap();
        let config = ["--config", path.to_str().unwrap()];
        let server = Server::start(&[&config, args].concat());
        Subject {
            server,
            path,
            _dir: dir,
        }
    }

    async fn check(&self, text: &str) -> Value {
        check(&self.server, text).await
    }
}

async fn check(server: &Server, text: &str) -> Value {
    let body = json!({"format": "toml", "text": text}).to_string();
    let response = server.post(CHECK_CONFIG, body).await;
    assert_eq!(response.status, 200, "{response:?}");
    response.json()
}

fn codes(checked: &Value) -> Vec<(Option<u64>, &str)> {
    let findings = checked["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| (finding["line"].as_u64(), finding["code"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn the_text_of_the_file_is_shown_without_its_secrets() {
    let subject = Subject::new(FILE);

    let response = subject.server.get(CONFIG).await;

    for secret in ["s3cr3t", "t0psecret", "an0ther"] {
        assert!(!response.body.contains(secret), "{}", response.body);
    }
    let shown = response.json();
    assert_eq!(shown["path"], subject.path.to_str().unwrap());
    assert_eq!(
        (&shown["format"], &shown["writable"]),
        (&json!("toml"), &json!(false))
    );
    let text = shown["text"].as_str().unwrap();
    assert!(
        text.contains("redis = \"redis://:***@127.0.0.1:1/2\""),
        "{text}"
    );
    assert!(text.contains("login = \"5/min\""));
    let again = subject.server.get(CONFIG).await.json();
    assert_eq!(again["etag"], shown["etag"]);

    fs::write(&subject.path, FILE.replace("s3cr3t", "changed")).unwrap();
    let changed = subject.server.get(CONFIG).await.json();
    assert_eq!(changed["text"], shown["text"]);
    assert_ne!(changed["etag"], shown["etag"], "the file has changed");
}

#[tokio::test]
async fn the_shown_text_is_what_runs() {
    let subject = Subject::new(FILE);
    let shown = subject.server.get(CONFIG).await.json();

    let checked = subject.check(shown["text"].as_str().unwrap()).await;

    assert_eq!(checked["ok"], true, "{checked}");
    assert_eq!(
        checked["changes"],
        json!({"added": [], "removed": [], "changed": [], "settings": [], "needsRestart": []})
    );
    // Keys of checks over REST are never secrets.
    let lines = [9, 13, 14].map(|line| (Some(line), "unmatched-key"));
    assert_eq!(codes(&checked), lines);
    let message = checked["findings"][0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("the rule secret:api-key:... never matches"),
        "{message}"
    );
}

#[tokio::test]
async fn a_server_without_a_file_shows_its_policies_as_one() {
    let server = Server::start_admin(&["--policy", "login=5/min; 20/h by ip"]);

    let shown = server.get(CONFIG).await.json();

    assert_eq!(
        (&shown["path"], &shown["format"]),
        (&Value::Null, &json!("toml"))
    );
    let text = shown["text"].as_str().unwrap();
    assert_eq!(
        text,
        "[policy]\n\"login\" = \"token_bucket 5/min; token_bucket 20/h by ip\"\n"
    );
    let checked = check(&server, text).await;
    assert_eq!(
        (&checked["ok"], &checked["changes"]["changed"]),
        (&json!(true), &json!([]))
    );
}

#[tokio::test]
async fn a_check_tells_the_difference_to_what_runs() {
    let subject = Subject::new(FILE);
    let text = FILE
        .replace("10/s burst 30", "10/s")
        .replace("upload", "download");
    let text = text
        .replace("\"shop\"", "\"store\"")
        .replace(":1/2", ":2/2");

    let checked = subject.check(&text).await;

    assert_eq!(checked["ok"], true, "{checked}");
    let changes = &checked["changes"];
    assert_eq!(
        (&changes["added"], &changes["removed"]),
        (&json!(["download"]), &json!(["upload"]))
    );
    let policies = changes["changed"].as_array().unwrap();
    assert_eq!(policies.len(), 1);
    assert_eq!(policies[0]["name"], "search");
    let summary = |limits: &str| format!("token_bucket {limits} (tier pro: token_bucket 99/s)");
    assert_eq!(policies[0]["from"], summary("10/s burst 30"));
    assert_eq!(policies[0]["to"], summary("10/s"));
    assert_eq!(changes["needsRestart"], json!(["redis", "redis-prefix"]));
}

#[tokio::test]
async fn findings_are_those_of_the_command() {
    let subject = Subject::new("admin-without-token = true\n");
    let text = "lisen = \"x\"\n[policy]\nlogin = \"often\"\nsearch = \"10/s; 1000/s\"\n";

    let checked = subject.check(text).await;

    assert_eq!(checked["ok"], false);
    assert_eq!(
        codes(&checked),
        [
            (Some(1), "unknown-field"),
            (Some(3), "bad-limit"),
            (Some(4), "shadowed-limit")
        ]
    );
    let help = |index: usize| checked["findings"][index]["help"].as_str().unwrap();
    assert_eq!(help(1), "policy-file.md#bad-limit-error");
    assert_eq!(help(2), "policy-file.md#shadowed-limit-warning");
    let path = subject.path.with_file_name("checked.toml");
    fs::write(&path, text).unwrap();
    let printed = binary().arg("check-config").arg(&path).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    for finding in checked["findings"].as_array().unwrap() {
        let line = format!(
            ":{}: {}[{}]: {}",
            finding["line"],
            finding["severity"].as_str().unwrap(),
            finding["code"].as_str().unwrap(),
            finding["message"].as_str().unwrap()
        );
        assert!(printed.contains(&line), "{line}\n{printed}");
    }
}

#[tokio::test]
async fn settings_that_exclude_each_other_are_found_at_their_line() {
    let subject = Subject::new("admin-without-token = true\n");

    let checked = subject
        .check("listen = \"127.0.0.1:1\"\nmax-hops = 3\n")
        .await;

    assert_eq!(codes(&checked), [(Some(2), "invalid-setting")], "{checked}");
    assert_eq!(checked["findings"][0]["severity"], "error");
}

#[tokio::test]
async fn a_text_does_not_make_the_server_read_other_files() {
    let subject = Subject::new("admin-without-token = true\n");
    let dir = TempDir::new().unwrap();
    let there = dir.path().join("there");
    fs::write(&there, "a secret of sixteen bytes").unwrap();
    let missing = dir.path().join("missing");

    for setting in [
        "admin-token-file",
        "tls-cert",
        "tls-key",
        "tls-client-ca",
        "redis-ca",
        "redis-cert",
        "redis-key",
        "envoy-tls-cert",
        "envoy-tls-client-ca",
        "envoy-config",
        "envoy-xds-ca",
    ] {
        let mut answers = Vec::new();
        for path in [&there, &missing] {
            let text = format!("{setting} = \"{}\"\n", path.display());
            answers.push(subject.check(&text).await);
        }
        assert_eq!(answers[0], answers[1], "{setting}");
    }
    let whole = |path: &PathBuf| {
        format!(
            "redis = \"rediss://x\"\nredis-ca = \"{0}\"\ntls-cert = \"{0}\"\ntls-key = \"{0}\"\nenvoy-listen = \
             \"127.0.0.1:1\"\nenvoy-config = \"{0}\"\nadmin-token-file = \"{0}\"\nlisten = \"127.0.0.1:1\"\n",
            path.display()
        )
    };
    let (one, other) = (
        subject.check(&whole(&there)).await,
        subject.check(&whole(&missing)).await,
    );
    assert_eq!(one, other);
    assert_eq!(
        codes(&one),
        [
            (Some(2), "not-checked"),
            (Some(3), "not-checked"),
            (Some(4), "not-checked"),
            (Some(6), "not-checked"),
            (Some(7), "not-checked"),
        ],
        "{one}"
    );
    let device = subject.check("admin-token-file = \"/dev/zero\"\n").await;
    assert_eq!(codes(&device), [(Some(1), "not-checked")]);
}

#[tokio::test]
async fn variables_of_the_environment_are_not_read_for_a_text() {
    let subject = Subject::new("admin-without-token = true\n");
    let text = "envoy-ratelimit-env = true\nenvoy-listen = \"127.0.0.1:1\"\n";

    let checked = subject.check(text).await;

    assert!(
        codes(&checked).contains(&(Some(1), "not-checked")),
        "{checked}"
    );
}

#[tokio::test]
async fn hostile_texts_are_findings() {
    let subject = Subject::new("admin-without-token = true\n");
    let deep = format!("a = {}1{}", "[".repeat(50_000), "]".repeat(50_000));
    let wide = "x = 1\n".repeat(100_000);
    for text in [
        "",
        "\u{0}",
        "=",
        &deep,
        &wide,
        "memory-keys = 9223372036854775807\n[policy]\na='1/s'",
    ] {
        let checked = subject.check(text).await;
        let found = checked["findings"].as_array().unwrap().len();
        assert!(
            checked["ok"] == true || (1..=101).contains(&found),
            "{checked}"
        );
    }
    for body in [
        "",
        "[]",
        "{}",
        "{\"format\":\"json\",\"text\":\"\"}",
        "{\"format\":\"toml\"}",
    ] {
        subject.server.post(CHECK_CONFIG, body).await.problem(400);
    }
    let long = json!({"format": "yaml", "text": "#".repeat((1 << 20) + 1)});
    subject
        .server
        .post(CHECK_CONFIG, long.to_string())
        .await
        .problem(413);
    let most = json!({"format": "yaml", "text": "\n".repeat(1 << 20)});
    assert_eq!(
        subject
            .server
            .post(CHECK_CONFIG, most.to_string())
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_reload_is_answered_when_it_is_done() {
    let subject = Subject::with_args(FILE, WRITE);

    fs::write(&subject.path, FILE.replace("upload", "download")).unwrap();
    let reloaded = subject.server.post(RELOAD, "").await;

    assert_eq!(
        (reloaded.status.as_u16(), reloaded.json()),
        (200, json!({"result": "ok", "policies": 8}))
    );
    let policies = subject.server.get("/console/api/policies/download").await;
    assert_eq!(policies.status, 200);
}

#[tokio::test]
async fn a_file_with_errors_is_rejected_and_the_old_policies_stay() {
    let subject = Subject::with_args(FILE, WRITE);

    fs::write(&subject.path, FILE.replace("5/min", "often")).unwrap();
    let refused = subject.server.post(RELOAD, "").await;

    assert_eq!(refused.status, 422);
    let refused = refused.json();
    assert_eq!(refused["result"], "rejected");
    assert_eq!(codes(&refused)[0], (Some(5), "bad-limit"));
    let login = subject
        .server
        .get("/console/api/policies/login")
        .await
        .json();
    assert_eq!(login["text"], "token_bucket 5/min");
    fs::remove_file(&subject.path).unwrap();
    let gone = subject.server.post(RELOAD, "").await;
    assert_eq!((gone.status.as_u16(), codes(&gone.json()).len()), (422, 1));
    assert!(
        subject
            .server
            .log()
            .contains("the new configuration is refused")
    );
}

#[tokio::test]
async fn reloads_at_once_are_all_answered_and_one_without_a_caller_takes_place() {
    let subject = Subject::with_args(FILE, WRITE);
    let reload = || subject.server.post(RELOAD, "");

    let all = futures_util::future::join_all((0..20).map(|_| reload())).await;
    assert!(all.iter().all(|answer| answer.status == 200), "{all:?}");

    fs::write(&subject.path, FILE.replace("upload", "download")).unwrap();
    let left = tokio::time::timeout(Duration::from_micros(1), reload()).await;
    drop(left);
    until(async || {
        let found = subject.server.get("/console/api/policies/download").await;
        (found.status == 200).then_some(())
    })
    .await;
    assert_eq!(reload().await.status, 200);
}

#[tokio::test]
async fn a_reload_reads_envoy_rules_and_is_answered_while_the_server_drains() {
    let dir = TempDir::new().unwrap();
    let rules = dir.path().join("edge.yaml");
    let edge = |unit: &str| {
        format!(
            "domain: edge\ndescriptors:\n  - {{key: user, rate_limit: {{unit: {unit}, requests_per_unit: 5}}}}\n"
        )
    };
    fs::write(&rules, edge("minute")).unwrap();
    let directory = dir.path().to_str().unwrap();
    let envoy = ["--envoy-listen", "127.0.0.1:0", "--envoy-config", directory];
    let args = [
        WRITE,
        &[
            "--drain-delay",
            "5s",
            "--policy",
            "p=1/s",
            "--admin-without-token",
        ],
        &envoy,
    ]
    .concat();
    let server = Server::start(&args);

    assert_eq!(server.post(RELOAD, "").await.json()["policies"], 6);
    until(async || {
        let log = server.log();
        (log.matches("reloaded the Envoy rules").count() == 1).then_some(())
    })
    .await;

    server.signal("TERM");
    until(async || {
        let health = server.get("/actuator/health").await;
        (health.status == 503).then_some(())
    })
    .await;
    assert_eq!(server.post(RELOAD, "").await.status, 200);
}

/// The settings that allow a reload.
const WRITE: &[&str] = &["--console", "write"];

#[tokio::test]
async fn a_check_lists_changed_settings_and_envoy_rules() {
    let file = "admin-without-token = true
envoy-listen = \"127.0.0.1:0\"
trusted = [\"10.0.0.0/8\"]
[[envoy.rule]]
domain = \"edge\"
match = [\"user\"]
limits = \"5/min\"
[[envoy.rule]]
domain = \"edge\"
match = [\"old\"]
limits = \"5/min\"
";
    let subject = Subject::new(file);

    let same = subject.check(&format!("# comment\n{file}")).await;
    let text = file
        .replace("10.0.0.0/8", "10.0.0.0/9")
        .replacen("5/min", "6/min", 1)
        .replace("old", "new");
    let other = subject.check(&format!("log-keys = true\n{text}")).await;

    let none =
        json!({"added": [], "removed": [], "changed": [], "settings": [], "needsRestart": []});
    assert_eq!(same["changes"], none, "{same}");
    let changes = &other["changes"];
    assert_eq!(
        changes["settings"],
        json!(["trusted", "log-keys"]),
        "{other}"
    );
    assert_eq!(changes["added"], json!(["rls:edge:new"]), "{other}");
    assert_eq!(changes["removed"], json!(["rls:edge:old"]), "{other}");
    assert_eq!(changes["changed"][0]["name"], "rls:edge:user", "{other}");
    assert_eq!(changes["changed"][0]["to"], "token_bucket 6/min", "{other}");
}
