//! The settings of offenders.

use std::time::Duration;

use ratelimit_core::{KeyDisplay, Offenders};

use super::settings::Settings;

/// Maximum number of keys in a log line of offenders.
const MAX_LOGGED_KEYS: usize = 5;

/// The time between two lines of one policy, unless set.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

pub(super) fn offenders(settings: &Settings) -> Offenders {
    let display = settings
        .offender_keys
        .map_or(KeyDisplay::Fingerprint, KeyDisplay::from);
    let offenders = Offenders::new().key_display(display);
    let every = settings.log_offenders.map_or(LOG_INTERVAL, |every| every.0);
    // Zero turns the lines off. `App` sets whether they show keys.
    if every.is_zero() {
        return offenders;
    }
    offenders.log_every(every, MAX_LOGGED_KEYS)
}
