//! The settings of offenders.

use ratelimit_core::{KeyDisplay, Offenders};

use super::settings::Settings;

/// Maximum number of keys in a log line of offenders.
const MAX_LOGGED_KEYS: usize = 5;

pub(super) fn offenders(settings: &Settings) -> Offenders {
    let display = settings
        .offender_keys
        .map_or(KeyDisplay::Fingerprint, KeyDisplay::from);
    let offenders = Offenders::new().key_display(display);
    let Some(every) = settings.log_offenders else {
        return offenders;
    };
    let log_display = match settings.log_keys {
        Some(true) => KeyDisplay::Plain,
        _ => KeyDisplay::Fingerprint,
    };
    offenders
        .log_every(every.0, MAX_LOGGED_KEYS)
        .log_key_display(log_display)
}
