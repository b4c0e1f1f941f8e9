//! The policies of docs/guides/policies.md: each is read without a finding, and says what its text does.
#![cfg(all(feature = "toml", feature = "yaml"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ratelimit_core::{Algorithm, FailureMode, Key};
use ratelimit_http::policy::HttpPolicy;
use ratelimit_http::{
    policy::{BlockStatus, CostSource, RuleOutcome, RuleRequest, SettleSource},
    policy_file::{Format, PolicyFile},
};

const DOCS: &str = include_str!("../../../docs/guides/policies.md");

const GUIDES: [(&str, &str); 5] = [
    ("login", include_str!("../../../docs/guides/login.md")),
    ("api", include_str!("../../../docs/guides/tiers.md")),
    ("upload", include_str!("../../../docs/guides/uploads.md")),
    ("llm", include_str!("../../../docs/guides/llm-tokens.md")),
    (
        "sessions",
        include_str!("../../../docs/guides/websockets.md"),
    ),
];

/// The policies of each section.
fn sections() -> Vec<(&'static str, Vec<HttpPolicy>)> {
    let sections = DOCS.split("\n## ").skip(1);
    let sections = sections.filter(|section| !section.starts_with("How this page is tested"));
    let sections = sections.map(|section| {
        let (title, text) = section.split_once('\n').unwrap();
        let blocks = text.split("```").skip(1).step_by(2);
        (title, blocks.flat_map(read).collect())
    });
    sections.collect()
}

fn read(block: &str) -> Vec<HttpPolicy> {
    let (format, text) = block.split_once('\n').unwrap();
    let format = match format {
        "toml" => Format::Toml,
        "yaml" => Format::Yaml,
        other => panic!("{other} is no format of policy files"),
    };
    let file = PolicyFile::parse(text, format);
    assert_eq!(file.diagnostics, [], "{text}");
    file.accepted().unwrap()
}

#[test]
fn every_section_has_a_policy_that_is_read_without_a_finding() {
    let sections = sections();
    assert_eq!(sections.len(), 7);
    for (title, policies) in sections {
        assert_eq!(policies.len(), 1, "{title}");
    }
}

#[test]
fn a_guide_has_one_policy_with_the_same_limits_in_its_file_and_in_its_code() {
    for (name, guide) in GUIDES {
        let mut blocks = guide.split("```").skip(1).step_by(2);
        let file = blocks.clone().find(|block| block.starts_with("toml\n"));
        let file = file.unwrap();
        let policies = read(file);
        assert_eq!(policies.len(), 1, "{name}");
        assert_eq!(policies[0].name(), name);

        let (_, limits) = file.split_once("limits = ").unwrap();
        let (limits, _) = limits.split_once('\n').unwrap();
        let written = format!("parse(\"{name}\", {limits})");
        let in_code = blocks.any(|block| block.starts_with("rust") && block.contains(&written));
        assert!(in_code, "{written}");
    }
}

#[test]
fn the_other_limits_of_a_guide_are_limits() {
    let is_limit = |text: &&str| {
        let (first, rest) = text.split_once(['/', ' ']).unwrap_or((text, ""));
        let is_number = first.parse::<u64>().is_ok() && rest.starts_with(char::is_alphabetic);
        is_number || Algorithm::from_name(first).is_some() && !rest.is_empty()
    };
    let mut limits = 0;
    for (name, guide) in GUIDES {
        let (_, section) = guide.split_once("\n## Change it\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        for text in section.split('`').skip(1).step_by(2).filter(is_limit) {
            let policy = HttpPolicy::parse(name, text);
            assert!(policy.is_ok(), "{name}: {text}: {policy:?}");
            limits += 1;
        }
    }
    assert!(limits >= 8, "{limits}");
}

#[test]
fn the_policies_are_what_their_sections_say() {
    let policies: Vec<HttpPolicy> = sections().into_iter().flat_map(|(_, some)| some).collect();
    let policy = |name: &str| policies.iter().find(|one| one.name() == name).unwrap();

    let comment = policy("comment");
    let user = Key::tagged("user", "4711").unwrap();
    let headers: &[(&str, &str)] = &[];
    let blocked = comment.evaluate(&RuleRequest::new(&user, "/", headers));
    assert_eq!(blocked, RuleOutcome::Blocked(BlockStatus::TooManyRequests));
    let team = Key::tagged("user", "1").unwrap();
    let sessions = policy("sessions").policy();
    assert_eq!(sessions.for_key(&team), sessions.tier("team"));

    let login = policy("login");
    assert_eq!(
        login.policy().to_string(),
        "sliding_window_log 10/h; token_bucket 5/min by ip"
    );
    assert_eq!(login.policy().failure_mode(), Some(FailureMode::Closed));
    let statuses = login.charge_on().unwrap();
    assert!(statuses.contains(401) && !statuses.contains(200));
    let sign_up = policy("sign-up").policy().limits();
    assert_eq!(sign_up[2].algorithm(), Algorithm::PenaltyBox);
    assert_eq!(
        policy("comment").policy().throttle().to_string(),
        "soft 20%"
    );
    assert_eq!(policy("api").policy().tiers().count(), 2);
    assert_eq!(policy("api").policy().enforcement_percent(), 100);
    assert_eq!(policy("upload").cost_source(), &CostSource::ContentLength);
    let settled_by = SettleSource::Header("x-used-tokens".to_owned());
    assert_eq!(policy("llm").settle_source(), Some(&settled_by));
    for name in ["upload", "llm", "sessions"] {
        assert!(policy(name).policy().has_concurrency_limit(), "{name}");
    }
}
