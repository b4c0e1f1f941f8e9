//! Findings about a configuration, as the console shows them.

use std::{collections::BTreeMap, path::Path};

use ratelimit_http::policy_file::{Diagnostic, Severity};
use serde::Serialize;

use crate::{cli_error::CliError, config::InvalidConfig, redact::redact_text};

/// The longest message, in bytes.
const MAX_MESSAGE: usize = 500;

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
            message: shown(&diagnostic.message),
            help: Some(format!("policy-file.md#{code}-{severity}")),
        }
    }

    /// A warning that has no code of a diagnostic.
    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "for the console"))]
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
            message: format!("{path}:{line}: {}", shown(&diagnostic.message)),
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
            message: shown(&CliError::from(error).to_string()),
            help: None,
        }]
    }

    #[cfg_attr(not(feature = "console"), allow(dead_code, reason = "for the console"))]
    pub(crate) fn is_error(&self) -> bool {
        self.severity == severity_name(Severity::Error)
    }
}

/// A message without secrets, cut to [`MAX_MESSAGE`]. Messages quote the text that they are about.
fn shown(message: &str) -> String {
    let mut message = redact_text(message);
    if message.len() > MAX_MESSAGE {
        let mut ends = (0..=MAX_MESSAGE).rev();
        let end = ends.find(|end| message.is_char_boundary(*end));
        message.truncate(end.unwrap_or_default());
        message.push_str("...");
    }
    message
}

const fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        _ => "warning",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_after_its_secrets_are_hidden() {
        let message = format!(
            "\"redis://:{}ü@cache\" {}",
            "s3cr3t".repeat(100),
            "ü".repeat(400)
        );

        let shown = shown(&message);

        assert!(shown.starts_with("\"redis://:***@cache\" ü"), "{shown}");
        assert!(shown.ends_with("ü...") && shown.len() <= MAX_MESSAGE + 3);
    }
}
