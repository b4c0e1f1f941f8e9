//! Reloads the configuration.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
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
    finding::Finding,
    missing_files::MissingFiles,
    reload_channel::ReloadRequests,
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Reloads the configuration on SIGHUP, on request, and when its file or the file of the admin token changes; never returns.
///
/// - A configuration with an error is logged and changes nothing.
/// - Settings that are not part of the rules keep the values of `running`. A change of one is logged.
/// - `versions` are the versions of the files before the current configuration was read.
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
    let mut current = running.clone();
    let mut missing = MissingFiles::default();
    loop {
        let (is_requested, caller) = tokio::select! {
            _ = hangup.recv() => (true, None),
            request = requests.recv() => (true, Some(request)),
            () = tokio::time::sleep(POLL_INTERVAL) => (false, None),
        };
        let now = file_versions(&current);
        let unreadable = current
            .watched_files()
            .filter(|path| !now.contains_key(*path));
        missing.log_lost(&unreadable.map(Path::to_owned).collect::<Vec<_>>());
        // A file that cannot be read is not a change: it may be about to be replaced.
        let is_changed = now
            .iter()
            .any(|(path, version)| versions.get(path) != Some(version));
        if !is_requested && !is_changed {
            continue;
        }
        versions.extend(now);
        let result = match load_with_versions(&settings) {
            Ok((config, now)) => {
                versions.extend(now);
                log_warnings(&config, &settings);
                log_restart_needed(&config.settings, &running);
                log_reordered(&app.rules().policies, &config.rules.policies);
                current = config.settings;
                let policies = config.rules.policies.iter().count();
                app.adopt(config.rules);
                count("ok", 1);
                tracing::info!("reloaded the configuration");
                Ok(policies)
            }
            Err(why) => {
                let file = settings.file().unwrap_or(Path::new(""));
                let (text, findings) = refusal(why, file);
                tracing::error!("the new configuration is refused, the old one stays: {text}");
                count("rejected", 1);
                Err(findings)
            }
        };
        if let Some(caller) = caller {
            caller.answer(result);
            // Certificates and Envoy rules are read again by other tasks, as on SIGHUP.
            app.config_state().hangups.send();
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
    // The file names others. A change after their versions were read is in the second load, or is found later.
    let files = Config::load(settings)?.settings;
    let versions = file_versions(&files);
    Ok((Config::load(settings)?, versions))
}

fn file_versions(settings: &Settings) -> FileVersions {
    let files = settings.watched_files().filter_map(|path| {
        let contents = fs::read(path).ok()?;
        Some((path.to_owned(), Sha256::digest(contents).into()))
    });
    files.collect()
}
