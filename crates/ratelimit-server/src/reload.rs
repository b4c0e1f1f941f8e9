//! Reloads the configuration.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use metrics::counter;
use ratelimit_http::policy_file::DiagnosticCode;
use ratelimit_http::{metrics::POLICY_RELOADS, registry::log_reordered_limits};
use sha2::{Digest as _, Sha256};
use tokio::signal::unix::Signal;

use crate::{
    app::App,
    config::{Config, InvalidConfig, Policies, Settings},
    file_read::{FileThread, MAX_FILE_BYTES, read_start},
    finding::Finding,
    metrics::set_config_ok,
    missing_files::MissingFiles,
    reload_channel::{ReloadRequests, ReloadResult},
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The watched files in metrics and in the log.
const FILES: &str = "policies";

/// Reloads the configuration on SIGHUP, on request, and when its file or the file of the admin token changes; never returns.
///
/// - A configuration with an error is logged and changes nothing.
/// - Settings that are not part of the rules keep the values of `running`. A change of one is logged.
/// - `versions` are the versions of the files before the current configuration was read.
/// - Files are read and parsed in a thread that may block: a mount that hangs, or thousands of policies, delay no request.
pub(crate) async fn follow(
    app: App,
    settings: Settings,
    running: Settings,
    mut versions: FileVersions,
    mut hangup: Signal,
    mut requests: ReloadRequests,
) {
    count("ok", 0);
    count("rejected", 0);
    set_config_ok(FILES, true);
    let mut files = paths(&running);
    let (settings, running) = (Arc::new(settings), Arc::new(running));
    let mut missing = MissingFiles::default();
    let mut thread = FileThread::new(FILES);
    let mut is_ok = true;
    loop {
        let (is_requested, caller) = tokio::select! {
            _ = hangup.recv() => (true, None),
            request = requests.recv() => (true, Some(request)),
            () = tokio::time::sleep(POLL_INTERVAL) => (false, None),
        };
        let watched = files.clone();
        let Ok(now) = thread.run(move || file_versions(&watched)).await else {
            continue;
        };
        let unreadable = files.iter().filter(|path| !now.contains_key(*path));
        missing.log_lost(&unreadable.cloned().collect::<Vec<_>>());
        // A file that cannot be read is not a change: it may be about to be replaced.
        let is_changed = now
            .iter()
            .any(|(path, version)| versions.get(path) != Some(version));
        if is_requested || is_changed {
            // A file that cannot be read now has a new version when it is back.
            versions.retain(|path, _| now.contains_key(path));
            versions.extend(now);
            let reload = Reload {
                app: app.clone(),
                settings: Arc::clone(&settings),
                running: Arc::clone(&running),
                versions: versions.clone(),
            };
            let Ok(reloaded) = thread.run(|| reload.run()).await else {
                tracing::error!("the reload of the configuration has failed, the old one stays");
                continue;
            };
            versions = reloaded.versions;
            files = reloaded.files.unwrap_or(files);
            is_ok = reloaded.result.is_ok();
            if let Some(caller) = caller {
                caller.answer(reloaded.result);
                // Certificates and Envoy rules are read again by other tasks, as on SIGHUP.
                app.config_state().hangups.send();
            }
        }
        set_config_ok(FILES, is_ok && !missing.has_lost());
    }
}

/// One reload.
struct Reload {
    app: App,
    settings: Arc<Settings>,
    running: Arc<Settings>,
    /// The versions of the files that were just read.
    versions: FileVersions,
}

/// The result of [`Reload::run`].
struct Reloaded {
    result: ReloadResult,
    /// The files of the new configuration; `None` if it is refused.
    files: Option<Vec<PathBuf>>,
    versions: FileVersions,
}

impl Reload {
    /// Reads the configuration, and replaces the rules of the server if it is valid. This blocks.
    fn run(self) -> Reloaded {
        let Reload {
            app,
            settings,
            running,
            mut versions,
        } = self;
        match load_after(&settings, &mut versions) {
            Ok(config) => {
                log_warnings(&config, &settings);
                log_restart_needed(&config.settings, &running);
                log_reordered(&app.rules().policies, &config.rules.policies);
                let policies = config.rules.policies.iter().count();
                app.adopt(config.rules);
                count("ok", 1);
                tracing::info!("reloaded the configuration");
                Reloaded {
                    result: Ok(policies),
                    files: Some(paths(&config.settings)),
                    versions,
                }
            }
            Err(why) => {
                let file = settings.file().unwrap_or(Path::new(""));
                let (text, findings) = refusal(why, file);
                tracing::error!("the new configuration is refused, the old one stays: {text}");
                count("rejected", 1);
                Reloaded {
                    result: Err(findings),
                    files: None,
                    versions,
                }
            }
        }
    }
}

/// The text of a refusal on one line, and its findings.
fn refusal(why: InvalidConfig, file: &Path) -> (String, Vec<Finding>) {
    let text = match &why {
        InvalidConfig::File { .. } => why.to_string(),
        _ => String::new(),
    };
    let findings = Finding::of_error(why, file, &BTreeMap::new());
    let text = match findings.as_slice() {
        [only] if text.is_empty() => only.message.clone(),
        _ => text,
    };
    (text.replace('\n', "; "), findings)
}

/// Logs the settings that keep their value until the server is restarted.
fn log_restart_needed(settings: &Settings, running: &Settings) {
    let changes = settings.changes_needing_restart(running);
    if !changes.is_empty() {
        let changes = changes.join(", ");
        tracing::warn!("these changed settings need a restart: {changes}");
    }
}

/// Logs the warnings about a configuration file.
pub(crate) fn log_warnings(config: &Config, settings: &Settings) {
    let Some(path) = settings.file() else { return };
    // The token may come from a flag. `run` logs a missing token, because it knows all settings.
    let warnings = config.warnings.iter();
    for warning in warnings.filter(|warning| warning.code != DiagnosticCode::NoAdminToken) {
        tracing::warn!("{}", warning.in_file(path.display()));
    }
}

/// Logs the policies whose limits changed their order.
fn log_reordered(before: &Policies, after: &Policies) {
    for policy in after.iter() {
        if let Some(before) = before.named(policy.name()) {
            log_reordered_limits(before, policy);
        }
    }
}

fn count(result: &'static str, times: u64) {
    counter!(POLICY_RELOADS, "result" => result).increment(times);
}

/// Digests of the contents of the files that can be read.
///
/// Contents, because a file can be replaced by another one of the same length and modification time.
pub(crate) type FileVersions = BTreeMap<PathBuf, [u8; 32]>;

/// Loads the configuration, and the versions of its files from before they were read.
pub(crate) fn load_with_versions(
    settings: &Settings,
) -> Result<(Config, FileVersions), InvalidConfig> {
    let mut versions = file_versions(&paths(settings));
    let config = load_after(settings, &mut versions)?;
    Ok((config, versions))
}

/// Loads the configuration. `versions` are those of files before this call.
///
/// A file that the configuration names for the first time has no version yet. Its version must be older than what is loaded,
/// or a change in between would never be found: only then the configuration is loaded twice.
fn load_after(settings: &Settings, versions: &mut FileVersions) -> Result<Config, InvalidConfig> {
    let config = Config::load(settings)?;
    let mut new = paths(&config.settings);
    new.retain(|path| !versions.contains_key(path));
    if new.is_empty() {
        return Ok(config);
    }
    versions.extend(file_versions(&new));
    Config::load(settings)
}

/// The files whose change reloads the configuration.
fn paths(settings: &Settings) -> Vec<PathBuf> {
    settings.watched_files().map(Path::to_owned).collect()
}

fn file_versions(paths: &[PathBuf]) -> FileVersions {
    let files = paths.iter().filter_map(|path| {
        // The beginning suffices: a longer file is refused.
        let contents = read_start(path, MAX_FILE_BYTES).ok()?;
        Some((path.clone(), Sha256::digest(contents).into()))
    });
    files.collect()
}
