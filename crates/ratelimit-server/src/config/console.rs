//! The mode of the console.

use std::io::{self, IsTerminal as _};

use super::{
    invalid::{ConflictingSettings, InvalidConfig},
    resolved::Config,
    values::ConsoleMode,
};

impl Config {
    /// The mode that was set.
    pub(crate) const fn console(&self) -> Option<ConsoleMode> {
        self.settings.console
    }

    /// Whether offenders are shown by their keys, and not by digests.
    #[cfg(feature = "console")]
    pub(crate) fn shows_offender_keys(&self) -> bool {
        self.settings.offender_keys == Some(super::values::OffenderKeys::Shown)
    }

    /// Whether admin calls are possible: a token, or none needed. On a terminal the server makes a token.
    fn has_admin_access(&self) -> bool {
        let has_setting = self.rules.admin.is_some() || self.admin_without_token;
        has_setting || io::stdout().is_terminal()
    }

    /// Checks that a console which was asked for can be used.
    pub(super) fn check_console(&self) -> Result<(), InvalidConfig> {
        if matches!(self.settings.console, None | Some(ConsoleMode::Off)) {
            return Ok(());
        }
        let why = if !cfg!(feature = "console") {
            "is not part of this build, which was made without the cargo feature `console`; set it to off"
        } else if !self.has_admin_access() {
            "has no effect without admin access: set admin-token-file or admin-without-token"
        } else {
            return Ok(());
        };
        Err(InvalidConfig::Conflict(ConflictingSettings {
            setting: "console",
            why,
        }))
    }
}
