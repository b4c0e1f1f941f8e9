//! The rules of the configuration file, of the directory of `--envoy-config` and of the xDS server.

use std::{
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use metrics::counter;
use ratelimit_envoy::{
    FileDiagnostics, Rules, RulesBuilder, list_files,
    proto::ratelimit::config::ratelimit::v3::RateLimitConfig,
};
use ratelimit_http::policy_file::InvalidPolicyFile;
use sha2::{Digest as _, Sha256};
use tokio::{sync::watch, task::JoinError};

use crate::{
    app::App,
    cli_error::CliError,
    config::{EnvoyConfig, InvalidConfig, ReloadableConfig, RuleOptions},
    envoy::{ratelimit_metrics::count_config_load, resources::Resources},
    file_read::{FileThread, read_start},
    hangup::Hangup,
    metrics::{ENVOY_RELOADS, set_config_ok},
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The rules of files in metrics and in the log.
const FILES: &str = "envoy_rules";
/// Longer files are rejected, so no change beyond this is of interest.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Files that cannot be read this many times in a row are reported.
const MAX_FAILURES: u32 = 3;

/// Builds the rules of the configuration file and of a directory, with the warnings about the directory.
///
/// # Errors
///
/// [`InvalidConfig::File`] for the first file with errors, or [`InvalidConfig::Unreadable`].
pub(crate) fn load_rules(
    rules: &ReloadableConfig,
    directory: Option<&Path>,
    options: RuleOptions,
) -> Result<(Rules, Vec<FileDiagnostics>), InvalidConfig> {
    let (builder, findings) = read_files(rules, directory, options)?;
    Ok((builder.build(), findings))
}

/// A builder with the rules of [`load_rules`].
fn read_files(
    rules: &ReloadableConfig,
    directory: Option<&Path>,
    options: RuleOptions,
) -> Result<(RulesBuilder, Vec<FileDiagnostics>), InvalidConfig> {
    let mut builder = options.builder();
    if let Some(own) = &rules.envoy {
        own.add_to(&mut builder, &rules.policies)?;
    }
    let added = directory.map(|directory| {
        let added = builder.add_directory(directory, options.directory);
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
        None => Ok((builder, findings)),
    }
}

/// The rules that requests are decided by. A reload and a response of the xDS server replace them as a whole.
pub(crate) struct CurrentRules {
    config: EnvoyConfig,
    app: App,
    rules: watch::Sender<Arc<Rules>>,
    /// The sources of the rules before they were read.
    loaded: Sources,
    /// The resources of the xDS server that were accepted last. The lock is held while rules are built of them, so
    /// that a reload and a response do not replace the rules of each other.
    resources: Mutex<Resources>,
    reloads: watch::Sender<u64>,
    has_warned_of_no_resources: AtomicBool,
}

/// The sources of rules: the configuration, and the files of the directory.
#[derive(Clone)]
struct Sources {
    config: Arc<ReloadableConfig>,
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
        if config.ratelimit_metrics.is_some() {
            count_config_load(true, 1);
            count_config_load(false, 0);
        }
        Ok(CurrentRules {
            config,
            app,
            rules: watch::Sender::new(Arc::new(rules)),
            loaded,
            resources: Mutex::default(),
            reloads: watch::Sender::new(0),
            has_warned_of_no_resources: AtomicBool::new(false),
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
    pub(crate) async fn follow(self: Arc<CurrentRules>, mut hangup: Hangup) {
        count("ok", 0);
        count("rejected", 0);
        let mut seen = self.loaded.clone();
        let mut failures = 0;
        let mut thread = FileThread::new(FILES);
        let mut is_ok = true;
        set_config_ok(FILES, is_ok);
        loop {
            let is_requested = tokio::select! {
                () = hangup.recv() => true,
                () = tokio::time::sleep(POLL_INTERVAL) => false,
            };
            let digest = self.digest(&mut thread).await;
            let is_back = failures > 0 && digest.is_ok() && !is_ok;
            failures = if digest.is_err() { failures + 1 } else { 0 };
            let now = Sources {
                config: self.app.rules(),
                // A file that is missing for a moment is being replaced. One that stays so is reported once.
                files: *digest.as_ref().unwrap_or(&seen.files),
            };
            if is_requested || is_back || failures == MAX_FAILURES || now.differ_from(&seen) {
                is_ok = self.reload_in(&mut thread, &now.config).await;
            }
            set_config_ok(FILES, is_ok && failures < MAX_FAILURES);
            // Files that could not be read are read again.
            if digest.is_ok() {
                seen = now;
            }
        }
    }

    /// The digest of the files, read by a thread that may block.
    async fn digest(&self, thread: &mut FileThread) -> io::Result<Digest> {
        let config = self.config.clone();
        let read = thread.run(move || digest(&config)).await;
        read.unwrap_or_else(|why| Err(io::Error::other(why)))
    }

    /// Reloads in a thread that may block: files are read, and [`adopt`](Self::adopt) may hold the lock for long.
    ///
    /// The result is whether the rules are in force.
    async fn reload_in(
        self: &Arc<CurrentRules>,
        thread: &mut FileThread,
        rules: &Arc<ReloadableConfig>,
    ) -> bool {
        let (current, rules) = (Arc::clone(self), Arc::clone(rules));
        let reloaded = thread.run(move || current.reload(&rules)).await;
        if reloaded.as_ref().is_err_and(JoinError::is_panic) {
            tracing::error!("the reload of the Envoy rules has failed, the old ones stay");
            self.count_reload(false);
        }
        reloaded.unwrap_or(false)
    }

    /// Reads the files again. The result is whether their rules are in force.
    fn reload(&self, rules: &ReloadableConfig) -> bool {
        let mut resources = self.lock_resources();
        match self.build(rules, &mut resources) {
            Ok(rules) => {
                self.replace(rules);
                self.reloads.send_modify(|number| *number += 1);
                tracing::info!("reloaded the Envoy rules");
                true
            }
            Err(why) => {
                let why = why.to_string().replace('\n', "; ");
                tracing::error!("the new Envoy rules are refused, the old ones stay: {why}");
                self.count_reload(false);
                false
            }
        }
    }

    /// Replaces the rules of the xDS server. The result is whether they differ from those before.
    ///
    /// # Errors
    ///
    /// Fails if a resource is invalid, or has the domain of another one. The old rules stay. The caller counts and logs it.
    pub(crate) fn adopt(&self, resources: Vec<RateLimitConfig>) -> Result<bool, CliError> {
        let mut current = self.lock_resources();
        let mut new = Resources::new(resources);
        if self.app.has_envoy_rules() && current.has_same_rules_as(&new) {
            return Ok(false);
        }
        new.inherit_warnings(&current);
        let rules = self.build(&self.app.rules(), &mut new);
        self.replace(rules?);
        *current = new;
        self.app.mark_envoy_rules_loaded();
        Ok(true)
    }

    /// Counts the reloads that changed the rules of files.
    pub(crate) fn reloads(&self) -> watch::Receiver<u64> {
        self.reloads.subscribe()
    }

    /// Logs, once, that requests pass because the xDS server has not sent rules yet.
    pub(crate) fn log_missing_resources(&self) {
        let has_warned = &self.has_warned_of_no_resources;
        if !self.app.has_envoy_rules() && !has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the xDS server has not sent rules yet: requests of Envoy for domains without rules pass"
            );
        }
    }

    fn build(
        &self,
        rules: &ReloadableConfig,
        resources: &mut Resources,
    ) -> Result<Rules, CliError> {
        let directory = self.config.directory.as_deref();
        let (mut builder, findings) = read_files(rules, directory, self.config.options)?;
        resources.add_to(&mut builder)?;
        log_warnings(&findings);
        Ok(builder.build())
    }

    fn replace(&self, rules: Rules) {
        // The old rules are dropped here, and not under the lock that each request takes.
        drop(self.rules.send_replace(Arc::new(rules)));
        self.count_reload(true);
    }

    fn lock_resources(&self) -> MutexGuard<'_, Resources> {
        self.resources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts new rules, and whether they were accepted.
    pub(super) fn count_reload(&self, is_accepted: bool) {
        count(if is_accepted { "ok" } else { "rejected" }, 1);
        if self.config.ratelimit_metrics.is_some() {
            count_config_load(is_accepted, 1);
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
    let files = directory.map(|directory| list_files(directory, config.options.directory));
    for path in files.transpose()?.unwrap_or_default() {
        digest.update(Sha256::digest(path.as_os_str().as_encoded_bytes()));
        digest.update(Sha256::digest(read_start(&path, MAX_FILE_BYTES)?));
    }
    Ok(digest.finalize().into())
}

fn count(result: &'static str, times: u64) {
    counter!(ENVOY_RELOADS, "result" => result).increment(times);
}

#[cfg(test)]
impl CurrentRules {
    /// The rules of a server that waits for those of an xDS server.
    pub(super) fn waiting_for_xds() -> Arc<CurrentRules> {
        use clap::Parser as _;

        let args = [
            "ratelimit-server",
            "--envoy-listen=127.0.0.1:0",
            "--envoy-xds-server=http://127.0.0.1:1",
        ];
        let settings = crate::Cli::parse_from(args).settings;
        let config = crate::config::Config::load(&settings).expect("valid settings");
        let metrics = crate::metrics::recorder(&config.application).handle();
        let app = App::new(&config, config.store.limiter(), config.listen, metrics);
        let envoy = config.envoy.expect("a listener");
        Arc::new(CurrentRules::load(envoy, app).expect("no rules"))
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[tokio::test]
    async fn a_reload_does_not_block_other_tasks() {
        let rules = CurrentRules::waiting_for_xds();
        let (locked, is_locked) = mpsc::channel();
        let (release, is_released) = mpsc::channel();
        let holder = thread::spawn({
            let rules = Arc::clone(&rules);
            move || {
                let _guard = rules.lock_resources();
                locked.send(()).expect("the test waits");
                is_released.recv_timeout(Duration::from_secs(5))
            }
        });
        is_locked.recv().expect("the lock");

        let reload = tokio::spawn({
            let rules = Arc::clone(&rules);
            async move {
                let mut thread = FileThread::new(FILES);
                rules.reload_in(&mut thread, &rules.app.rules()).await
            }
        });
        // The runtime has one thread. A reload on it would wait for the lock here.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;

        assert!(!reload.is_finished());
        // The holder gives up after five seconds, and this fails then.
        let _ = release.send(());
        let released = holder.join().expect("no panic");
        assert_eq!(released, Ok(()));
        assert!(reload.await.expect("no panic"));
        assert_eq!(*rules.reloads().borrow(), 1);
    }
}
