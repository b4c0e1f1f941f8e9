//! Rules of the configuration file, `[[envoy.rule]]`.

use std::{fs, process::Command};

use ratelimit_envoy::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, rate_limit::Unit},
    },
};
use ratelimit_tests::redis::TestRedis;
use serde_json::Value;
use tempfile::TempDir;

use super::{EnvoyServer, write_atomically};
use crate::server::{CHECK, binary, until};

/// A request with one descriptor of these entries.
fn request(entries: &[(&str, &str)]) -> RateLimitRequest {
    let entries = entries.iter().map(|(key, value)| Entry {
        key: (*key).to_owned().into(),
        value: (*value).to_owned().into(),
    });
    RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: entries.collect(),
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

/// A file in a directory of its own.
struct ConfigText {
    dir: TempDir,
    path: String,
}

impl ConfigText {
    fn new(text: &str) -> ConfigText {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("server.toml");
        fs::write(&path, text).unwrap();
        let path = path.to_str().unwrap().to_owned();
        ConfigText { dir, path }
    }

    fn write(&self, text: &str) {
        write_atomically(&self.dir.path().join("server.toml"), text);
    }

    /// The findings of `check-config`, as `LINE: severity[code]`, and its exit status.
    fn check(&self, args: &[&str]) -> (Vec<String>, Option<i32>) {
        let mut command = binary();
        let output = command.args(["check-config", &self.path]).args(args);
        let output = output.output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let findings = out.lines().filter_map(|line| {
            let (place, _) = line.split_once("]: ")?;
            let (_, place) = place.rsplit_once('/')?;
            let (_, place) = place.split_once(':')?;
            Some(format!("{place}]"))
        });
        (findings.collect(), output.status.code())
    }
}

/// The exit status and the error of a server that does not start. One that starts is ended.
fn refusal(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("timeout");
    let command = command.arg("10").arg(binary().get_program());
    let output = command.args(args).output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

impl EnvoyServer {
    /// A server with the rules of a file alone, which has `envoy-listen`.
    fn with_file(file: &ConfigText, args: &[&str]) -> EnvoyServer {
        let own = ["--config", &file.path];
        EnvoyServer::start_with(TempDir::new().unwrap(), &[&own, args].concat())
    }

    async fn answer(&self, entries: &[(&str, &str)]) -> RateLimitResponse {
        self.ask(request(entries)).await.unwrap()
    }

    /// A REST check: its answer, and the reported limit. There is none under a policy that denies nothing.
    async fn check(&self, query: &str) -> (Value, Option<u32>) {
        let answer = self.server.get(&format!("{CHECK}?{query}")).await;
        let limit = answer.header("x-ratelimit-limit");
        (answer.json(), limit.map(|limit| limit.parse().unwrap()))
    }
}

/// Policies whose answers REST and Envoy share.
const SHARED: &str = "envoy-listen = '127.0.0.1:0'
[policy]
log = 'sliding_window_log 5/d'
bucket = 'token_bucket 2/d burst 5'
leaky = 'leaky_bucket 1/d queue 4 police'
counter = 'sliding_window_counter 5/d'
several = 'fixed_window 6/d; token_bucket 4/d'
boxed = 'fixed_window 2/d; penalty_box 3/d for 1d'
address = 'fixed_window 9/d; fixed_window 4/d by remote_address'
everyone = 'fixed_window 9/d; fixed_window 14/d by global'

[policy.tiers]
limits = 'sliding_window_log 2/d'
tiers = { pro = 'sliding_window_log 5/d' }
tenants = { alice = 'pro', bob = 'pro' }

[policy.soft]
limits = 'fixed_window 4/d'
throttle = 'soft 50%'

[policy.elastic]
limits = 'fixed_window 4/d'
throttle = 'elastic 50% in_flight 200'

[policy.shadow]
limits = 'fixed_window 2/d'
shadow = true

[policy.unenforced]
limits = 'fixed_window 2/d'
enforced = 0

[policy.cost]
limits = 'fixed_window 9/d'
cost = 2
";

const SHARED_NAMES: [&str; 14] = [
    "log",
    "bucket",
    "leaky",
    "counter",
    "several",
    "boxed",
    "address",
    "everyone",
    "tiers",
    "soft",
    "elastic",
    "shadow",
    "unenforced",
    "cost",
];

/// A file with a rule for each of the policies, pinned by its name.
fn shared_file() -> ConfigText {
    let rules = SHARED_NAMES.map(|name| {
        format!(
            "[[envoy.rule]]\ndomain = 'edge'\nmatch = ['generic_key={name}', 'user', {}]\npolicy = '{name}'\n",
            if name == "address" { "'remote_address'" } else { "'site=a'" }
        )
    });
    ConfigText::new(&format!("{SHARED}\n{}", rules.concat()))
}

/// Asks Envoy's service and REST in turn about alice, and REST alone about bob: the answers are equal.
async fn assert_one_budget(envoy: &EnvoyServer) {
    for policy in SHARED_NAMES {
        let (last, keys) = match policy {
            "address" => (
                ("remote_address", "192.0.2.1"),
                "&keys.remote_address=192.0.2",
            ),
            _ => (("site", "a"), ""),
        };
        let mut outcomes = Vec::new();
        for number in 1..=7 {
            let suffix = |host: &str| match keys {
                "" => String::new(),
                keys => format!("{keys}.{host}"),
            };
            let (expected, limit) = envoy
                .check(&format!("policy={policy}&key=bob{}", suffix("2")))
                .await;
            let is_allowed = expected["allowed"].as_bool().unwrap();
            outcomes.push(is_allowed);
            let context = format!("{policy}, {number}: {expected}");
            if number % 2 == 0 {
                let query = format!("policy={policy}&key=alice{}", suffix("1"));
                let (answer, _) = envoy.check(&query).await;
                assert_eq!(answer["allowed"], is_allowed, "{context}, {answer}");
                if policy != "everyone" {
                    assert_eq!(answer["remaining"], expected["remaining"], "{context}");
                }
                continue;
            }
            let answer = envoy
                .answer(&[("generic_key", policy), ("user", "alice"), last])
                .await;
            let status = &answer.statuses[0];
            assert_eq!(answer.overall_code() == Code::Ok, is_allowed, "{context}");
            let reported = status.current_limit.as_ref().unwrap();
            if let Some(limit) = limit {
                assert_eq!(reported.requests_per_unit, limit, "{context}");
            }
            if is_allowed && policy != "everyone" {
                assert_eq!(status.limit_remaining, expected["remaining"], "{context}");
            }
        }
        let has_denied = outcomes.contains(&false);
        let never_denies = ["shadow", "unenforced", "everyone"].contains(&policy);
        assert_eq!(has_denied, !never_denies, "{policy}: {outcomes:?}");
    }
    // Alice and bob have spent the budget of all.
    let entries = [
        ("generic_key", "everyone"),
        ("user", "carol"),
        ("site", "a"),
    ];
    let answer = envoy.answer(&entries).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn a_rule_and_rest_spend_one_budget() {
    let file = shared_file();
    // The policies `bucket` and `several`, whose periods keep the clock of this test out of the counts.
    let warnings = [4, 7].map(|line| format!("{line}: warning[slow-bucket]"));
    assert_eq!(file.check(&[]), (warnings.to_vec(), Some(0)));

    assert_one_budget(&EnvoyServer::with_file(&file, &[])).await;
}

#[tokio::test]
async fn a_rule_and_rest_spend_one_budget_in_redis() {
    let redis = TestRedis::start().await;
    let file = shared_file();
    let args = [
        "--redis",
        redis.url(),
        "--redis-prefix",
        "native",
        "--time-budget",
        "10s",
    ];
    let envoy = EnvoyServer::with_file(&file, &args);
    until(async || {
        let (answer, _) = envoy.check("key=warm").await;
        answer.get("store").is_none().then_some(())
    })
    .await;

    assert_one_budget(&envoy).await;
}

#[tokio::test]
async fn limits_of_a_rule_have_all_of_a_policy() {
    let file = ConfigText::new(
        "envoy-listen = '127.0.0.1:0'
        [[envoy.rule]]
        domain = 'edge'
        match = ['generic_key=api', 'user', 'remote_address']
        limits = '10/d burst 4; sliding_window_log 1000/h; fixed_window 5/d by remote_address'
        throttle = 'soft 50%'
        tiers = { pro = 'fixed_window 3/d' }
        tenants = { acme = 'pro' }
        cost = 2
        name = 'per-user'",
    );
    let envoy = EnvoyServer::with_file(&file, &[]);
    let ask = async |user: &str, address: &str| {
        let entries = [
            ("generic_key", "api"),
            ("user", user),
            ("remote_address", address),
        ];
        let answer = envoy.answer(&entries).await;
        let limit = answer.statuses[0].current_limit.clone().unwrap();
        assert_eq!(limit.name, "per-user");
        // A bucket of 4 is not filled in a unit of time.
        let is_window = limit.requests_per_unit != 4;
        assert_eq!(limit.unit() == Unit::Day, is_window);
        assert_eq!(limit.unit() == Unit::Unknown, !is_window);
        (answer.overall_code() == Code::Ok, limit.requests_per_unit)
    };

    // The bucket of alice holds 4 and 2 more, whatever her address.
    assert_eq!(ask("alice", "192.0.2.1").await, (true, 4));
    assert_eq!(ask("alice", "192.0.2.2").await, (true, 4));
    assert_eq!(ask("alice", "192.0.2.3").await, (true, 4));
    assert_eq!(ask("alice", "192.0.2.4").await, (false, 4));
    // The address has 5 and 2 more.
    assert_eq!(ask("bob", "192.0.2.1").await, (true, 5));
    assert_eq!(ask("carol", "192.0.2.1").await, (true, 5));
    assert_eq!(ask("dave", "192.0.2.1").await, (false, 5));
    // The tier of acme has 3 and 1 more, at any address.
    assert_eq!(ask("acme", "192.0.2.1").await, (true, 3));
    assert_eq!(ask("acme", "192.0.2.1").await, (true, 3));
    assert_eq!(ask("acme", "192.0.2.1").await, (false, 3));
    // A descriptor of other entries has no rule.
    let other = envoy
        .answer(&[("generic_key", "api"), ("user", "alice")])
        .await;
    assert_eq!(other.overall_code(), Code::Ok);
}

#[tokio::test]
async fn on_failure_of_a_rule_decides_while_redis_is_down() {
    let rule = |user: &str, mode: &str| {
        format!(
            "[[envoy.rule]]\ndomain = 'edge'\nmatch = ['{user}']\nlimits = '1/d'\non_failure = '{mode}'\n"
        )
    };
    let text = rule("open", "open") + &rule("closed", "closed") + &rule("local", "local");
    let file = ConfigText::new(&format!("envoy-listen = '127.0.0.1:0'\n{text}"));
    let envoy = EnvoyServer::with_file(&file, &["--redis", "redis://127.0.0.1:1"]);

    for (mode, codes) in [
        ("open", [Code::Ok, Code::Ok]),
        ("closed", [Code::OverLimit, Code::OverLimit]),
        ("local", [Code::Ok, Code::OverLimit]),
    ] {
        for code in codes {
            let answer = envoy.answer(&[(mode, "a")]).await;
            assert_eq!(answer.overall_code(), code, "{mode}");
        }
    }
}

#[tokio::test]
async fn readings_are_recorded_beyond_the_limit_and_looks_charge_nothing() {
    let file = ConfigText::new(
        "envoy-listen = '127.0.0.1:0'\n\
         [[envoy.rule]]\ndomain = 'edge'\nmatch = ['user']\nlimits = 'sliding_window_log 100/d'\n",
    );
    let envoy = EnvoyServer::with_file(&file, &[]);
    let ask = async |addend: u64| {
        let mut asked = request(&[("user", "a")]);
        asked.descriptors[0].hits_addend = Some(addend);
        let answer = envoy.ask(asked).await.unwrap();
        (
            answer.overall_code() == Code::Ok,
            answer.statuses[0].limit_remaining,
        )
    };

    assert_eq!(ask(0).await, (true, 100));
    assert_eq!(ask(42).await, (true, 58));
    assert_eq!(ask(42).await, (true, 16));
    assert_eq!(ask(0).await, (true, 16));
    // 126 of 100 are recorded.
    assert_eq!(ask(42).await, (false, 0));
    assert_eq!(ask(0).await, (false, 0));
    let answer = envoy.answer(&[("user", "a")]).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
}

#[tokio::test]
async fn a_reload_applies_rules_and_named_policies_and_refuses_faulty_ones() {
    const RELOADS: &str = "rate_limiter_envoy_reloads_total";
    let text = |limit: u32, policy: &str| {
        format!(
            "envoy-listen = '127.0.0.1:0'\n[policy]\napi = 'fixed_window {limit}/d'\n\
             [[envoy.rule]]\ndomain = 'edge'\nmatch = ['user']\npolicy = '{policy}'\n"
        )
    };
    let file = ConfigText::new(&text(5, "api"));
    let envoy = EnvoyServer::with_file(&file, &[]);
    let limit = async || {
        let mut look = request(&[("user", "a")]);
        look.descriptors[0].hits_addend = Some(0);
        let status = envoy.ask(look).await.unwrap().statuses.remove(0);
        (
            status.current_limit.unwrap().requests_per_unit,
            status.limit_remaining,
        )
    };
    envoy.answer(&[("user", "a")]).await;
    assert_eq!(limit().await, (5, 4));

    file.write(&text(9, "api"));
    until(async || (limit().await == (9, 8)).then_some(())).await;
    until(async || (envoy.metric(RELOADS, r#"result="ok""#).await == 1).then_some(())).await;

    file.write(&text(9, "apu"));
    let rejected = "rate_limiter_policy_reloads_total";
    until(async || (envoy.metric(rejected, r#"result="rejected""#).await == 1).then_some(())).await;
    assert_eq!(limit().await, (9, 8));
    let log = envoy.server.log();
    assert!(
        log.contains("server.toml:7: error[unknown-policy]"),
        "{log}"
    );
}

#[tokio::test]
async fn a_domain_is_in_the_file_or_in_the_directory_unless_domains_are_merged() {
    let rule = "envoy-listen = '127.0.0.1:0'\n\
                [[envoy.rule]]\ndomain = 'edge'\nmatch = ['user']\nlimits = '1/d'\n";
    let file = ConfigText::new(rule);
    let rules = TempDir::new().unwrap();
    let yaml = "domain: edge\ndescriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 1 } }]\n";
    fs::write(rules.path().join("a.yaml"), yaml).unwrap();
    let args = ["--envoy-config", rules.path().to_str().unwrap()];

    let (found, status) = file.check(&args);
    assert_eq!(found, ["1: error[duplicate-name]"]);
    assert_eq!(status, Some(1));
    let start = [&["--config", &file.path], &args[..]].concat();
    assert_eq!(refusal(&start).0, Some(1));

    let args = [
        &args[..],
        &["--config", &file.path, "--envoy-merge-domains"],
    ]
    .concat();
    let envoy = EnvoyServer::start_with(TempDir::new().unwrap(), &args);
    for key in ["user", "path"] {
        for code in [Code::Ok, Code::OverLimit] {
            assert_eq!(envoy.answer(&[(key, "a")]).await.overall_code(), code);
        }
    }
}

/// Rules with one mistake each, and its code. The mistake is on the line that is marked.
const MISTAKES: &[(&str, &str)] = &[
    ("match = ['user'] <\nlimits = '1/s'", "missing-field"),
    ("domain = 'edge' <\nlimits = '1/s'", "missing-field"),
    ("domain = 'edge' <\nmatch = ['user']", "missing-field"),
    (
        "domain = '' <\nmatch = ['user']\nlimits = '1/s'",
        "bad-value",
    ),
    ("domain = 'edge'\nmatch = [] <\nlimits = '1/s'", "bad-value"),
    (
        "domain = 'edge'\nmatch = ['=a'] <\nlimits = '1/s'",
        "bad-value",
    ),
    (
        "domain = 'edge'\nmatch = ['user='] <\nlimits = '1/s'",
        "bad-value",
    ),
    (
        "domain = 'edge'\nmatch = ['us*'] <\nlimits = '1/s'",
        "bad-value",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\nlimits = '1/s'\nmatches = 1 <",
        "unknown-field",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\nlimits = '1/s'\nexempt = [] <",
        "unknown-field",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\nlimits = 'often' <",
        "bad-limit",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\nlimits = '1/s'\ncost = 'body' <",
        "bad-value",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'apu' <",
        "unknown-policy",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'api'\nlimits = '1/s' <",
        "conflicting-fields",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'api'\nshadow = true <",
        "conflicting-fields",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'shaped' <",
        "bad-limit",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'slots' <",
        "bad-limit",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'tiered' <",
        "bad-limit",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'by_site' <",
        "bad-limit",
    ),
    (
        "domain = 'edge'\nmatch = ['user', 'ip']\npolicy = 'by_ip' <",
        "bad-limit",
    ),
    (
        "domain = 'edge'\nmatch = ['site=a', 'site=b']\npolicy = 'by_site' <",
        "bad-limit",
    ),
    (
        "domain = 'edge' <\nmatch = ['twice']\nlimits = '1/s'",
        "duplicate-name",
    ),
];

/// As [`MISTAKES`], for warnings.
const WARNINGS: &[(&str, &str)] = &[
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'ruled' <",
        "ignored-field",
    ),
    (
        "domain = 'edge'\nmatch = ['user']\npolicy = 'fetched' <",
        "ignored-field",
    ),
    (
        "domain = 'edge'\nmatch = ['user', 'site']\npolicy = 'tenants' <",
        "unmatched-key",
    ),
];

const POLICIES: &str = "envoy-listen = '127.0.0.1:0'
[policy]
api = '1/s'
shaped = 'leaky_bucket 1/s'
slots = 'concurrency 5'
tiered = { limits = 'leaky_bucket 1/s police', tiers = { pro = 'leaky_bucket 2/s' } }
by_site = '1/s; 2/s by site'
by_ip = '1/s; 2/s by ip'
ruled = { limits = '1/s', exempt = ['key:alice'] }
fetched = { limits = '1000/s', prefetch = '5%' }
tenants = { limits = '1/s', tiers = { pro = '2/s' }, tenants = { acme = 'pro' } }
[[envoy.rule]]
domain = 'edge'
match = ['twice']
limits = '1/s'
";

#[test]
fn every_mistake_of_a_rule_has_a_code_and_a_line() {
    let cases = MISTAKES.iter().map(|case| (case, "error", Some(1)));
    let cases = cases.chain(WARNINGS.iter().map(|case| (case, "warning", Some(0))));
    for ((rule, code), severity, status) in cases {
        let text = format!("{POLICIES}[[envoy.rule]]\n{rule}\n");
        let marked = text.lines().position(|line| line.ends_with(" <")).unwrap();
        // Mistakes of a rule as a whole are on the line of its header.
        let is_header = matches!(*code, "missing-field" | "duplicate-name");
        let line = if is_header { marked } else { marked + 1 };
        let file = ConfigText::new(&text.replace(" <", ""));

        let found = file.check(&[]);

        let expected = vec![format!("{line}: {severity}[{code}]")];
        assert_eq!(found, (expected, status), "{rule}");
    }
}

#[test]
fn rules_without_effect_are_refused() {
    let rule = "[[envoy.rule]]\ndomain = 'edge'\nmatch = ['user']\n";
    let refused = |text: &str, expected: &str| {
        let file = ConfigText::new(text);
        let (status, error) = refusal(&["--config", &file.path]);
        assert_eq!(status, Some(1), "{error}");
        assert!(error.contains(expected), "{error}");
    };

    refused(
        &format!("{rule}limits = '1/s'\n"),
        "envoy.rule has no effect without envoy-listen",
    );
    let listen = "listen = '127.0.0.1:0'\nenvoy-listen = '127.0.0.1:0'\n";
    refused(
        &format!("{listen}envoy = {{}}\n"),
        "server.toml:3: error[missing-field]",
    );
    for part in [
        "calls of Envoy take slots of a concurrency limit and release none",
        "use a rate, and max_requests of Envoy's circuit_breakers",
    ] {
        refused(&format!("{listen}{rule}limits = 'concurrency 5'\n"), part);
    }
    // A log whose readings do not fit into the memory of a key.
    refused(
        &format!("{listen}memory-bytes = 100000\n{rule}limits = 'sliding_window_log 9000/h'\n"),
        "a key of policy rls:edge:user takes up to",
    );
}
