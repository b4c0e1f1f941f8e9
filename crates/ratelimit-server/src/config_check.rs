//! Checks the text of a configuration file as a caller sends it.
//!
//! A text can name other files. They are not opened, so that a caller cannot find out which files the server can read:
//!
//! - A file that the server has for the same setting already is read as at a reload.
//! - Any other file is left out, with a warning. A restart finds its mistakes.
//! - Variables of the environment are read only if the server reads them already.

use std::{collections::BTreeMap, path::Path};

use ratelimit_http::policy_file::Format;

#[cfg(feature = "envoy")]
use crate::envoy::load_rules;
use crate::{
    config::{Config, ConfigFile, InvalidConfig, ReloadableConfig, Settings},
    config_state::ConfigState,
    finding::Finding,
};

/// The findings about a text, and what it would change.
#[derive(Debug, Default)]
pub(crate) struct ConfigCheck {
    pub(crate) findings: Vec<Finding>,
    /// The rules of the text; `None` if it is refused.
    pub(crate) rules: Option<ReloadableConfig>,
    /// The settings that only a restart applies.
    pub(crate) needs_restart: Vec<String>,
    /// The limits of the Envoy rules that run, and of those of the text, by the names of their policies.
    pub(crate) envoy: (EnvoyLimits, EnvoyLimits),
}

/// The limits and the roles of Envoy rules by the names of their policies.
pub(crate) type EnvoyLimits = BTreeMap<String, String>;

/// The line of each field of a text.
type FieldLines = BTreeMap<String, usize>;

impl ConfigCheck {
    /// Checks a text against the settings of flags and environment, which go before it.
    pub(crate) fn new(
        text: &str,
        format: Format,
        running: &ReloadableConfig,
        state: &ConfigState,
    ) -> ConfigCheck {
        let file = match ConfigFile::parse(text, format) {
            Ok(file) => file,
            Err(why) => return ConfigCheck::refused(why, &FieldLines::new(), Vec::new()),
        };
        let mut findings: Vec<Finding> = file.warnings.iter().map(Finding::new).collect();
        let lines = file.lines;
        let of_file = file.settings.with_hidden_secrets_of(&state.running);
        let settings = match merge(of_file, state, &lines, &mut findings) {
            Ok(settings) => settings,
            Err(why) => return ConfigCheck::refused(why, &lines, findings),
        };
        let needs_restart = settings.changes_needing_restart(&state.running);
        let (settings, left_out) = settings.without_new_files(&state.running);
        findings.extend(left_out.into_iter().map(|name| not_read(name, &lines)));
        let config = match Config::of(settings) {
            Ok(config) => config,
            Err(why) => return ConfigCheck::refused(why, &lines, findings),
        };
        findings.extend(config.warnings.iter().map(Finding::new));
        #[cfg(feature = "envoy")]
        let envoy = check_envoy_rules(&config, running, state, &lines, &mut findings);
        #[cfg(not(feature = "envoy"))]
        let (_, envoy) = (running, Default::default());
        let is_refused = findings.iter().any(Finding::is_error);
        findings.sort_by_key(|finding| finding.line);
        ConfigCheck {
            findings,
            rules: (!is_refused).then_some(config.rules),
            needs_restart,
            envoy,
        }
    }

    fn refused(why: InvalidConfig, lines: &FieldLines, mut findings: Vec<Finding>) -> ConfigCheck {
        findings.extend(Finding::of_error(why, Path::new(""), lines));
        findings.sort_by_key(|finding| finding.line);
        ConfigCheck {
            findings,
            ..ConfigCheck::default()
        }
    }
}

/// The settings of flags, environment and text.
fn merge(
    of_file: Settings,
    state: &ConfigState,
    lines: &FieldLines,
    findings: &mut Vec<Finding>,
) -> Result<Settings, InvalidConfig> {
    let given = state.given.clone();
    if state.running.reads_ratelimit_env() {
        let (settings, _) = given.with_ratelimit_env(&of_file)?;
        return Ok(settings.or(of_file));
    }
    if of_file.reads_ratelimit_env() {
        let name = "envoy-ratelimit-env";
        let message = "the variables are not read here: check-config reads them";
        let line = lines.get(name).copied();
        findings.push(Finding::warning("not-checked", line, message.to_owned()));
    }
    Ok(given.or(of_file))
}

fn not_read(setting: &str, lines: &FieldLines) -> Finding {
    let message = format!(
        "the file of {setting} is not read here, because the server does not use it yet: check-config reads it"
    );
    Finding::warning("not-checked", lines.get(setting).copied(), message)
}

/// Checks the Envoy rules of the text together with those of the directory that the server reads. Returns the limits of
/// the rules that run and of those of the text. Rules of an xDS server are in neither.
#[cfg(feature = "envoy")]
fn check_envoy_rules(
    config: &Config,
    running: &ReloadableConfig,
    state: &ConfigState,
    lines: &FieldLines,
    findings: &mut Vec<Finding>,
) -> (EnvoyLimits, EnvoyLimits) {
    let directory = config.settings.envoy_directory();
    let own = state.running.envoy_directory();
    let is_own = directory == own;
    if !is_own && directory.is_some() {
        findings.push(not_read("envoy-config", lines));
    }
    let options = config.settings.envoy_rule_options();
    let directory = directory.filter(|_| is_own);
    match load_rules(&config.rules, directory, options) {
        Ok((rules, files)) => {
            for file in files {
                let of_file = file.diagnostics.iter();
                findings.extend(of_file.map(|one| Finding::in_file(one, &file.path)));
            }
            let before = load_rules(running, directory, state.running.envoy_rule_options());
            let before = before.map_or_else(|_| EnvoyLimits::new(), |(rules, _)| limits(&rules));
            (before, limits(&rules))
        }
        Err(why) => {
            findings.extend(Finding::of_error(why, Path::new(""), lines));
            Default::default()
        }
    }
}

/// The limits of rules. A rule that names a policy of the configuration is left out, because that policy is compared.
#[cfg(feature = "envoy")]
fn limits(rules: &ratelimit_envoy::Rules) -> EnvoyLimits {
    let listed = rules.listed().into_iter();
    let own = listed.filter(|rule| {
        rule.policy.name().starts_with("rls:") || rule.policy.name().starts_with("rlqs:")
    });
    own.map(|rule| {
        let role = match rule.role {
            ratelimit_envoy::Role::Must => "",
            ratelimit_envoy::Role::Any => " (quota mode)",
            _ => " (shadow mode)",
        };
        (
            rule.policy.name().to_owned(),
            format!("{}{role}", rule.policy),
        )
    })
    .collect()
}
