//! Policy files through their public face: both formats, all findings, and input of any kind.
#![cfg(all(feature = "toml", feature = "yaml"))]

use std::{fs, time::Instant};

use proptest::prelude::*;
use ratelimit_core::{Algorithm, FailureMode, Key, LoadSignal, Policy, Throttle};
use ratelimit_http::policy::HttpPolicy;
use ratelimit_http::{
    policy::{BlockStatus, CostSource, RuleOutcome, RuleRequest, SettleSource},
    policy_file::{DiagnosticCode as Code, Format, PolicyFile},
    registry::{Registry, ReloadError},
};

const TOML: &str = r#"# Policies of a shop.
[policy]
comment = "10/min; fixed_window 100/d"
search = { limits = "100/s", on_failure = "local_share", instances = 4 }

[policy.login]
limits = "5/min; fixed_window 20/h"
on_failure = "closed"
cost = 2

[policy.api]
limits = "10/min; 100/30min"
throttle = "soft 10%"
enforced = 25
exempt = ["10.0.0.0/8", "key:batch", "path:/internal/*", "header:x-load-test=yes"]
blocked = ["203.0.113.0/24", "10.6.6.6"]
blocked_status = 429

[policy.api.tiers]
pro = "1000/min"
free = "1/min"

[policy.api.tenants]
acme = "pro"
"user:1" = "free"

[policy.llm]
limits = "1000/min; concurrency 5 lease 30s"
cost = "header:x-tokens"
settle = "header:x-tokens-used"
shadow = true
charge_on = [200, "5xx"]
"#;

const YAML: &str = r#"# Policies of a shop.
policy:
  comment: 10/min; fixed_window 100/d
  search: { limits: "100/s", on_failure: local_share, instances: 4 }
  login:
    limits: >-
      5/min;
      fixed_window 20/h
    on_failure: closed
    cost: 2
  api:
    limits: 10/min; 100/30min
    throttle: soft 10%
    enforced: 25
    exempt: [10.0.0.0/8, key:batch, path:/internal/*, header:x-load-test=yes]
    blocked:
      - 203.0.113.0/24
      - 10.6.6.6
    blocked_status: 429
    tiers: { pro: 1000/min, free: 1/min }
    tenants:
      acme: pro
      user:1: free
  llm:
    limits: 1000/min; concurrency 5 lease 30s
    cost: header:x-tokens
    settle: header:x-tokens-used
    shadow: true
    charge_on: [200, 5xx]
"#;

fn found(text: &str, format: Format) -> Vec<(Code, usize)> {
    let findings = PolicyFile::parse(text, format).diagnostics;
    findings.iter().map(|one| (one.code, one.line)).collect()
}

fn policy<'a>(file: &'a PolicyFile, name: &str) -> &'a HttpPolicy {
    let mut policies = file.policies.iter();
    policies
        .find(|policy| policy.name() == name)
        .expect("the file has it")
}

#[test]
fn both_formats_mean_the_same() {
    let from_toml = PolicyFile::parse(TOML, Format::Toml);
    let from_yaml = PolicyFile::parse(YAML, Format::Yaml);

    assert_eq!(from_toml.diagnostics, []);
    assert_eq!(from_yaml.diagnostics, []);
    assert_eq!(from_toml.policies, from_yaml.policies);
    let login = policy(&from_yaml, "login");
    assert_eq!(
        login.policy().to_string(),
        "token_bucket 5/min; fixed_window 20/h"
    );
    assert_eq!(login.policy().failure_mode(), Some(FailureMode::Closed));
    assert_eq!(login.policy().cost().get(), 2);
}

#[test]
fn every_field_sets_its_property() {
    let file = PolicyFile::parse(TOML, Format::Toml);
    let (api, llm) = (policy(&file, "api"), policy(&file, "llm"));
    let rule = |text: &str| text.parse().unwrap();
    let key = |text: &str| Key::new(text).unwrap();

    let built = HttpPolicy::parse("api", "10/min; 100/30min").unwrap();
    let built = built.with_tier("pro", "1000/min").unwrap();
    let built = built.with_tier("free", "1/min").unwrap();
    let built = built.with_throttle(Throttle::Soft { percent: 10 }).unwrap();
    let built = built
        .with_exempt_rule(rule("10.0.0.0/8"))
        .with_exempt_rule(rule("key:batch"))
        .with_exempt_rule(rule("path:/internal/*"))
        .with_exempt_rule(rule("header:x-load-test=yes"))
        .with_block_rule(rule("203.0.113.0/24"))
        .with_block_rule(rule("10.6.6.6"))
        .with_block_status(BlockStatus::TooManyRequests)
        .with_tier_members([(key("acme"), "pro"), (key("user:1"), "free")]);
    assert_eq!(*api, built.with_enforcement(25).unwrap());

    assert_eq!(
        llm.cost_source(),
        &CostSource::Header("x-tokens".to_owned())
    );
    let settled = SettleSource::Header("x-tokens-used".to_owned());
    assert_eq!(llm.settle_source(), Some(&settled));
    assert_eq!(llm.policy().enforcement_percent(), 0);
    assert_eq!(llm.charge_on(), Some(&"200, 5xx".parse().unwrap()));
    assert!(llm.needs_reservation() && !api.needs_reservation());

    let headers: &[(&str, &str)] = &[];
    let acme = key("acme");
    let at = |addr: &str| RuleRequest::new(&acme, "/", headers).address(addr.parse().unwrap());
    assert_eq!(api.evaluate(&at("10.1.1.1")), RuleOutcome::Exempt);
    assert_eq!(
        api.evaluate(&at("10.6.6.6")),
        RuleOutcome::Blocked(BlockStatus::TooManyRequests)
    );
    assert_eq!(api.evaluate(&at("192.0.2.1")), RuleOutcome::Limited);
}

#[test]
fn mistakes_of_every_field_are_found_in_both_formats() {
    for (toml, yaml, code) in [
        ("cost = 'bytes'", "cost: bytes", Code::BadValue),
        ("cost = 'header:a b'", "cost: 'header:a b'", Code::BadValue),
        ("cost = true", "cost: true", Code::WrongType),
        ("throttle = 'soft'", "throttle: soft", Code::BadThrottle),
        (
            "throttle = 'soft 10001%'",
            "throttle: soft 10001%",
            Code::BadThrottle,
        ),
        ("throttle = 10", "throttle: 10", Code::WrongType),
        ("shadow = 1", "shadow: 1", Code::WrongType),
        ("enforced = 101", "enforced: 101", Code::BadValue),
        ("enforced = -1", "enforced: -1", Code::BadValue),
        ("tiers = ['5/s']", "tiers: [5/s]", Code::WrongType),
        ("tiers = { a = 'x' }", "tiers: { a: x }", Code::BadLimit),
        (
            "tiers = { a = '1/s;1/s' }",
            "tiers: { a: 1/s;1/s }",
            Code::RepeatedLimit,
        ),
        (
            "tiers = { a = 'penalty_box 5/min for 1h' }",
            "tiers: { a: penalty_box 5/min for 1h }",
            Code::BadLimit,
        ),
        (
            "tenants = { a = 'b' }",
            "tenants: { a: b }",
            Code::UnknownTier,
        ),
        ("tenants = { a = 5 }", "tenants: { a: 5 }", Code::WrongType),
        (
            "tiers = { a = '5/s', a = '6/s' }",
            "tiers: { a: 5/s, a: 6/s }",
            Code::DuplicateName,
        ),
        ("exempt = 'key:a'", "exempt: key:a", Code::WrongType),
        ("exempt = ['a']", "exempt: [a]", Code::BadRule),
        ("exempt = [5]", "exempt: [5]", Code::WrongType),
        (
            "blocked = ['0.0.0.0/0']",
            "blocked: [0.0.0.0/0]",
            Code::BadRule,
        ),
        (
            "blocked = ['key:a', 'key:a']",
            "blocked: [key:a, key:a]",
            Code::OverlappingRule,
        ),
        (
            "blocked_status = 429",
            "blocked_status: 429",
            Code::IgnoredField,
        ),
        ("charge_on = 401", "charge_on: 401", Code::WrongType),
        ("charge_on = []", "charge_on: []", Code::BadValue),
        ("charge_on = [99]", "charge_on: [99]", Code::BadValue),
        ("charge_on = [-401]", "charge_on: [-401]", Code::BadValue),
        ("charge_on = [true]", "charge_on: [true]", Code::WrongType),
        ("charge_on = ['all']", "charge_on: [all]", Code::BadValue),
        ("settle = 'body'", "settle: body", Code::BadValue),
        ("settle = 5", "settle: 5", Code::WrongType),
    ] {
        let toml = format!("[policy.a]\nlimits = '5/s'\n{toml}\n");
        let yaml = format!("policy:\n  a:\n    limits: 5/s\n    {yaml}\n");
        assert_eq!(found(&toml, Format::Toml), [(code, 3)], "{toml}");
        assert_eq!(found(&yaml, Format::Yaml), [(code, 4)], "{yaml}");
    }
}

#[test]
fn fields_are_compared_with_each_other() {
    for (fields, findings) in [
        (
            "shadow = true\nenforced = 10",
            &[(Code::ConflictingFields, 4)][..],
        ),
        ("shadow = false\nenforced = 10", &[]),
        (
            "blocked = ['key:a']\nblocked_status = 404",
            &[(Code::BadValue, 4)],
        ),
        (
            "cost = 5\ntiers = { a = '3/s' }",
            &[(Code::ImpossibleCost, 3)],
        ),
        ("exempt = ['10.0.0.0/8']\nblocked = ['10.1.2.3']", &[]),
        (
            "exempt = ['10.1.2.3']\nblocked = ['10.0.0.0/8']",
            &[(Code::OverlappingRule, 3)],
        ),
        (
            "exempt = ['key:a']\nblocked = ['key:a']",
            &[(Code::OverlappingRule, 3)],
        ),
        (
            "exempt = ['path:/a/b',\n'path:/a/*']",
            &[(Code::OverlappingRule, 3)],
        ),
        (
            "exempt = ['header:x',\n'header:X=1']",
            &[(Code::OverlappingRule, 4)],
        ),
    ] {
        let toml = format!("[policy.a]\nlimits = '5/s'\n{fields}\n");
        assert_eq!(found(&toml, Format::Toml), findings, "{fields}");
    }
    let slots =
        "[policy.a]\nlimits = 'concurrency 5 lease 30s'\ncost = 2\nsettle = 'response-bytes'\n";
    let ignored = [(Code::IgnoredField, 3), (Code::IgnoredField, 4)];
    assert_eq!(found(slots, Format::Toml), ignored);
    let counted = format!("{slots}tiers = {{ pro = 'concurrency 9 lease 30s; 100/s' }}\n");
    assert_eq!(found(&counted, Format::Toml), []);
}

#[test]
fn an_elastic_policy_that_is_read_again_has_a_signal_that_works() {
    let text = "policy: { a: { limits: 5/s, throttle: elastic 50% in_flight 2 } }";
    let registry = Registry::from_yaml(text).unwrap();
    let signal = || {
        registry
            .get("a")
            .unwrap()
            .policy()
            .throttle()
            .signal()
            .cloned()
    };
    let before: LoadSignal = signal().unwrap();
    let of_before = [before.enter(), before.enter()];

    registry.reload_yaml(text).unwrap();

    let after = signal().unwrap();
    assert_ne!(after, before);
    assert!(after.has_capacity() && !before.has_capacity());
    let of_after = [after.enter(), after.enter()];
    assert!(!after.has_capacity());
    drop((of_before, of_after));
    assert!(after.has_capacity() && before.has_capacity());
}

#[test]
fn a_list_of_names_and_limits_is_a_table() {
    let list = PolicyFile::parse(
        "policy = ['a=5/min', ' b = 6/min; fixed_window 7/d']",
        Format::Toml,
    );

    assert_eq!(list.diagnostics, []);
    assert_eq!(policy(&list, "b").policy().limits().len(), 2);
}

#[test]
fn all_mistakes_are_found_in_the_order_of_their_lines() {
    let toml =
        "[policy]\na = '5/fortnight'\nb = 7\nc = { limit = '5/s' }\n\n'd e' = '5/s'\n[polcy]\n";
    let yaml = "policy:\n  a: 5/fortnight\n  b: 7\n  c: { limit: 5/s }\n\n  d e: 5/s\npolcy: {}\n";

    for (text, format) in [(toml, Format::Toml), (yaml, Format::Yaml)] {
        assert_eq!(
            found(text, format),
            [
                (Code::BadLimit, 2),
                (Code::WrongType, 3),
                (Code::UnknownField, 4),
                (Code::MissingField, 4),
                (Code::BadName, 6),
                (Code::UnknownField, 7),
            ],
            "{format:?}"
        );
    }
}

#[test]
fn a_duplicate_is_found_in_both_formats_and_both_kinds_of_tables() {
    let toml = "[policy]\na = '5/s'\na = '6/s'\n[policy.b]\nlimits = '5/s'\nlimits = '6/s'\n";
    let yaml = "policy:\n  a: 5/s\n  a: 6/s\n  b:\n    limits: 5/s\n    limits: 6/s\n";
    let twice = [(Code::DuplicateName, 3), (Code::DuplicateName, 6)];

    assert_eq!(found(toml, Format::Toml), twice);
    assert_eq!(found(yaml, Format::Yaml), twice);
    assert_eq!(
        found("policy = ['a=5/s',\n'a=6/s']", Format::Toml),
        [(Code::DuplicateName, 2)]
    );
}

#[test]
fn an_unknown_field_suggests_the_nearest_one() {
    let file = PolicyFile::parse(
        "[policy.a]\nlimits = '5/s'\non-failure = 'open'\ncolour = 3\n",
        Format::Toml,
    );

    let told: Vec<_> = file.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "line 3: error[unknown-field]: unknown field \"on-failure\": did you mean on_failure?",
            "line 4: error[unknown-field]: unknown field \"colour\": expected one of limits, \
             on_failure, instances, cost, throttle, shadow, enforced, prefetch, tiers, tenants, exempt, blocked, \
             blocked_status, charge_on, settle",
        ]
    );
}

#[test]
fn values_of_yaml_are_those_of_its_core_schema() {
    for (value, code) in [
        ("0x2", None),
        ("+2", None),
        ("\"2\"", Some(Code::BadValue)),
        ("body", None),
        ("2.0", Some(Code::WrongType)),
        ("2e0", Some(Code::WrongType)),
        ("~", Some(Code::WrongType)),
        ("true", Some(Code::WrongType)),
        ("0", Some(Code::BadValue)),
        ("-1", Some(Code::BadValue)),
        ("3", Some(Code::ImpossibleCost)),
        ("99999999999999999999", Some(Code::WrongType)),
        ("--2", Some(Code::BadValue)),
    ] {
        let text = format!("policy:\n  a:\n    limits: 2/s\n    cost: {value}\n");
        let expected: Vec<_> = code.map(|code| (code, 4)).into_iter().collect();
        assert_eq!(found(&text, Format::Yaml), expected, "{value}");
    }
}

#[test]
fn a_registry_keeps_its_policies_when_a_file_is_rejected() {
    let registry = Registry::from_yaml("policy: { login: 5/min }").unwrap();

    let refused = registry
        .reload_toml("[policy]\nlogin = 'many'")
        .unwrap_err();
    let ReloadError::Invalid(refused) = refused else {
        panic!("the file has a mistake")
    };
    assert_eq!(refused.diagnostics()[0].code, Code::BadLimit);
    assert!(
        refused
            .to_string()
            .starts_with("line 2: error[bad-limit]: expected")
    );
    registry
        .reload_yaml("policy: { login: 5/min, login: 6/min }")
        .unwrap_err();
    registry.reload_yaml("").unwrap_err();
    assert_eq!(
        registry.get("login").unwrap().to_string(),
        "token_bucket 5/min"
    );

    registry.reload_yaml("policy: {}").unwrap();
    assert!(registry.names().is_empty());
}

#[test]
fn a_file_is_read_by_its_ending() {
    let dir = std::env::temp_dir().join(format!("policy-file-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let codes = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        fs::write(&path, bytes).unwrap();
        let findings = PolicyFile::read(&path).unwrap().diagnostics;
        findings
            .iter()
            .map(|one| (one.code, one.line))
            .collect::<Vec<_>>()
    };

    assert_eq!(codes("a.toml", TOML.as_bytes()), []);
    assert_eq!(codes("a.yaml", YAML.as_bytes()), []);
    assert_eq!(codes("a.yml", YAML.as_bytes()), []);
    assert_eq!(codes("a.json", b"{}"), [(Code::UnknownFormat, 1)]);
    assert_eq!(codes("a.toml", b"a = 1\n# \xff"), [(Code::NotText, 2)]);
    assert_eq!(
        codes("a.toml", &vec![b'#'; (1 << 20) + 1]),
        [(Code::TooLarge, 1)]
    );
    assert_eq!(
        codes("a.yaml", &vec![0xC3; (1 << 20) + 9]),
        [(Code::TooLarge, 1)]
    );
    fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_hostile_file_is_rejected_quickly() {
    let many = 200_000;
    let billion_laughs = "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n".to_owned();
    let begun = Instant::now();
    for (text, format, code) in [
        (
            format!("a = {}", "[".repeat(many)),
            Format::Toml,
            Code::TooDeep,
        ),
        (
            format!("a = {}", "{a=".repeat(many)),
            Format::Toml,
            Code::TooDeep,
        ),
        (
            format!("{}a = 1", "a.".repeat(many)),
            Format::Toml,
            Code::TooDeep,
        ),
        (
            format!("[{}a]", "a.".repeat(many)),
            Format::Toml,
            Code::TooDeep,
        ),
        (
            format!("a = {}{}", "[".repeat(17), "]".repeat(17)),
            Format::Toml,
            Code::TooDeep,
        ),
        (
            format!("a: {}", "[".repeat(17)),
            Format::Yaml,
            Code::TooDeep,
        ),
        ("- ".repeat(many), Format::Yaml, Code::TooDeep),
        ("? ".repeat(many), Format::Yaml, Code::UnsupportedYaml),
        (billion_laughs, Format::Yaml, Code::UnsupportedYaml),
        ("a: !!str 5".to_owned(), Format::Yaml, Code::UnsupportedYaml),
        (
            "a: 1\n---\nb: 2".to_owned(),
            Format::Yaml,
            Code::UnsupportedYaml,
        ),
        ("#".repeat((1 << 20) + 1), Format::Yaml, Code::TooLarge),
    ] {
        let codes: Vec<_> = found(&text, format).iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, [code], "{}", &text[..text.len().min(40)]);
    }
    // Far more than needed, and far less than what grows with the square of the length.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// The time to parse a text, of the fastest of three runs.
fn parse_time(text: &str) -> std::time::Duration {
    let runs = (0..3).map(|_| {
        let begun = Instant::now();
        let file = PolicyFile::parse(text, Format::Toml);
        let time = begun.elapsed();
        assert!(!file.diagnostics.is_empty() || !file.policies.is_empty());
        time
    });
    runs.min().expect("three runs")
}

fn rows(count: usize, row: fn(usize) -> String) -> String {
    (0..count).map(row).collect()
}

/// Eight times the length takes about eight times as long. With work that grows with the square it is 64 times.
#[test]
fn the_time_to_read_a_file_grows_with_its_length_and_not_with_the_square() {
    type Text = fn(usize) -> String;
    let texts: [(&str, Text); 5] = [
        ("tiers", |count| {
            let tiers = rows(count, |n| format!("t{n} = '{}/min; 5/s'\n", n + 10));
            format!("[policy.api]\nlimits = '10/min'\n[policy.api.tiers]\n{tiers}")
        }),
        ("tenants", |count| {
            let tiers = rows(count, |n| format!("t{n} = '10/min'\n"));
            let tenants = rows(count, |n| format!("c{n} = 't{n}'\n"));
            format!(
                "[policy.api]\nlimits = '10/min'\n[policy.api.tiers]\n{tiers}[policy.api.tenants]\n{tenants}"
            )
        }),
        ("tenants of no tier", |count| {
            let tenants = rows(count, |n| format!("c{n} = 'none'\n"));
            format!(
                "[policy.api]\nlimits = '10/min'\ntiers = {{ a = '5/s' }}\n[policy.api.tenants]\n{tenants}"
            )
        }),
        ("policies", |count| {
            let policies = rows(count, |n| format!("p{n} = '10/min'\n"));
            format!("[policy]\n{policies}")
        }),
        ("unknown fields", |count| {
            let fields = rows(count, |n| format!("f{n} = 1\n"));
            format!("[policy.api]\nlimits = '10/min'\n{fields}")
        }),
    ];
    for (what, text) in texts {
        let (few, many) = (parse_time(&text(400)), parse_time(&text(3_200)));
        assert!(many < 24 * few, "{what}: {few:?} and {many:?}");
    }
}

/// Cuts, repeats and inserts that leave much of a file as it was.
#[derive(Clone, Debug)]
enum Change {
    Cut(usize, usize),
    Repeat(usize, usize),
    Insert(usize, &'static str),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let pieces = vec![
        "\n",
        "  ",
        "\t",
        "=",
        ":",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "'",
        "\"",
        "#",
        "&a ",
        "*a",
        "!!str ",
        "|\n",
        ">-\n",
        "---\n",
        "? ",
        "0",
        "-1",
        "1e9",
        "true",
        "~",
        "policy",
        "limits",
        "cost",
        "tiers",
        "exempt",
        "key:",
        "/*",
        "soft 10%",
        "5xx",
        "5/min",
        "; ",
        ".",
        "é",
        "\u{feff}",
        "\0",
        "\r",
        "\u{2028}",
        "18446744073709551615",
    ];
    let change = prop_oneof![
        (0..1200_usize, 0..20_usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (0..1200_usize, 0..40_usize).prop_map(|(at, length)| Change::Repeat(at, length)),
        (0..1200_usize, prop::sample::select(pieces))
            .prop_map(|(at, piece)| Change::Insert(at, piece)),
    ];
    prop::collection::vec(change, 1..6)
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for change in changes {
        let span = |at: usize, length: usize| {
            let from = at.min(letters.len());
            from..(from + length).min(letters.len())
        };
        match *change {
            Change::Cut(at, length) => drop(letters.drain(span(at, length))),
            Change::Repeat(at, length) => {
                let span = span(at, length);
                let copy = letters[span.clone()].to_vec();
                letters.splice(span.end..span.end, copy);
            }
            Change::Insert(at, piece) => {
                let at = span(at, 0).start;
                letters.splice(at..at, piece.chars());
            }
        }
    }
    letters.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn no_text_panics_and_what_is_accepted_renders(changes in changes()) {
        for (text, format) in [(TOML, Format::Toml), (YAML, Format::Yaml)] {
            let text = changed(text, &changes);
            let lines = text.matches(['\n', '\r']).count() + 1;
            let file = PolicyFile::parse(&text, format);
            for finding in &file.diagnostics {
                prop_assert!((1..=lines).contains(&finding.line), "{finding}");
                prop_assert!(!finding.message.contains('\n'), "{finding}");
            }
            let Ok(policies) = file.accepted() else { continue };
            for policy in policies {
                let again = Policy::parse(policy.name(), &policy.to_string()).unwrap();
                prop_assert_eq!(again.limits(), policy.policy().limits());
                let pays = |policy: &Policy| {
                    let cost = policy.cost().get();
                    let slots = [Algorithm::Concurrency, Algorithm::PenaltyBox];
                    let mut limits = policy.limits().iter();
                    limits.all(|limit| slots.contains(&limit.algorithm()) || limit.capacity() >= cost)
                };
                prop_assert!(pays(policy.policy()) && policy.policy().tiers().all(|(_, tier)| pays(tier)));
            }
        }
    }
}

#[test]
fn a_tier_with_another_algorithm_at_a_position_is_found() {
    let found = |limits: &str, tiers: &str| {
        let text = format!("[policy.api]\nlimits = '{limits}'\ntiers = {{ {tiers} }}\n");
        found(&text, Format::Toml)
    };
    let warning = [(Code::TierAlgorithms, 3)];

    assert_eq!(found("10/min", "pro = 'fixed_window 1000/min'"), warning);
    assert_eq!(found("10/min", "pro = '1000/min; fixed_window 9000/h'"), []);
    assert_eq!(
        found(
            "10/min",
            "a = '50/min; 90/30min', b = '50/min; fixed_window 90/h'"
        ),
        warning,
        "tiers are compared with each other as well"
    );
    assert_eq!(
        found(
            "10/min; fixed_window 9/h by ip",
            "pro = 'fixed_window 90/h by ip; 100/min'"
        ),
        [],
        "positions count within a key"
    );
    assert_eq!(
        found(
            "10/min; fixed_window 9/h by ip",
            "pro = '100/min; 90/30min by ip'"
        ),
        warning
    );
}

#[test]
fn no_message_shows_a_secret() {
    let toml = "[policy.api]\nlimits = '10/min'\ntiers = { pro = '20/min' }\n\
        blocked = ['secret:api-key:s3cr3t', 'secret:api-key:s3cr3t', 'secret:s3cr3t']\n\
        exempt = ['secret:api-key:s3cr3t']\n\
        [policy.api.tenants]\n'secret:s3cr3t' = 'pro'\n'secret:cookie:a:s3cr3t' = 'por'\n";
    let twice = "\"secret:cookie:a:s3cr3t\" = 'pro'\n";
    let yaml = "policy: { api: { limits: 10/min, tiers: { pro: 20/min },\n\
        tenants: { 'secret:cookie:a:s3cr3t': pro,\n 'secret:cookie:a:s3cr3t': pro } } }\n";

    for (text, format, count) in [
        (toml.to_owned(), Format::Toml, 5),
        (format!("{toml}{twice}"), Format::Toml, 6),
        (yaml.to_owned(), Format::Yaml, 1),
    ] {
        let file = PolicyFile::parse(&text, format);

        assert_eq!(file.diagnostics.len(), count, "{:?}", file.diagnostics);
        assert!(!format!("{file:?}").contains("s3cr3t"), "{file:?}");
    }
}

#[test]
fn two_texts_of_one_tenant_are_a_duplicate() {
    let text = "[policy.api]\nlimits = '10/min'\ntiers = { pro = '20/min' }\n\
        tenants = { acme = 'pro', 'key:acme' = 'pro', 'printed:key:acme' = 'pro' }\n";

    let file = PolicyFile::parse(text, Format::Toml);

    let codes: Vec<Code> = file.diagnostics.iter().map(|one| one.code).collect();
    assert_eq!(codes, [Code::DuplicateName, Code::DuplicateName]);
}
