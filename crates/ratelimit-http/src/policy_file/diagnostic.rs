//! Diagnostics: mistakes in a file, with code and line.

use std::fmt;

use crate::policy_file::code::{DiagnosticCode, Severity};

/// One mistake in a file.
///
/// It displays as `line 3: error[unknown-field]: unknown field "limit": did you mean limits?`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The kind of the mistake.
    pub code: DiagnosticCode,
    /// The line, from 1.
    pub line: usize,
    /// The text that was found, and what was expected.
    pub message: String,
}

impl Diagnostic {
    /// The severity of the code.
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// The diagnostic as `FILE:LINE: error[code]: message`, which editors recognise.
    ///
    /// ```
    /// # #[cfg(feature = "toml")] {
    /// use ratelimit_http::policy_file::{Format, PolicyFile};
    ///
    /// let file = PolicyFile::parse("[policy.login]\nlimit = '5/min'\n", Format::Toml);
    /// assert_eq!(
    ///     file.diagnostics[1].in_file("policies.toml"),
    ///     "policies.toml:2: error[unknown-field]: unknown field \"limit\": did you mean limits?"
    /// );
    /// # }
    /// ```
    pub fn in_file(&self, file: impl fmt::Display) -> String {
        format!("{file}:{}: {}", self.line, self.without_line())
    }

    /// The diagnostic without its line: `error[code]: message`.
    fn without_line(&self) -> String {
        format!("{}[{}]: {}", self.severity(), self.code, self.message)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.without_line())
    }
}

/// The maximum number of diagnostics for one file.
const MAX_DIAGNOSTICS: usize = 100;

/// The diagnostics that were collected so far.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics(Vec<Diagnostic>);

impl Diagnostics {
    /// No diagnostics.
    pub const fn new() -> Diagnostics {
        Diagnostics(Vec::new())
    }

    /// Adds a diagnostic.
    pub fn add(&mut self, code: DiagnosticCode, line: usize, message: impl Into<String>) {
        self.0.push(Diagnostic {
            code,
            line,
            message: message.into(),
        });
    }

    /// Whether there are more diagnostics than are reported.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_DIAGNOSTICS
    }

    /// Whether one of the diagnostics is an error.
    pub fn has_errors(&self) -> bool {
        let mut severities = self.0.iter().map(Diagnostic::severity);
        severities.any(|severity| severity == Severity::Error)
    }

    /// The diagnostics in the order of lines. If there are more than 100, warnings are dropped first.
    ///
    /// ```
    /// use ratelimit_http::policy_file::{DiagnosticCode, Diagnostics};
    ///
    /// let mut diagnostics = Diagnostics::new();
    /// diagnostics.add(DiagnosticCode::BadLimit, 7, "expected a limit such as 5/min");
    /// diagnostics.add(DiagnosticCode::IgnoredField, 2, "instances has no effect");
    /// assert!(diagnostics.has_errors());
    /// assert_eq!(diagnostics.sorted()[0].line, 2);
    /// ```
    pub fn sorted(mut self) -> Vec<Diagnostic> {
        self.0
            .sort_by_key(|diagnostic| (diagnostic.severity(), diagnostic.line));
        self.0.truncate(MAX_DIAGNOSTICS);
        self.0.sort_by_key(|diagnostic| diagnostic.line);
        self.0
    }
}

/// The error for a policy file with at least one error. It displays all diagnostics.
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidPolicyFile {
    diagnostics: Vec<Diagnostic>,
}

impl InvalidPolicyFile {
    /// The error with these diagnostics.
    pub fn new(diagnostics: Vec<Diagnostic>) -> InvalidPolicyFile {
        InvalidPolicyFile { diagnostics }
    }

    /// The diagnostics in the order of lines. At least one is an error.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

impl fmt::Display for InvalidPolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{diagnostic}")?;
        }
        Ok(())
    }
}

debug_as_display!(InvalidPolicyFile);

impl std::error::Error for InvalidPolicyFile {}
