//! What was found wrong with a file, and where.

use std::fmt;

use crate::policy_file::code::{Code, Severity};

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// What it is.
    pub code: Code,
    /// The line on which it stands, from 1.
    pub line: usize,
    /// What was found there, and what was expected.
    pub message: String,
}

impl Finding {
    /// Whether the file stands in spite of it.
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// `FILE:LINE: error[code]: message`.
    pub fn in_file(&self, file: impl fmt::Display) -> String {
        format!("{file}:{}: {}", self.line, self.told())
    }

    fn told(&self) -> String {
        format!("{}[{}]: {}", self.severity(), self.code, self.message)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.told())
    }
}

/// The most findings that are told of one file.
const MOST: usize = 100;

/// All that was found so far.
#[derive(Clone, Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Nothing yet.
    pub const fn new() -> Findings {
        Findings(Vec::new())
    }

    /// Adds one.
    pub fn add(&mut self, code: Code, line: usize, message: impl Into<String>) {
        self.0.push(Finding {
            code,
            line,
            message: message.into(),
        });
    }

    /// Whether the file is refused.
    pub fn has_errors(&self) -> bool {
        let mut severities = self.0.iter().map(Finding::severity);
        severities.any(|severity| severity == Severity::Error)
    }

    /// All of them by line, but no more than a hundred, errors first of all.
    pub fn sorted(mut self) -> Vec<Finding> {
        self.0
            .sort_by_key(|finding| (finding.severity(), finding.line));
        self.0.truncate(MOST);
        self.0.sort_by_key(|finding| finding.line);
        self.0
    }
}

/// A policy file that cannot stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicyFile {
    findings: Vec<Finding>,
}

impl InvalidPolicyFile {
    /// The refusal of a file for these findings.
    pub fn new(findings: Vec<Finding>) -> InvalidPolicyFile {
        InvalidPolicyFile { findings }
    }

    /// All that is wrong with it, by line; at least one is an error.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl fmt::Display for InvalidPolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, finding) in self.findings.iter().enumerate() {
            let joint = if place == 0 { "" } else { "; " };
            write!(f, "{joint}{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidPolicyFile {}
