//! Files of rules: mistakes, YAML 1.1, and directories.

use std::{fs, os::unix::fs::symlink};

use ratelimit_envoy::{DirectoryOptions, RulesBuilder, load_directory};
use tempfile::TempDir;

use crate::descriptors::{Service, request};

/// The diagnostics of a text, as `LINE code`.
fn findings(yaml: &str) -> Vec<String> {
    let found = RulesBuilder::new().add_yaml(yaml);
    let shown = found
        .iter()
        .map(|finding| format!("{} {}", finding.line, finding.code));
    shown.collect()
}

#[test]
fn every_mistake_is_found_on_its_line() {
    let limit =
        |fields: &str| format!("domain: a\ndescriptors:\n- key: k\n  rate_limit:\n    {fields}\n");
    for (yaml, expected) in [
        (String::new(), "1 empty-file"),
        ("# nothing\n".into(), "1 empty-file"),
        ("descriptors: []\n".into(), "1 missing-field"),
        ("domain: ''\n".into(), "1 missing-field"),
        (
            "domain: a\ndescriptors:\n- value: v\n".into(),
            "3 missing-field",
        ),
        (
            "domain: a\ndescriptors:\n- key: k\n- key: k\n".into(),
            "4 duplicate-name",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, value: v}\n- {key: k, value: v}\n".into(),
            "4 duplicate-name",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, value: v*}\n- {key: k, value: v*}\n".into(),
            "4 duplicate-name",
        ),
        (
            "domain: a\ndescriptors:\n- key: k\n  ratelimit: {}\n".into(),
            "4 unknown-field",
        ),
        ("domain: a\ndescriptors:\n- k\n".into(), "3 wrong-type"),
        ("domain: a\ndescriptors: k\n".into(), "2 wrong-type"),
        ("- domain: a\n".into(), "1 wrong-type"),
        (
            "domain: a\ndescriptors:\n- key: k\n  value: 1.5\n".into(),
            "4 wrong-type",
        ),
        (
            "domain: a\ndescriptors:\n- key: k\n  shadow_mode: maybe\n".into(),
            "4 wrong-type",
        ),
        ("domain: a\n  descriptors: {\n".into(), "2 syntax"),
        ("domain: a\ndescriptors: *unknown\n".into(), "2 syntax"),
        ("domain: !!str a\n".into(), "1 unsupported-yaml"),
        (limit("requests_per_unit: 5"), "5 missing-field"),
        (limit("unit: fortnight"), "5 bad-value"),
        (
            limit("{unit: year, requests_per_unit: 4294967295}"),
            "5 bad-limit",
        ),
        (limit("unit: unknown"), "5 bad-value"),
        (
            limit("{unit: day, unlimited: true}"),
            "5 conflicting-fields",
        ),
        (limit("{unit: day, requests_per_unit: -1}"), "5 wrong-type"),
        (
            limit("{unit: day, requests_per_unit: 4294967296}"),
            "5 wrong-type",
        ),
        (
            limit("{unit: day, name: n, replaces: [{name: n}]}"),
            "5 conflicting-fields",
        ),
        (limit("{unit: day, replaces: [{name: ''}]}"), "5 bad-value"),
        (limit("{unit: day, replaces: [n]}"), "5 wrong-type"),
        // Warnings.
        (
            "domain: a\ndescriptors:\n- key: k\n  unit: day\n".into(),
            "4 misplaced-field",
        ),
        ("domain: a\ndomain: b\n".into(), "2 repeated-field"),
        (
            "domain: a\ndescriptors:\n- key: k*\n".into(),
            "3 key-pattern",
        ),
        (
            "domain: a\ndescriptors:\n- key: k\n  shadow_mode: true\n".into(),
            "3 ignored-field",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, value: v, share_threshold: true}\n".into(),
            "3 ignored-field",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, detailed_metric: true, rate_limit: {unit: day}}\n"
                .into(),
            "3 ignored-field",
        ),
        (
            "domain: a\ndescriptors:\n- {key: k, value_to_metric: true}\n".into(),
            "3 ignored-field",
        ),
    ] {
        assert_eq!(findings(&yaml), [expected], "{yaml}");
    }
}

#[tokio::test]
async fn anchors_merge_keys_and_other_yaml_1_1_is_read() {
    let service = Service::new(
        "\u{feff}domain: edge
descriptors:
- &base
  key: one
  shadow_mode: off
  rate_limit: &limit { unit: HOUR, requests_per_unit: 0x_5 }
- { <<: *base, key: two }
- key: three
  value: 007
  shadow_mode: yes
  rate_limit: *limit
- key: four
  rate_limit: { <<: [{ unit: Day }, *limit], requests_per_unit: 6 }
- { key: five, value: true, rate_limit: *limit }
---
domain: [another document, {
",
    );
    let limit = async |entry: &str| {
        let response = service.response(&request(&[entry])).await;
        let limit = response.statuses[0].current_limit.clone();
        limit.map(|limit| (limit.requests_per_unit, limit.unit().as_str_name()))
    };

    assert_eq!(limit("one=x").await, Some((5, "HOUR")));
    assert_eq!(limit("two=x").await, Some((5, "HOUR")));
    assert_eq!(limit("three=007").await, Some((5, "HOUR")));
    assert_eq!(limit("three=7").await, None);
    assert_eq!(limit("four=x").await, Some((6, "DAY")));
    assert_eq!(limit("five=true").await, Some((5, "HOUR")));
}

#[test]
fn a_tree_of_aliases_does_not_grow_without_bound() {
    let levels = (1..10).map(|level| {
        let below = format!("*a{},", level - 1).repeat(10);
        format!("  a{level}: &a{level} [{below}]\n")
    });
    let yaml = "domain: a\nmetadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned()
        + &levels.collect::<String>();

    assert_eq!(findings(&yaml), ["8 unsupported-yaml"]);
}

const FILE: &str = "domain: edge\ndescriptors: [{ key: one }]\n";

#[test]
fn a_directory_is_read_file_by_file() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::create_dir(path("sub")).unwrap();
    fs::write(path("a.yaml"), FILE).unwrap();
    fs::write(path("sub/b"), FILE.replace("edge", "sub")).unwrap();
    fs::write(path(".hidden"), FILE.replace("edge", "hidden")).unwrap();
    // A mounted ConfigMap: the files are links into a folder whose name begins with two dots.
    fs::create_dir(path("..2026")).unwrap();
    fs::write(path("..2026/c.yaml"), FILE.replace("edge", "mounted")).unwrap();
    symlink("..2026", path("..data")).unwrap();
    symlink("..data/c.yaml", path("c.yaml")).unwrap();
    let domains = |options| {
        let (rules, findings) = load_directory(dir.path(), options).unwrap();
        assert!(findings.is_empty(), "{findings:?}");
        let mut domains: Vec<String> = rules.domains().map(str::to_owned).collect();
        domains.sort();
        domains
    };

    let mut options = DirectoryOptions::default();
    assert_eq!(domains(options), ["edge", "hidden", "mounted", "sub"]);
    options.ignore_dot_files = true;
    assert_eq!(domains(options), ["edge", "mounted", "sub"]);
}

#[test]
fn two_files_of_one_domain_are_rejected_unless_they_may_be_merged() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a"), FILE).unwrap();
    fs::write(dir.path().join("b"), FILE.replace("one", "two")).unwrap();
    let mut options = DirectoryOptions::default();

    let (_, findings) = load_directory(dir.path(), options).unwrap();
    assert_eq!(findings.len(), 1);
    assert!(findings[0].has_errors() && findings[0].path.ends_with("b"));
    assert_eq!(findings[0].diagnostics[0].code.as_str(), "duplicate-name");

    options.merge_domains = true;
    let (_, findings) = load_directory(dir.path(), options).unwrap();
    assert!(findings.is_empty(), "{findings:?}");

    fs::write(dir.path().join("c"), b"domain: a\n# \xff").unwrap();
    let (_, findings) = load_directory(dir.path(), options).unwrap();
    assert_eq!(findings[0].diagnostics[0].code.as_str(), "not-text");
    assert_eq!(findings[0].diagnostics[0].line, 2);
}
