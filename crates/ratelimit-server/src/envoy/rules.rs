//! The rules of the configuration file and of the directory of `--envoy-config`, read again when they change.

use std::{fs, io, path::Path, sync::Arc, time::Duration};

use metrics::counter;
use ratelimit_envoy::{DirectoryOptions, FileDiagnostics, Rules, RulesBuilder, list_files};
use ratelimit_http::policy_file::InvalidPolicyFile;
use sha2::{Digest as _, Sha256};
use tokio::{signal::unix::Signal, sync::watch};

use crate::{
    app::App,
    cli_error::CliError,
    config::{EnvoyConfig, InvalidConfig, Rules as ConfigRules},
    metrics::ENVOY_RELOADS,
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Files that cannot be read this many times in a row are reported.
const MAX_FAILURES: u32 = 3;

/// Builds the rules of the configuration file and of a directory, with the warnings about the directory.
///
/// # Errors
///
/// [`InvalidConfig::File`] for the first file with errors, or [`InvalidConfig::Unreadable`].
pub(crate) fn load_rules(
    rules: &ConfigRules,
    directory: Option<&Path>,
    options: DirectoryOptions,
) -> Result<(Rules, Vec<FileDiagnostics>), InvalidConfig> {
    let mut builder = RulesBuilder::new().merge_domains(options.merge_domains);
    if let Some(own) = &rules.envoy {
        own.add_to(&mut builder, &rules.policies)?;
    }
    let added = directory.map(|directory| {
        let added = builder.add_directory(directory, options);
        added.map_err(|source| InvalidConfig::Unreadable {
            path: directory.to_owned(),
            source,
        })
    });
    let findings = added.transpose()?.unwrap_or_default();
    match findings.iter().find(|file| file.has_errors()) {
        Some(file) => Err(InvalidConfig::File {
            path: file.path.clone(),
            why: InvalidPolicyFile::new(file.diagnostics.clone()),
        }),
        None => Ok((builder.build(), findings)),
    }
}

/// The rules that requests are decided by. A reload replaces them as a whole.
pub(crate) struct CurrentRules {
    config: EnvoyConfig,
    app: App,
    rules: watch::Sender<Arc<Rules>>,
    /// The sources of the rules before they were read.
    loaded: Sources,
}

/// The sources of rules: the configuration, and the files of the directory.
#[derive(Clone)]
struct Sources {
    config: Arc<ConfigRules>,
    files: Digest,
}

/// The digest of the names and contents of all files.
type Digest = [u8; 32];

impl CurrentRules {
    /// Reads the rules of a configuration and logs the warnings about its directory.
    pub(crate) fn load(config: EnvoyConfig, app: App) -> Result<CurrentRules, InvalidConfig> {
        let loaded = Sources {
            config: app.rules(),
            files: digest(&config).unwrap_or_default(),
        };
        let directory = config.directory.as_deref();
        let (rules, findings) = load_rules(&loaded.config, directory, config.options)?;
        log_warnings(&findings);
        Ok(CurrentRules {
            config,
            app,
            rules: watch::Sender::new(Arc::new(rules)),
            loaded,
        })
    }

    /// The rules of this moment.
    pub(crate) fn get(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.borrow())
    }

    /// The rules, and each change of them.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<Rules>> {
        self.rules.subscribe()
    }

    /// Builds the rules again when a file of the directory changes, when the configuration was reloaded, and on
    /// SIGHUP; never returns.
    ///
    /// Files with an error are logged once for each change, and the old rules stay.
    pub(crate) async fn follow(self: Arc<CurrentRules>, mut hangup: Signal) {
        count("ok", 0);
        count("rejected", 0);
        let mut seen = self.loaded.clone();
        let mut failures = 0;
        loop {
            let is_requested = tokio::select! {
                _ = hangup.recv() => true,
                () = tokio::time::sleep(POLL_INTERVAL) => false,
            };
            let digest = digest(&self.config);
            failures = if digest.is_err() { failures + 1 } else { 0 };
            let now = Sources {
                config: self.app.rules(),
                // A file that is missing for a moment is being replaced. One that stays so is reported once.
                files: *digest.as_ref().unwrap_or(&seen.files),
            };
            if is_requested || failures == MAX_FAILURES || now.differ_from(&seen) {
                self.reload(&now.config);
            }
            // Files that could not be read are read again.
            if digest.is_ok() {
                seen = now;
            }
        }
    }

    fn reload(&self, rules: &ConfigRules) {
        let directory = self.config.directory.as_deref();
        match load_rules(rules, directory, self.config.options) {
            Ok((rules, findings)) => {
                log_warnings(&findings);
                self.rules.send_replace(Arc::new(rules));
                count("ok", 1);
                tracing::info!("reloaded the Envoy rules");
            }
            Err(why) => {
                count("rejected", 1);
                let why = CliError::from(why).to_string().replace('\n', "; ");
                tracing::error!("the new Envoy rules are refused, the old ones stay: {why}");
            }
        }
    }
}

impl Sources {
    /// Whether rules of these sources may differ. A reload of a configuration without Envoy rules changes none.
    fn differ_from(&self, seen: &Sources) -> bool {
        let has_rules = self.config.envoy.is_some() || seen.config.envoy.is_some();
        let is_reloaded = !Arc::ptr_eq(&self.config, &seen.config);
        (is_reloaded && has_rules) || self.files != seen.files
    }
}

fn log_warnings(findings: &[FileDiagnostics]) {
    for file in findings {
        for warning in &file.diagnostics {
            tracing::warn!("{}", warning.in_file(file.path.display()));
        }
    }
}

fn digest(config: &EnvoyConfig) -> io::Result<Digest> {
    let mut digest = Sha256::new();
    let directory = config.directory.as_deref();
    let files = directory.map(|directory| list_files(directory, config.options));
    for path in files.transpose()?.unwrap_or_default() {
        digest.update(Sha256::digest(path.as_os_str().as_encoded_bytes()));
        digest.update(Sha256::digest(fs::read(path)?));
    }
    Ok(digest.finalize().into())
}

fn count(result: &'static str, times: u64) {
    counter!(ENVOY_RELOADS, "result" => result).increment(times);
}
