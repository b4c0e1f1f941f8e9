//! Goes on with a changed configuration.

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

/// Reads the configuration again on SIGHUP and when its file changes, for as long as it is polled.
///
/// A configuration with a mistake changes nothing. Where to listen and the store stay as they are.
/// `seen` is the mark of the file from before the present configuration was read.
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

/// Logs what is odd about the file of a configuration.
pub(crate) fn log_warnings(config: &Config, settings: &Settings) {
    let Some(path) = settings.file() else { return };
    // A token may come from a flag, so whether one is missing is told by who knows them all.
    let warnings = config.warnings.iter();
    for warning in warnings.filter(|warning| warning.code != DiagnosticCode::NoAdminToken) {
        tracing::warn!("{}", warning.in_file(path.display()));
    }
}

/// Logs the policies whose limits are at other positions than before.
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

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileVersion {
    modified: SystemTime,
    length: u64,
}

/// The mark of the configuration file as it is now.
pub(crate) fn file_version(settings: &Settings) -> Option<FileVersion> {
    let about = fs::metadata(settings.file()?).ok()?;
    Some(FileVersion {
        modified: about.modified().ok()?,
        length: about.len(),
    })
}
