//! The pictures of the documentation, drawn again by the commands beside them.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use crate::server::binary;

const COMMAND: &str = "ratelimit-server simulate ";

fn root() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", ".."].iter().collect()
}

/// The words of a command line; quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (place, part) in line.split('"').enumerate() {
        if place % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    words
}

/// The rows of a picture in the table, from the summaries of its runs.
fn rows(path: &str, summaries: &str) -> Vec<String> {
    let name = path.rsplit('/').next().unwrap().replace(".svg", "");
    let has_one_run = summaries.lines().count() == 1;
    let row = |summary: &str| {
        let algorithm = summary.split(' ').next().unwrap();
        let name = if has_one_run {
            format!("`{name}`")
        } else {
            format!("`{name}`, `{algorithm}`")
        };
        row(&name, summary)
    };
    summaries.lines().map(row).collect()
}

fn row(name: &str, summary: &str) -> String {
    let (_, summary) = summary.split_once(": ").unwrap();
    let count = |outcome: &str| {
        let (before, _) = summary.split_once(&format!(" {outcome}")).unwrap();
        before.rsplit([' ', ',']).next().unwrap().to_owned()
    };
    let counts = ["hits", "allowed", "delayed", "denied"].map(count);
    let (_, wait) = summary.trim_end().rsplit_once("longest wait ").unwrap();
    let wait = wait.replace('s', " s");
    format!("| {name} | {} | {wait} |\n", counts.join(" | "))
}

#[test]
fn every_picture_is_what_its_command_draws() {
    let page = fs::read_to_string(root().join("docs/algorithms/README.md")).unwrap();
    let commands: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix(COMMAND))
        .collect();
    assert_eq!(commands.len(), 7);

    for command in commands {
        let mut words = words(command);
        let path = words.pop().unwrap();
        let dir = TempDir::new().unwrap();
        let drawn = dir.path().join("drawn.svg");
        let output = binary()
            .arg("simulate")
            .args(words)
            .arg(&drawn)
            .output()
            .unwrap();

        assert!(output.status.success(), "{command}: {output:?}");
        let kept = fs::read_to_string(root().join(&path)).unwrap();
        let again = fs::read_to_string(drawn).unwrap();
        assert!(
            kept == again,
            "draw {path} again: ratelimit-server simulate {command}"
        );
        let summaries = String::from_utf8(output.stderr).unwrap();
        for row in rows(&path, &summaries) {
            assert!(page.contains(&row), "write {row}");
        }
        let name = path.rsplit('/').next().unwrap();
        assert!(page.contains(&format!("]({name})")), "{name} is not shown");
    }
}
