//! `check-config`: validates a configuration file.

use std::{io::Write, path::PathBuf};

use clap::Args;
use ratelimit_http::policy_file::{Diagnostic, Severity};

use crate::{
    cli_error::CliError,
    config::{Config, ConfigFile, InvalidConfig, Settings, unknown_variables},
    policy_summary::PolicySummary,
};

/// Reads a configuration file and says what is wrong with it.
///
/// Prints `FILE:LINE: error[code]: message` for each error and each warning, and a warning for each variable
/// `RATELIMIT_...` of the environment that is not a setting. Ends with 0 when the server would start with the
/// file, and with 1 when it would not.
#[derive(Args, Clone, Debug)]
pub struct CheckConfig {
    /// The file, in TOML or YAML by its ending
    file: PathBuf,

    /// Ends with 1 on a warning as well
    #[arg(long)]
    strict: bool,
}

impl CheckConfig {
    /// Writes the diagnostics of the file and the policies that it defines.
    ///
    /// `settings` are those of flags and the environment, which go before the file as they do in the server.
    ///
    /// # Errors
    ///
    /// Fails if the server would reject the file, or if `out` cannot be written.
    pub fn run(&self, settings: &Settings, out: &mut impl Write) -> Result<(), CliError> {
        let name = self.file.display();
        let file = match ConfigFile::read(&self.file) {
            Ok(file) => file,
            Err(InvalidConfig::File { why, .. }) => {
                self.write_diagnostics(out, why.diagnostics())?;
                return Err(format!("{name}: {}", error_count(why.diagnostics())).into());
            }
            Err(why) => return Err(why.into()),
        };
        self.write_diagnostics(out, &file.warnings)?;
        let unknown = unknown_variables();
        for variable in &unknown {
            writeln!(out, "environment: warning[unknown-variable]: {variable}")?;
        }
        let config = Config::of(settings.clone().or(file.settings))?;
        for policy in config.rules.policies.iter() {
            let summary = PolicySummary(policy);
            writeln!(out, "{name}: policy {} = {summary}", policy.name())?;
        }
        let warnings = file.warnings.len() + unknown.len();
        if self.strict && warnings > 0 {
            return Err(format!("{name}: {warnings} warnings, and --strict refuses them").into());
        }
        writeln!(out, "{name}: ok")?;
        Ok(())
    }

    fn write_diagnostics(
        &self,
        out: &mut impl Write,
        findings: &[Diagnostic],
    ) -> Result<(), CliError> {
        for finding in findings {
            writeln!(out, "{}", finding.in_file(self.file.display()))?;
        }
        Ok(())
    }
}

fn error_count(findings: &[Diagnostic]) -> String {
    let severities = findings.iter().map(Diagnostic::severity);
    match severities.filter(|one| *one == Severity::Error).count() {
        1 => "1 error".to_owned(),
        errors => format!("{errors} errors"),
    }
}
