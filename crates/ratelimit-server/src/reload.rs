//! Goes on with a changed configuration.

use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use tokio::signal::unix::Signal;

use crate::{
    app::App,
    config::{Config, Settings},
    failure::Failure,
};

const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Reads the configuration again on SIGHUP and when its file changes, for as long as it is polled.
///
/// A configuration with a mistake changes nothing. Where to listen and the store stay as they are.
pub(crate) async fn follow(app: App, settings: Settings, mut hangup: Signal) {
    let mut seen = settings.file().and_then(mark);
    loop {
        let asked = tokio::select! {
            _ = hangup.recv() => true,
            () = tokio::time::sleep(BETWEEN_LOOKS) => false,
        };
        let now = settings.file().and_then(mark);
        if !asked && (now == seen || now.is_none()) {
            continue;
        }
        seen = now;
        match Config::load(&settings) {
            Ok(config) => {
                app.adopt(config.rules);
                tracing::info!("reloaded the configuration");
            }
            Err(why) => {
                let why = Failure::from(why);
                tracing::error!("the new configuration is refused, the old one stays: {why}");
            }
        }
    }
}

/// What changes when a file does.
fn mark(path: &Path) -> Option<(SystemTime, u64)> {
    let about = fs::metadata(path).ok()?;
    Some((about.modified().ok()?, about.len()))
}
