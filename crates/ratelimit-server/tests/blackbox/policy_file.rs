//! The sections of docs/reference/policy-file.md: each code has one, and its example is what it says.

use std::{collections::BTreeSet, fs};

use ratelimit_envoy::RulesBuilder;
use ratelimit_http::policy_file::{DiagnosticCode, Severity};
use tempfile::TempDir;

use crate::server::{CHECK, Server, binary, until};

const DOCS: &str = include_str!("../../../../docs/reference/policy-file.md");

/// What cannot be shown as a text in the docs, and is made here instead.
fn without_example() -> [(DiagnosticCode, &'static str, Vec<u8>); 3] {
    [
        (DiagnosticCode::UnknownFormat, "json", b"{}".to_vec()),
        (DiagnosticCode::NotText, "toml", b"# \xff".to_vec()),
        (DiagnosticCode::TooLarge, "yaml", vec![b'#'; (1 << 20) + 1]),
    ]
}

struct Section<'a> {
    code: &'a str,
    severity: &'a str,
    examples: Vec<Example<'a>>,
}

struct Example<'a> {
    format: &'a str,
    text: String,
}

/// The sections that are headed "### `code` (severity)".
fn sections() -> Vec<Section<'static>> {
    let sections = DOCS.split("\n### `").skip(1);
    let sections = sections.map(|section| {
        let (code, rest) = section.split_once("` (").unwrap();
        let (severity, rest) = rest.split_once(')').unwrap();
        let rest = rest.split("\n## ").next().unwrap();
        let blocks = rest.split("```").skip(1).step_by(2);
        let examples = blocks.map(|block| {
            let (format, text) = block.split_once('\n').unwrap();
            let text = text.to_owned();
            Example { format, text }
        });
        Section {
            code,
            severity,
            examples: examples.collect(),
        }
    });
    sections.collect()
}

/// Runs `check-config`, and gives what it found as `LINE: severity[code]`, and how it ended.
fn check(format: &str, bytes: &[u8]) -> (Vec<String>, bool) {
    if format == "envoy" {
        return check_envoy(str::from_utf8(bytes).unwrap());
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join(format!("config.{format}"));
    fs::write(&path, bytes).unwrap();
    let output = binary().arg("check-config").arg(&path).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let prefix = format!("{}:", path.display());
    let findings = told.lines().filter(|line| line.contains("]: "));
    let findings = findings.map(|line| {
        let line = line.strip_prefix(&prefix).unwrap();
        line.split_once("]: ").unwrap().0.to_owned() + "]"
    });
    (findings.collect(), output.status.success())
}

/// The same for a file of Envoy rules.
fn check_envoy(text: &str) -> (Vec<String>, bool) {
    let found = RulesBuilder::new().add_yaml(text);
    let is_fine = found
        .iter()
        .all(|finding| finding.severity() == Severity::Warning);
    let findings = found
        .iter()
        .map(|finding| format!("{}: {}[{}]", finding.line, finding.severity(), finding.code));
    (findings.collect(), is_fine)
}

#[test]
fn every_code_has_a_section_and_every_section_a_code() {
    let told: BTreeSet<_> = sections()
        .iter()
        .map(|section| (section.code.to_owned(), section.severity.to_owned()))
        .collect();
    let known: BTreeSet<_> = DiagnosticCode::ALL
        .iter()
        .map(|code| (code.to_string(), code.severity().to_string()))
        .collect();

    assert_eq!(told, known);
}

#[test]
fn every_example_is_found_on_the_line_that_it_marks() {
    let without = without_example().map(|(code, ..)| code.as_str());
    for section in sections() {
        let (code, severity) = (section.code, section.severity);
        assert_eq!(
            section.examples.is_empty(),
            without.contains(&code),
            "{code}"
        );
        for example in section.examples {
            let mark = format!("<- {code}");
            let marked = example.text.lines().position(|line| line.contains(&mark));
            let line = marked.unwrap_or_else(|| panic!("{code}: no mark")) + 1;

            let (found, is_fine) = check(example.format, example.text.as_bytes());

            assert_eq!(
                found,
                [format!("{line}: {severity}[{code}]")],
                "{}",
                example.text
            );
            assert_eq!(is_fine, severity == Severity::Warning.to_string());
        }
    }
}

#[test]
fn what_cannot_be_shown_is_found_as_well() {
    for (code, format, bytes) in without_example() {
        let (found, is_fine) = check(format, &bytes);

        assert_eq!(found, [format!("1: error[{code}]")]);
        assert!(!is_fine);
    }
}

#[test]
fn the_whole_example_stands_in_both_formats() {
    let (_, rest) = DOCS.split_once("## The file").unwrap();
    let (text, _) = rest.split_once("\n## ").unwrap();
    let blocks: Vec<_> = text.split("```").skip(1).step_by(2).collect();
    assert_eq!(blocks.len(), 2);
    let policies = blocks.iter().map(|block| {
        let (format, text) = block.split_once('\n').unwrap();
        let dir = TempDir::new().unwrap();
        let path = dir.path().join(format!("config.{format}"));
        fs::write(&path, text).unwrap();
        let output = binary().arg("check-config").arg(&path).output().unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(told.ends_with(": ok\n"), "{told}");
        told.replace(path.to_str().unwrap(), "")
    });
    let policies: Vec<_> = policies.collect();
    assert_eq!(policies[0], policies[1]);
    assert!(policies[0].contains("policy login = token_bucket 5/min; fixed_window 20/h"));
}

/// Every field of a policy's table.
const ALL_FIELDS: &str = r#"
trusted = ["10.0.0.1"]
path-header = "X-Forwarded-Uri"

[policy.watched]
limits = "fixed_window 1/d"
shadow = true
on_failure = "local_share"
instances = 2

[policy.api]
limits = "fixed_window 10/d"
cost = 2
throttle = "soft 20%"
enforced = 100
tiers = { pro = "fixed_window 1000/d" }
tenants = { acme = "pro" }
exempt = ["10.0.0.0/8", "key:batch", "path:/health", "header:x-internal=yes"]
blocked = ["203.0.113.0/24"]
blocked_status = 429

[policy.llm]
limits = "1000/min"
cost = "header:x-tokens"
throttle = "elastic 50% in_flight 200"
charge_on = [200, "5xx"]
settle = "response-bytes"
"#;

#[tokio::test]
async fn a_file_with_every_field_is_checked_and_served() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    fs::write(&path, ALL_FIELDS).unwrap();
    // Only layers honour `charge_on`, `settle` and a cost in a header.
    let ignored = [24, 26, 27].map(|line| format!("{line}: warning[ignored-field]"));
    assert_eq!(
        check("toml", ALL_FIELDS.as_bytes()),
        (ignored.to_vec(), true)
    );
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let spend = async |policy: &str, key: &str| {
        let asked = format!("{CHECK}?policy={policy}&key={key}");
        server.get(&asked).await.json()
    };
    let allowed = async |policy: &str, key: &str, hits: usize| {
        let mut passed = 0;
        for _ in 0..hits {
            passed += usize::from(spend(policy, key).await["allowed"] == true);
        }
        passed
    };

    assert_eq!(allowed("watched", "anybody", 3).await, 3);
    assert_eq!(spend("api", "acme").await["remaining"], 998);
    assert_eq!(spend("api", "globex").await["remaining"], 8);
    // Ten and two more, in hits that cost two.
    assert_eq!(allowed("api", "initech", 9).await, 6);

    let told = server.get("/actuator/prometheus").await.body;
    let watched = |allowed: &str| {
        let labels = [r#"policy="watched""#, r#"shadow="true""#, allowed];
        let mut lines = told.lines();
        let line = lines.find(|line| {
            let is_counter = line.starts_with("rate_limiter_requests_total{");
            is_counter && labels.iter().all(|label| line.contains(label))
        });
        line.and_then(|line| line.rsplit(' ').next())
    };
    assert_eq!(watched(r#"allowed="false""#), Some("2"), "{told}");
    assert_eq!(watched(r#"allowed="true""#), Some("1"), "{told}");

    // What was spent stays when tier, throttle mode and enforcement change under way.
    let changed = ALL_FIELDS
        .replace("fixed_window 1000/d", "fixed_window 500/d")
        .replace("soft 20%", "hard")
        .replace("shadow = true", "shadow = false");
    fs::write(&path, changed).unwrap();
    until(async || (spend("watched", "anybody").await["allowed"] == false).then_some(())).await;
    assert_eq!(spend("api", "acme").await["remaining"], 496);
    assert_eq!(spend("api", "globex").await["remaining"], 6);
    assert_eq!(allowed("api", "initech", 1).await, 0);
}

#[tokio::test]
async fn forward_auth_obeys_the_rules_of_a_policy() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    let file = "trusted = ['127.0.0.1/32']\n\
        path-header = 'X-Forwarded-Uri'\n\
        [policy.site]\n\
        limits = 'fixed_window 1/d'\n\
        exempt = ['path:/health', '192.0.2.0/24']\n\
        blocked = ['path:/admin/*', 'header:x-bad', '2001:db8:1:2::bad']\n";
    fs::write(&path, file).unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let ask = async |client: &str, uri: &str, bad: bool| {
        let asked = "/api/v1/rate-limit/forward-auth?policy=site";
        let mut request = server.request(http::Method::GET, asked);
        request = request.header("x-forwarded-for", client);
        request = request.header("x-forwarded-uri", uri);
        if bad {
            request = request.header("x-bad", "yes");
        }
        server.send(request, "").await.status.as_u16()
    };

    for _ in 0..3 {
        assert_eq!(ask("198.51.100.1", "/health?full", false).await, 200);
        assert_eq!(ask("192.0.2.7", "/", false).await, 200);
        assert_eq!(ask("198.51.100.1", "/admin/../admin/x", false).await, 403);
        assert_eq!(ask("192.0.2.7", "/", true).await, 403, "blocked goes first");
        // The rule is about one address, the key is that of its /64.
        assert_eq!(ask("2001:db8:1:2::bad", "/", false).await, 403);
    }
    assert_eq!(ask("2001:db8:1:2::600d", "/", false).await, 200);
    assert_eq!(ask("198.51.100.1", "http://site/admin/x", false).await, 403);
    assert_eq!(
        ask("198.51.100.1", "/", false).await,
        200,
        "nothing was spent"
    );
    assert_eq!(ask("198.51.100.1", "/", false).await, 429);
}

#[tokio::test]
async fn forward_auth_reads_a_path_as_any_server_behind_the_proxy_could() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    let file = "trusted = ['127.0.0.1/32']\n\
        path-header = 'X-Original-URI'\n\
        [policy.site]\n\
        limits = 'fixed_window 1/d'\n\
        exempt = ['path:/internal/*']\n\
        blocked = ['path:/admin/*']\n";
    fs::write(&path, file).unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let ask = async |uri: &[u8]| {
        let asked = "/api/v1/rate-limit/forward-auth?policy=site";
        let uri = http::HeaderValue::from_bytes(uri).unwrap();
        let request = server.request(http::Method::GET, asked);
        let answer = server.send(request.header("x-original-uri", uri), "").await;
        answer.status.as_u16()
    };

    assert_eq!(ask(b"/login").await, 200, "the budget");
    for exempt in [
        "/internal/a",
        "/internal/a?x=/../",
        "http://site/internal/a",
    ] {
        assert_eq!(ask(exempt.as_bytes()).await, 200, "{exempt}");
    }
    for limited in [
        &b"/internal/..;/login"[..],
        b"/internal/a;b",
        b"/internal/%252e%252e/login",
        b"/internal/a%00",
        b"/internal/\xff",
        b"/internal/%ff",
        b"/internal/#/../login",
        b"/login#/internal/a",
        b"http://site#/internal/a",
        b"http://site\\internal/a",
    ] {
        assert_eq!(ask(limited).await, 429, "{}", limited.escape_ascii());
    }
    for blocked in [
        &b"/internal/..;/admin/users"[..],
        b"/admin;x/users",
        b"/ADMIN/users",
        b"/internal/../admin/users",
        b"/x#/../admin/users",
        b"//admin/users",
        b"http://site\\admin\\users",
    ] {
        assert_eq!(ask(blocked).await, 403, "{}", blocked.escape_ascii());
    }
}

#[tokio::test]
async fn tenants_and_rules_match_named_keys_and_addresses() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    let file = "[policy.site]\n\
        limits = 'fixed_window 10/d'\n\
        tiers = { pro = 'fixed_window 1000/d' }\n\
        tenants = { 'key:acme' = 'pro', 'printed:ip:127.0.0.1' = 'pro' }\n\
        blocked = ['key:mallory', 'printed:key:trudy']\n\
        exempt = ['secret:api-key:s3cr3t']\n";
    fs::write(&path, file).unwrap();
    let unmatched = vec!["6: warning[unmatched-key]".to_owned()];
    assert_eq!(check("toml", file.as_bytes()), (unmatched, true));
    let server = Server::start(&["--config", path.to_str().unwrap()]);

    for (key, limit) in [("&key=acme", 1000), ("", 1000), ("&key=127.0.0.1", 10)] {
        let told = server.get(&format!("{CHECK}?policy=site{key}")).await;
        assert_eq!(told.json()["remaining"], limit - 1, "{key}");
    }
    for (key, status) in [("mallory", 403), ("trudy", 403), ("alice", 200)] {
        let asked = format!("/api/v1/rate-limit/forward-auth?policy=site&key={key}");
        assert_eq!(server.get(&asked).await.status, status, "{key}");
    }
}

#[tokio::test]
async fn forward_auth_believes_the_path_of_a_trusted_peer_only() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    let policy = "[policy.site]\nlimits = 'fixed_window 1/d'\nexempt = ['path:/health']\n";
    let ask = async |server: &Server, headers: &[(&str, &str)]| {
        let asked = "/api/v1/rate-limit/forward-auth?policy=site";
        let mut request = server.request(http::Method::GET, asked);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        server.send(request, "").await
    };

    let trusting = format!("trusted = ['127.0.0.1']\npath-header = 'x-original-uri'\n{policy}");
    fs::write(&path, &trusting).unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    for _ in 0..2 {
        let exempt = ask(&server, &[("x-original-uri", "/health")]).await;
        assert_eq!(exempt.status, 200);
    }
    let forged = [("x-original-uri", "/"), ("x-forwarded-uri", "/health")];
    assert_eq!(ask(&server, &forged).await.status, 200);
    assert_eq!(ask(&server, &forged).await.status, 429);
    for bad in [
        &[("x-forwarded-uri", "/health")][..],
        &[("x-original-uri", "/health"), ("x-original-uri", "/")],
        &[("x-original-uri", "health")],
    ] {
        let detail = ask(&server, bad).await.problem(400);
        assert!(detail.contains("x-original-uri"), "{detail}");
    }
    assert_eq!(server.log().matches("rules about paths").count(), 1);
    // A path of any bytes is a path.
    for path in [&b"/\xc3\xbc"[..], b"/\xff?\xff", b"http://h/\xff"] {
        let request = server.request(
            http::Method::GET,
            "/api/v1/rate-limit/forward-auth?policy=site",
        );
        let header = http::HeaderValue::from_bytes(path).unwrap();
        let answer = server
            .send(request.header("x-original-uri", header), "")
            .await;
        assert_eq!(answer.status, 429, "{path:?}");
    }

    fs::write(&path, trusting.replace("127.0.0.1", "10.0.0.1")).unwrap();
    let server = Server::start(&["--config", path.to_str().unwrap()]);
    let untrusted = ask(&server, &[("x-original-uri", "/health")]).await;
    assert!(untrusted.problem(400).contains("a trusted proxy"));
}

#[test]
fn rules_about_paths_need_the_header_that_holds_the_path() {
    let policy = "[policy.site]\nlimits = '1/s'\nblocked = ['path:/admin/*']\n";
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    fs::write(&path, policy).unwrap();
    let path = path.to_str().unwrap();
    for args in [&["check-config", path][..], &["--config", path]] {
        let output = binary().args(args).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("policy site has rules about paths"), "{told}");
    }
    // A flag completes the file.
    let flags = ["--hops", "1", "--path-header", "X-Forwarded-Uri"];
    Server::start(&[&["--config", path][..], &flags].concat());
}
