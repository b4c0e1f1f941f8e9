//! Deliberate mistakes in the engine, and the tests that notice them.

use std::{fs, path::Path, process::Command};

use crate::{
    command::{cargo, run},
    failure::Failure,
    workspace::Workspace,
};

pub(crate) const HELP: &str = "\
Make deliberate mistakes in the engine, and see a test fail for each.

Usage: cargo xtask mutants [TEXT]

Works on a copy of the last commit below target/mutants. With TEXT, only mistakes whose line
contains it. Prints a table: the mistake, and the first test that failed.";

const MISTAKES: &str = include_str!("mutants.txt");
const ADVICE: &str = "write a test that fails for this mistake";
/// The tests of the engine, without the one that needs a minute for its five million keys.
const TESTS: &str = "not test(five_million)";

struct Mistake<'a> {
    file: &'a str,
    from: String,
    to: String,
}

pub(crate) fn run_all(args: &[String]) -> Result<(), Failure> {
    let root = Workspace::members()?.root;
    let copy = root.join("target/mutants/tree");
    let _ = Command::new("git")
        .args(["worktree", "remove", "--force"])
        .arg(&copy)
        .current_dir(&root)
        .output();
    let mut checkout = Command::new("git");
    checkout.args(["worktree", "add", "--force", "--detach"]);
    checkout.arg(&copy).arg("HEAD").current_dir(&root);
    run(
        &mut checkout,
        "commit first, so that there is a tree to copy",
    )?;

    let wanted = args.first().map_or("", String::as_str);
    let mistakes = MISTAKES.lines().filter(|line| !line.starts_with('#'));
    let mut survivors = Vec::new();
    println!("| file | mistake | caught by |\n|---|---|---|");
    for line in mistakes.filter(|line| line.contains(wanted)) {
        let mistake = Mistake::read(line)?;
        let caught = mistake.try_out(&copy)?;
        let shown = caught.as_deref().unwrap_or("**nothing**");
        println!("| `{}` | `{}` | {shown} |", mistake.file, mistake.to);
        if caught.is_none() {
            survivors.push(format!("no test notices {line}"));
        }
    }
    Failure::unless_none(survivors, ADVICE)
}

impl Mistake<'_> {
    fn read(line: &str) -> Result<Mistake<'_>, Failure> {
        let parts: Vec<&str> = line.splitn(3, " | ").collect();
        let [file, from, to] = parts[..] else {
            return Err(Failure::new(
                format!("not a mistake: {line}"),
                "write `file | what stands there | what it becomes`",
            ));
        };
        Ok(Mistake {
            file,
            from: from.replace("\\|", "|"),
            to: to.replace("\\|", "|"),
        })
    }

    /// Makes the mistake, runs the tests, and tells the first that failed.
    fn try_out(&self, copy: &Path) -> Result<Option<String>, Failure> {
        let path = copy.join(self.file);
        let right = fs::read_to_string(&path).unwrap_or_default();
        if !right.contains(&self.from) {
            return Err(Failure::new(
                format!("{} does not contain `{}`", self.file, self.from),
                "bring crates/xtask/src/mutants.txt up to date",
            ));
        }
        let write = |text: &str| {
            fs::write(&path, text).map_err(|error| {
                Failure::new(format!("cannot write {}: {error}", self.file), ADVICE)
            })
        };
        write(&right.replacen(&self.from, &self.to, 1))?;
        let mut tests = cargo(&[
            "nextest",
            "run",
            "-p",
            "ratelimit-tests",
            "--test",
            "engine",
        ]);
        tests.args(["-E", TESTS, "--color", "never"]);
        tests.current_dir(copy);
        tests.env("CARGO_TARGET_DIR", copy.with_file_name("target"));
        let output = tests.output();
        write(&right)?;
        let output =
            output.map_err(|error| Failure::new(error.to_string(), "install cargo-nextest"))?;
        if output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Some(first_failure(&text)))
    }
}

fn first_failure(output: &str) -> String {
    let failed = output.lines().find(|line| {
        let line = line.trim_start();
        ["FAIL", "TIMEOUT", "SIGABRT"]
            .iter()
            .any(|word| line.starts_with(word))
    });
    let name = failed.and_then(|line| line.split_whitespace().last());
    name.unwrap_or("the compiler").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_list_is_a_mistake_that_can_be_made() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        for line in MISTAKES.lines().filter(|line| !line.starts_with('#')) {
            let mistake = Mistake::read(line).unwrap();
            let text = fs::read_to_string(Path::new(root).join(mistake.file)).unwrap();
            assert!(text.contains(&mistake.from), "{line}");
        }
    }

    #[test]
    fn the_first_failed_test_is_named() {
        let output = "  PASS [ 0.1s] ( 1/50) ratelimit-tests::engine a\n  FAIL [ 1.0s] ( 5/50) ratelimit-tests::engine memory_capacity::b\n";
        assert_eq!(first_failure(output), "memory_capacity::b");
        assert_eq!(first_failure("error: could not compile"), "the compiler");
    }
}
