//! Commands of pages that no test types: `cargo nextest run` and `cargo xtask`.

use std::collections::{BTreeMap, BTreeSet};

use super::test_names::{self, TestName};
use crate::{check::files, failure::Failure, workspace::Workspace};

const NEXTEST: &str = "cargo nextest run ";
const XTASK: &str = "cargo xtask ";
const TEST: &str = "cargo test ";

/// Whether a shell block has commands of these kinds alone.
pub(super) fn is_checked(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    lines.all(|line| {
        line.is_empty()
            || line.starts_with('#')
            || line.starts_with(NEXTEST)
            || line.starts_with(XTASK)
            || is_doctest(line)
    })
}

fn is_doctest(command: &str) -> bool {
    command.starts_with(TEST) && command.contains(" --doc")
}

/// The packages, tests and chores that a command can name.
#[derive(Debug, Default)]
pub(super) struct Commands {
    tests: BTreeMap<String, Vec<TestName>>,
    chores: BTreeSet<String>,
    steps: BTreeSet<String>,
}

impl Commands {
    pub(super) fn load(workspace: &Workspace) -> Result<Commands, Failure> {
        let mut tests = BTreeMap::new();
        for package in workspace.own() {
            tests.insert(package.name.clone(), test_names::of(package.folder())?);
        }
        let chores = crate::HELP
            .lines()
            .filter_map(|line| line.strip_prefix("  "));
        let chores = chores.filter_map(|line| line.split_whitespace().next());
        // Importing the steps would be a cycle: they import this one.
        let steps = files::read(&workspace.root.join("crates/xtask/src/check/step.rs"))?;
        let steps = steps.split(" step(").skip(1);
        Ok(Commands {
            tests,
            chores: chores.map(str::to_owned).collect(),
            steps: steps
                .filter_map(|step| step.split('"').nth(1))
                .map(str::to_owned)
                .collect(),
        })
    }

    /// The commands of a page, in blocks and in the text, that name nothing that exists.
    pub(super) fn problems(&self, page: &str) -> Vec<(usize, String)> {
        let mut problems = Vec::new();
        for (line, text) in (1..).zip(page.lines()) {
            let is_whole = text.trim_start().starts_with("cargo ");
            let spans: Vec<&str> = if is_whole {
                vec![text.trim_start()]
            } else {
                text.split('`').skip(1).step_by(2).collect()
            };
            let found = spans.iter().filter_map(|span| self.problem(span).err());
            problems.extend(found.map(|problem| (line, problem)));
        }
        problems
    }

    fn problem(&self, command: &str) -> Result<(), String> {
        if let Some(rest) = command.strip_prefix(NEXTEST) {
            return self.nextest(&words(rest));
        }
        if is_doctest(command) {
            return self.nextest(&words(command));
        }
        let Some(rest) = command.strip_prefix(XTASK) else {
            return Ok(());
        };
        let words = words(rest);
        let chore = words.first().map_or("", String::as_str);
        if !self.chores.contains(chore) {
            return Err(format!("there is no `cargo xtask {chore}`"));
        }
        let steps = words.iter().skip(1).filter(|word| !word.starts_with('-'));
        let is_unknown = |step: &&String| chore == "check" && !self.steps.contains(*step);
        match steps.clone().find(is_unknown) {
            Some(step) => Err(format!("`cargo xtask check` has no step `{step}`")),
            None => Ok(()),
        }
    }

    fn package(&self, name: &str) -> Result<&Vec<TestName>, String> {
        let found = self.tests.get(name);
        found.ok_or_else(|| format!("there is no package `{name}`"))
    }

    fn nextest(&self, words: &[String]) -> Result<(), String> {
        let value = |names: &[&str]| {
            let at = words
                .iter()
                .position(|word| names.contains(&word.as_str()))?;
            words.get(at + 1)
        };
        let mut tests: Vec<&TestName> = match value(&["-p", "--package"]) {
            Some(package) => self.package(package)?.iter().collect(),
            None => self.tests.values().flatten().collect(),
        };
        if let Some(target) = value(&["--test"]) {
            tests.retain(|test| test.binary == *target);
            if tests.is_empty() {
                return Err(format!("there is no `--test {target}`"));
            }
        }
        let Some(filter) = value(&["-E", "--filterset", "--filter-expr"]) else {
            return Ok(());
        };
        for (kind, pattern) in atoms(filter) {
            let is_placeholder = pattern.chars().all(char::is_uppercase);
            if is_placeholder {
                continue;
            }
            let matches = |test: &&TestName| {
                let name = if kind == "test" {
                    &test.path
                } else {
                    &test.binary
                };
                match pattern.strip_prefix('=') {
                    Some(whole) => name == whole,
                    None => name.contains(pattern),
                }
            };
            if !tests.iter().any(matches) {
                return Err(format!("no test matches `{kind}({pattern})`"));
            }
        }
        Ok(())
    }
}

/// The parts `test(NAME)` and `binary(NAME)` of a filter.
fn atoms(filter: &str) -> Vec<(&str, &str)> {
    let parts = filter.split(')').filter_map(|part| part.rsplit_once('('));
    let parts = parts.map(|(before, pattern)| {
        let start = before.rfind(|c: char| !c.is_alphabetic());
        (&before[start.map_or(0, |at| at + 1)..], pattern)
    });
    parts
        .filter(|(kind, _)| ["test", "binary"].contains(kind))
        .collect()
}

/// The words of a command up to a comment. Quotes keep spaces.
fn words(command: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for (place, part) in command.split('\'').enumerate() {
        if place % 2 == 1 {
            words.push(part.to_owned());
            continue;
        }
        let (part, has_comment) = match part.split_once(" #") {
            Some((part, _)) => (part, true),
            None => (part, false),
        };
        words.extend(part.split_whitespace().map(str::to_owned));
        if has_comment {
            break;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Commands {
        let test = TestName {
            binary: "engine".to_owned(),
            path: "vectors::a_log_forgets".to_owned(),
        };
        Commands {
            tests: BTreeMap::from([("ratelimit-tests".to_owned(), vec![test])]),
            chores: BTreeSet::from(["check".to_owned(), "test".to_owned()]),
            steps: BTreeSet::from(["links".to_owned()]),
        }
    }

    #[test]
    fn existing_tests_and_chores_pass() {
        let page = "```sh\n\
            cargo nextest run -p ratelimit-tests --test engine -E 'test(vectors) | test(=vectors::a_log_forgets)'  # it's\n\
            cargo nextest run -p ratelimit-tests -E 'binary(=engine) and test(a_log)' --success-output immediate\n\
            cargo xtask check links  # fast\n\
            cargo xtask test -- token\n\
            ```\nRun `cargo xtask check links`.\n";

        assert_eq!(commands().problems(page), []);
    }

    #[test]
    fn a_name_that_does_not_exist_is_found() {
        for line in [
            "cargo nextest run -p ratelimit-test",
            "cargo nextest run -p ratelimit-tests --test chaos",
            "cargo nextest run -p ratelimit-tests -E 'test(vectors) | test(gone)'",
            "cargo nextest run -p ratelimit-tests -E 'binary(=eng)'",
            "cargo test -p gone --doc",
            "cargo xtask gone",
            "see `cargo xtask check gone`",
        ] {
            assert_eq!(commands().problems(line).len(), 1, "{line}");
        }
    }

    #[test]
    fn a_block_of_checked_commands_is_not_typed() {
        assert!(is_checked(
            "cargo xtask test  # all\n\n# then\ncargo nextest run -p a\n"
        ));
        assert!(!is_checked("cargo xtask test\ncurl localhost\n"));
    }
}
