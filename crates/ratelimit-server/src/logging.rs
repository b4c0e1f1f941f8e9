//! Logging to standard error.

use std::io;

use tracing_subscriber::{Layer as _, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::config::{Config, LogFormat};

/// Installs the global subscriber, unless the process already has one.
pub(crate) fn start(config: &Config) {
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match config.log_format {
        LogFormat::Text => {
            let ansi = io::IsTerminal::is_terminal(&io::stderr());
            lines.with_ansi(ansi).boxed()
        }
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let filtered = lines.with_filter(config.log.clone());
    // An error means that the process already has a subscriber, which receives the events.
    let _ = tracing_subscriber::registry().with(filtered).try_init();
}
