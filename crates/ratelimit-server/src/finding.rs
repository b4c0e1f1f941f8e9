//! Findings about a configuration, as the console shows them.

use std::{collections::BTreeMap, path::Path};

use ratelimit_http::policy_file::{Diagnostic, Severity};
use serde::Serialize;

use crate::{cli_error::CliError, config::InvalidConfig, redact::redact_text};

/// A mistake in a configuration, or something that it probably does not mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The line of the file, from 1; `None` if the mistake is not in one line of it.
    pub(crate) line: Option<usize>,
    pub(crate) severity: &'static str,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The section of the docs about the code.
    pub(crate) help: Option<String>,
}

impl Finding {
    pub(crate) fn new(diagnostic: &Diagnostic) -> Finding {
        let (code, severity) = (diagnostic.code.as_str(), diagnostic.severity());
        Finding {
            line: Some(diagnostic.line),
            severity: severity_name(severity),
            code,
            message: redact_text(&diagnostic.message),
            help: Some(format!("policy-file.md#{code}-{severity}")),
        }
    }

    /// A warning that has no code of a diagnostic.
    pub(crate) fn warning(code: &'static str, line: Option<usize>, message: String) -> Finding {
        Finding {
            line,
            severity: severity_name(Severity::Warning),
            code,
            message,
            help: None,
        }
    }

    /// A diagnostic of another file than the configuration file.
    pub(crate) fn in_file(diagnostic: &Diagnostic, path: &Path) -> Finding {
        let (line, path) = (diagnostic.line, path.display());
        Finding {
            line: None,
            message: format!("{path}:{line}: {}", redact_text(&diagnostic.message)),
            ..Finding::new(diagnostic)
        }
    }

    /// The findings of an error about the configuration file `path`, whose fields have these lines.
    pub(crate) fn of_error(
        error: InvalidConfig,
        path: &Path,
        lines: &BTreeMap<String, usize>,
    ) -> Vec<Finding> {
        if let InvalidConfig::File { path: file, why } = &error {
            let diagnostics = why.diagnostics().iter();
            let finding = |one: &Diagnostic| {
                if file == path {
                    Finding::new(one)
                } else {
                    Finding::in_file(one, file)
                }
            };
            return diagnostics.map(finding).collect();
        }
        let setting = error.setting();
        vec![Finding {
            line: setting.and_then(|setting| lines.get(setting).copied()),
            severity: severity_name(Severity::Error),
            code: "invalid-setting",
            message: redact_text(&CliError::from(error).to_string()),
            help: None,
        }]
    }

    pub(crate) fn is_error(&self) -> bool {
        self.severity == severity_name(Severity::Error)
    }
}

const fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_http::policy_file::DiagnosticCode;

    #[test]
    fn the_help_of_every_code_is_a_section_of_the_docs() {
        let docs = include_str!("../../../docs/policy-file.md");
        for code in DiagnosticCode::ALL {
            let heading = format!("\n### `{code}` ({})\n", code.severity());
            assert!(docs.contains(&heading), "{heading}");
        }
    }
}
