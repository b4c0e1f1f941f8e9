//! What was found wrong with a file, and where.

use std::fmt;

use crate::policy_file::code::{DiagnosticCode, Severity};

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// What it is.
    pub code: DiagnosticCode,
    /// The line on which it stands, from 1.
    pub line: usize,
    /// What was found there, and what was expected.
    pub message: String,
}

impl Diagnostic {
    /// Whether the file stands in spite of it.
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// `FILE:LINE: error[code]: message`.
    pub fn in_file(&self, file: impl fmt::Display) -> String {
        format!("{file}:{}: {}", self.line, self.message())
    }

    fn message(&self) -> String {
        format!("{}[{}]: {}", self.severity(), self.code, self.message)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message())
    }
}

/// The most findings that are told of one file.
const MOST: usize = 100;

/// All that was found so far.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// Nothing yet.
    pub const fn new() -> Diagnostics {
        Diagnostics(Vec::new())
    }

    /// Adds one.
    pub fn add(&mut self, code: DiagnosticCode, line: usize, message: impl Into<String>) {
        self.0.push(Diagnostic {
            code,
            line,
            message: message.into(),
        });
    }

    /// Whether the file is refused.
    pub fn has_errors(&self) -> bool {
        let mut severities = self.0.iter().map(Diagnostic::severity);
        severities.any(|severity| severity == Severity::Error)
    }

    /// All of them by line, but no more than a hundred, errors first of all.
    pub fn sorted(mut self) -> Vec<Diagnostic> {
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
    diagnostics: Vec<Diagnostic>,
}

impl InvalidPolicyFile {
    /// The refusal of a file for these findings.
    pub fn new(diagnostics: Vec<Diagnostic>) -> InvalidPolicyFile {
        InvalidPolicyFile { diagnostics }
    }

    /// All that is wrong with it, by line; at least one is an error.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

impl fmt::Display for InvalidPolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, finding) in self.diagnostics.iter().enumerate() {
            let joint = if place == 0 { "" } else { "; " };
            write!(f, "{joint}{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidPolicyFile {}
