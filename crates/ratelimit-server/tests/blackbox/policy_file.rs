//! The sections of docs/policy-file.md: each code has one, and its example is what it says.

use std::{collections::BTreeSet, fs};

use ratelimit_core::{Code, Severity};
use tempfile::TempDir;

use crate::server::binary;

const DOCS: &str = include_str!("../../../../docs/policy-file.md");

/// What cannot be shown as a text in the docs, and is made here instead.
fn without_example() -> [(Code, &'static str, Vec<u8>); 3] {
    [
        (Code::UnknownFormat, "json", b"{}".to_vec()),
        (Code::NotText, "toml", b"# \xff".to_vec()),
        (Code::TooLarge, "yaml", vec![b'#'; (1 << 20) + 1]),
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

#[test]
fn every_code_has_a_section_and_every_section_a_code() {
    let told: BTreeSet<_> = sections()
        .iter()
        .map(|section| (section.code.to_owned(), section.severity.to_owned()))
        .collect();
    let known: BTreeSet<_> = Code::ALL
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
    assert!(policies[0].contains("policy login = token_bucket 5/min; token_bucket 20/h"));
}
