//! Policies of a configuration file in `simulate`.

use std::{fs, process::Output};

use tempfile::TempDir;

use super::{lines, simulate};

const FILE: &str = r#"
[policy.api]
limits = "fixed_window 10/min"
cost = 3
throttle = "soft 50%"
tiers = { pro = "fixed_window 100/min" }
tenants = { acme = "pro" }

[policy.strict]
limits = "fixed_window 1/min"
shadow = true
exempt = ["10.0.0.0/8"]
prefetch = "5%"

[policy.named]
limits = "fixed_window 1/min; 9/min by tenant"

[policy.loaded]
limits = "5/min"
throttle = "elastic 50% in_flight 100"
"#;

fn run(policies: &[&str], more: &[&str], trace: &str) -> Output {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("server.toml");
    fs::write(&path, FILE).unwrap();
    let mut args = vec!["--config", path.to_str().unwrap()];
    for policy in policies {
        args.extend(["--policy", policy]);
    }
    simulate(&[&args, more].concat(), trace)
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_policy_of_a_file_has_its_cost_throttle_and_tiers() {
    let hits = |key: &str| format!("{{\"t\":0,\"key\":\"{key}\"}}\n").repeat(6);
    let dear = "{\"t\":0,\"key\":\"dear\",\"cost\":12}\n";
    let trace = [&*hits("bob"), &hits("acme"), dear].concat();

    let output = run(&["api"], &[], &trace);

    let answers = lines(&output);
    let told = answers.iter().map(|line| {
        let over = line.get("over").is_some();
        (line["allowed"] == true, over, line["cost"].as_u64())
    });
    let told: Vec<_> = told.collect();
    // Ten units and five more, three for each hit.
    let bob = [
        (true, false, Some(3)),
        (true, false, Some(3)),
        (true, false, Some(3)),
        (true, true, Some(3)),
        (true, true, Some(3)),
        (false, false, Some(3)),
    ];
    assert_eq!(told[..6], bob);
    assert!(told[6..12].iter().all(|hit| *hit == (true, false, Some(3))));
    assert_eq!(answers[6]["limit"], 100);
    assert_eq!(told[12], (true, true, Some(12)));
    let summary = errors(&output);
    assert!(
        summary.contains("\napi: 13 hits (48 units) of 3 keys"),
        "{summary}"
    );
}

#[test]
fn settings_that_are_not_simulated_are_noted() {
    let output = run(&["api", "strict"], &[], "{\"t\":0}\n{\"t\":0}\n");

    let notes = errors(&output);
    for note in [
        "note: policy strict: exempt and blocked are not simulated",
        "note: policy strict: every denial is shown",
        "note: policy strict: prefetch is simulated with --prefetch 5% only",
        "strict: 2 hits of 1 key",
    ] {
        assert!(notes.contains(note), "{note}: {notes}");
    }
    let named = errors(&run(&["named"], &[], "{\"t\":0}\n"));
    let note = "note: policy named: a limit by tenant is not simulated";
    assert!(named.contains(note), "{named}");
    let policies: Vec<_> = lines(&output)
        .into_iter()
        .map(|line| line["policy"].clone())
        .collect();
    assert_eq!(policies, ["api", "api", "strict", "strict"]);
}

#[test]
fn a_policy_that_cannot_be_simulated_is_an_error() {
    let trace = "{\"t\":0}\n";

    let unknown = run(&["apu"], &[], trace);
    let elastic = run(&["loaded"], &[], trace);

    assert_eq!(unknown.status.code(), Some(1));
    let why = errors(&unknown);
    assert!(
        why.contains("there is no policy apu; there are api, "),
        "{why}"
    );
    assert_eq!(elastic.status.code(), Some(1));
    let why = errors(&elastic);
    assert!(why.contains("policy loaded: an elastic throttle"), "{why}");
}

#[test]
fn limits_beside_a_file_are_an_error() {
    for more in [&["--limit", "1/s"][..], &["--throttle", "hard"]] {
        assert_eq!(run(&["api"], more, "").status.code(), Some(2), "{more:?}");
    }
    assert_eq!(run(&[], &[], "").status.code(), Some(2));
    assert_eq!(simulate(&["--policy", "api"], "").status.code(), Some(2));
}
