//! Reloads the configuration.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use metrics::counter;
use ratelimit_http::policy_file::DiagnosticCode;
use ratelimit_http::{metrics::POLICY_RELOADS, registry::log_reordered_limits};
use tokio::signal::unix::Signal;

use crate::{
    app::App,
    cli_error::CliError,
    config::{Config, Policies, Settings},
};

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Reloads the configuration on SIGHUP and when its file changes; never returns.
///
/// - A configuration with an error is logged and changes nothing.
/// - The listen address and the store are not reloaded.
/// - `version` is the version of the file before the current configuration was read.
pub(crate) async fn follow(
    app: App,
    settings: Settings,
    mut version: Option<FileVersion>,
    mut hangup: Signal,
) {
    count("ok", 0);
    count("rejected", 0);
    loop {
        let is_requested = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(POLL_INTERVAL) => false,
        };
        let now = file_version(&settings);
        if !is_requested && (now == version || now.is_none()) {
            continue;
        }
        version = now;
        match Config::load(&settings) {
            Ok(config) => {
                log_warnings(&config, &settings);
                log_reordered(&app.rules().policies, &config.rules.policies);
                app.adopt(config.rules);
                count("ok", 1);
                tracing::info!("reloaded the configuration");
            }
            Err(why) => {
                count("rejected", 1);
                let why = CliError::from(why).to_string().replace('\n', "; ");
                tracing::error!("the new configuration is refused, the old one stays: {why}");
            }
        }
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

/// Modification time and length of a file; a change of either means a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    modified: SystemTime,
    length: u64,
}

/// The current version of the configuration file.
pub(crate) fn file_version(settings: &Settings) -> Option<FileVersion> {
    let about = fs::metadata(settings.file()?).ok()?;
    Some(FileVersion {
        modified: about.modified().ok()?,
        length: about.len(),
    })
}
