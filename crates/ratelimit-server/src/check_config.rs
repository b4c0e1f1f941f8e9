//! `check-config`: validates a configuration file.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use ratelimit_http::policy_file::{Diagnostic, Severity};

#[cfg(feature = "envoy")]
use crate::envoy::load_rules;
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
    #[cfg_attr(
        feature = "envoy",
        arg(required_unless_present_any = ["envoy_config", "envoy_ratelimit_env"])
    )]
    file: Option<PathBuf>,

    /// A directory of Envoy rules to read as well
    #[cfg(feature = "envoy")]
    #[arg(long, value_name = "DIR")]
    envoy_config: Option<PathBuf>,

    /// Reads the variables of Envoy's own rate limit server, as the server does with this flag
    #[cfg(feature = "envoy")]
    #[arg(long)]
    envoy_ratelimit_env: bool,

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
        let mut warnings = 0;
        let mut of_file = Settings::default();
        if let Some(path) = &self.file {
            let file = refuse_errors(ConfigFile::read(path), out)?;
            write_diagnostics(out, path, &file.warnings)?;
            warnings += file.warnings.len();
            of_file = file.settings;
        }
        let (settings, notes) = self.with_flags(settings).with_ratelimit_env(&of_file)?;
        for note in &notes {
            let kind = if note.is_warning { "warning" } else { "note" };
            writeln!(out, "environment: {kind}[ratelimit-variable]: {note}")?;
            warnings += usize::from(note.is_warning);
        }
        let settings = settings.or(of_file);
        let unknown = unknown_variables();
        for variable in &unknown {
            writeln!(out, "environment: warning[unknown-variable]: {variable}")?;
        }
        warnings += unknown.len();
        let config = refuse_errors(Config::of(settings), out)?;
        if let Some(path) = &self.file {
            write_diagnostics(out, path, &config.warnings)?;
            warnings += config.warnings.len();
            let name = path.display();
            for policy in config.rules.policies.iter() {
                let summary = PolicySummary(policy);
                writeln!(out, "{name}: policy {} = {summary}", policy.name())?;
            }
        }
        warnings += self.check_envoy_rules(&config, out)?;
        let name = self.name();
        if self.strict && warnings > 0 {
            let warnings = counted(warnings, "warning");
            return Err(format!("{name}: {warnings} refused by --strict").into());
        }
        writeln!(out, "{name}: ok")?;
        Ok(())
    }

    /// The settings with the flags of this command.
    fn with_flags(&self, settings: &Settings) -> Settings {
        #[cfg(feature = "envoy")]
        if self.envoy_ratelimit_env {
            return settings.clone().called_as(Path::new("ratelimit"));
        }
        settings.clone()
    }

    /// The name of what is checked, for messages.
    fn name(&self) -> std::path::Display<'_> {
        #[cfg(feature = "envoy")]
        let path = self.file.as_ref().or(self.envoy_config.as_ref());
        #[cfg(not(feature = "envoy"))]
        let path = self.file.as_ref();
        path.map_or(Path::new("environment"), PathBuf::as_path)
            .display()
    }

    /// Checks the Envoy rules of the file and of the directory, writes its diagnostics and domains, and returns the number of warnings.
    #[cfg(feature = "envoy")]
    fn check_envoy_rules(&self, config: &Config, out: &mut impl Write) -> Result<usize, CliError> {
        if let Some(xds) = config.envoy.as_ref().and_then(|envoy| envoy.xds.as_ref()) {
            refuse_errors(xds.check_files(), out)?;
        }
        let settings = &config.settings;
        let directory = self.envoy_config.as_deref();
        let directory = directory.or(settings.envoy_directory());
        let options = settings.envoy_rule_options();
        let loaded = load_rules(&config.rules, directory, options);
        let (rules, findings) = refuse_errors(loaded, out)?;
        for file in &findings {
            write_diagnostics(out, &file.path, &file.diagnostics)?;
        }
        let mut domains: Vec<&str> = rules.domains().chain(rules.bucket_domains()).collect();
        domains.sort_unstable();
        domains.dedup();
        let name = directory.map_or(self.name(), Path::display);
        for domain in domains {
            writeln!(out, "{name}: domain {domain:?}")?;
        }
        Ok(findings.iter().map(|file| file.diagnostics.len()).sum())
    }

    #[cfg(not(feature = "envoy"))]
    #[expect(clippy::unused_self, reason = "with the feature it reads a directory")]
    fn check_envoy_rules(&self, _: &Config, _: &mut impl Write) -> Result<usize, CliError> {
        Ok(0)
    }
}

/// Writes the diagnostics of a file with errors.
fn refuse_errors<T>(read: Result<T, InvalidConfig>, out: &mut impl Write) -> Result<T, CliError> {
    match read {
        Err(InvalidConfig::File { path, why }) => {
            write_diagnostics(out, &path, why.diagnostics())?;
            let errors = error_count(why.diagnostics());
            Err(format!("{}: {errors}", path.display()).into())
        }
        read => Ok(read?),
    }
}

fn write_diagnostics(
    out: &mut impl Write,
    path: &Path,
    findings: &[Diagnostic],
) -> Result<(), CliError> {
    for finding in findings {
        writeln!(out, "{}", finding.in_file(path.display()))?;
    }
    Ok(())
}

fn error_count(findings: &[Diagnostic]) -> String {
    let severities = findings.iter().map(Diagnostic::severity);
    let errors = severities.filter(|one| *one == Severity::Error);
    counted(errors.count(), "error")
}

fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}
