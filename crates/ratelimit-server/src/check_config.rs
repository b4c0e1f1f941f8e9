//! `check-config`: validates a configuration file.

use std::{io::Write, path::PathBuf};

use clap::Args;
use ratelimit_http::policy_file::{Diagnostic, Severity};

use crate::{
    cli_error::CliError,
    config::{Config, ConfigFile, InvalidConfig},
};

/// Reads a configuration file and says what is wrong with it.
///
/// Prints `FILE:LINE: error[code]: message` for each error and each warning. Ends with 0 when the server
/// would start with the file, and with 1 when it would not.
#[derive(Args, Clone, Debug)]
pub struct CheckConfig {
    /// The file, in TOML or YAML by its ending
    file: PathBuf,
}

impl CheckConfig {
    /// Writes the diagnostics of the file and the policies that it defines.
    ///
    /// # Errors
    ///
    /// Fails if the server would reject the file, or if `out` cannot be written.
    pub fn run(&self, out: &mut impl Write) -> Result<(), CliError> {
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
        let config = Config::of(file.settings)?;
        for policy in config.rules.policies.iter() {
            writeln!(out, "{name}: policy {} = {policy}", policy.name())?;
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
