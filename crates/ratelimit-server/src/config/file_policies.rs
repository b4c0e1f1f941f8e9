//! The policies of a configuration file alone.

use std::path::Path;

use ratelimit_http::policy_file::Diagnostic;

use super::{file::ConfigFile, invalid::InvalidConfig, policies::Policies};

/// The policies of a configuration file, and the warnings about the file. Its other settings are read and not applied.
pub(crate) fn file_policies(path: &Path) -> Result<(Policies, Vec<Diagnostic>), InvalidConfig> {
    let file = ConfigFile::read(path)?;
    Ok((Policies::new(file.settings.policy), file.warnings))
}
