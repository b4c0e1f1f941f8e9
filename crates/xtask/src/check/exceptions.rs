//! Committed lists of exceptions that may only shrink.

use std::{collections::BTreeMap, fs, path::Path};

use crate::{check::tree, failure::Failure};

const HEAD: &str = "\
# Exceptions of `cargo xtask check`, with their counts. The sum may only shrink:
# `cargo xtask check --write` writes what is left.
";

/// The findings of a check, by the key of their exception: a file, a module, a type name.
pub(super) type Findings = BTreeMap<String, Finding>;

/// How often a rule is broken under one key, and where.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) count: usize,
    pub(super) details: Vec<String>,
}

impl Finding {
    /// Counts one more place.
    pub(super) fn push(&mut self, detail: String) {
        self.count += 1;
        self.details.push(detail);
    }
}

/// The exceptions of one check: lines of a count and a key.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    counts: BTreeMap<String, usize>,
}

impl Exceptions {
    /// Compares findings with the list in `file`; `advice` is the help of a failure.
    pub(super) fn check(
        root: &Path,
        file: &str,
        findings: &Findings,
        advice: &str,
    ) -> Result<(), Failure> {
        let exceptions = Exceptions::load(root, file)?;
        Failure::unless_none(exceptions.problems(findings), advice)
    }

    /// Reads a list. A missing file is an empty list.
    fn load(root: &Path, file: &str) -> Result<Exceptions, Failure> {
        let path = root.join(file);
        if !path.exists() {
            return Ok(Exceptions::default());
        }
        let text = tree::read(&path)?;
        Exceptions::parse(&text).map_err(|line| {
            Failure::new(
                format!("{file}: `{line}` is not a count and a key"),
                "write one exception in each line, as in `3 crates/a/src/b.rs`",
            )
        })
    }

    fn parse(text: &str) -> Result<Exceptions, String> {
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line
                .split_once(' ')
                .and_then(|(count, key)| Some((count.parse().ok()?, key.trim().to_owned())));
            let (count, key) = parsed.ok_or_else(|| line.to_owned())?;
            counts.insert(key, count);
        }
        Ok(Exceptions { counts })
    }

    /// The findings without an exception, and the exceptions that are larger than their findings.
    fn problems(&self, findings: &Findings) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, finding) in findings {
            let allowed = self.counts.get(key).copied().unwrap_or(0);
            if finding.count > allowed {
                let mut problem = format!("{key}: found {}, allowed {allowed}", finding.count);
                for detail in &finding.details {
                    problem.push_str("\n         ");
                    problem.push_str(detail);
                }
                problems.push(problem);
            }
        }
        for (key, allowed) in &self.counts {
            let found = findings.get(key).map_or(0, |finding| finding.count);
            if found < *allowed {
                problems.push(format!(
                    "{key}: found {found}, so the exception of {allowed} is too large"
                ));
            }
        }
        problems
    }

    /// Replaces a list by the findings, unless there are more of them than exceptions.
    pub(super) fn write(root: &Path, file: &str, findings: &Findings) -> Result<(), Failure> {
        let path = root.join(file);
        let is_new = !path.exists();
        let allowed: usize = Exceptions::load(root, file)?.counts.values().sum();
        let found: usize = findings.values().map(|finding| finding.count).sum();
        if found > allowed && !is_new {
            return Err(Failure::new(
                format!("{file}: found {found} in all, and the exceptions are {allowed}"),
                "remove what was added; the list may only shrink",
            ));
        }
        let lines = findings
            .iter()
            .map(|(key, finding)| format!("{} {key}\n", finding.count));
        let text = lines.fold(HEAD.to_owned(), |text, line| text + &line);
        fs::write(&path, text).map_err(|error| {
            Failure::new(
                format!("{file} cannot be written: {error}"),
                "see that its folder exists",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(entries: &[(&str, usize)]) -> Findings {
        let entry = |(key, count): &(&str, usize)| {
            let details = vec!["line 7".to_owned(); *count];
            let count = *count;
            ((*key).to_owned(), Finding { count, details })
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn an_exception_covers_exactly_its_count() {
        let list = Exceptions::parse("# head\n2 a.rs\n1 b c\n").unwrap();

        let exact = findings(&[("a.rs", 2), ("b c", 1)]);
        assert_eq!(list.problems(&exact), [""; 0]);
        let more = findings(&[("a.rs", 3), ("b c", 1)]);
        assert!(list.problems(&more)[0].starts_with("a.rs: found 3, allowed 2\n"));
        let fewer = findings(&[("a.rs", 2)]);
        assert_eq!(
            list.problems(&fewer),
            ["b c: found 0, so the exception of 1 is too large"]
        );
    }

    #[test]
    fn a_line_without_a_count_is_rejected() {
        assert!(Exceptions::parse("a.rs\n").is_err());
    }
}
