//! Policies from a file.

use std::{error, fmt};

use crate::metrics;
use crate::registry::Registry;
use crate::{
    handler::MissingPolicies,
    policy_file::{Format, InvalidPolicyFile, PolicyFile},
};

impl Registry {
    /// The policies of the table `policy`: a text of limits each, or a table with more fields.
    ///
    /// Warnings are left out; [`PolicyFile::parse`] tells them.
    ///
    /// ```
    /// use ratelimit_http::registry::Registry;
    ///
    /// let registry = Registry::from_toml(r#"
    ///     [policy]
    ///     comment = "10/min; 100/d"
    ///     login = { limits = "5/min", on_failure = "closed" }
    ///     search = { limits = "100/s", on_failure = "local_share", instances = 4 }
    /// "#)?;
    /// assert_eq!(registry.names().len(), 3);
    /// # Ok::<(), ratelimit_http::policy_file::InvalidPolicyFile>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the text is not TOML, or something in it is not known; all that is wrong is told.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Registry, InvalidPolicyFile> {
        Registry::from_text(text, Format::Toml)
    }

    /// The same as [`from_toml`](Registry::from_toml), from YAML.
    ///
    /// ```
    /// use ratelimit_http::registry::Registry;
    ///
    /// let registry = Registry::from_yaml("
    /// policy:
    ///   comment: 10/min; 100/d
    ///   login:
    ///     limits: 5/min
    ///     on_failure: closed
    /// ")?;
    /// assert_eq!(registry.names().len(), 2);
    /// # Ok::<(), ratelimit_http::policy_file::InvalidPolicyFile>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the text is not plain YAML, or something in it is not known; all that is wrong is told.
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Registry, InvalidPolicyFile> {
        Registry::from_text(text, Format::Yaml)
    }

    /// Puts the policies of this text in place of all there are, or none of them.
    ///
    /// Policies that keep their names keep what was spent under them. Each call counts in
    /// [`POLICY_RELOADS`](crate::metrics::POLICY_RELOADS).
    ///
    /// # Errors
    ///
    /// As [`Registry::from_toml`] and [`Registry::replace`]; then nothing has changed.
    #[cfg(feature = "toml")]
    pub fn reload_toml(&self, text: &str) -> Result<(), ReloadError> {
        self.reload(text, Format::Toml)
    }

    /// The same as [`reload_toml`](Registry::reload_toml), from YAML.
    ///
    /// # Errors
    ///
    /// As [`Registry::from_yaml`] and [`Registry::replace`]; then nothing has changed.
    #[cfg(feature = "yaml")]
    pub fn reload_yaml(&self, text: &str) -> Result<(), ReloadError> {
        self.reload(text, Format::Yaml)
    }

    fn from_text(text: &str, format: Format) -> Result<Registry, InvalidPolicyFile> {
        let policies = PolicyFile::parse(text, format).accepted()?;
        Ok(Registry::from_policies(policies))
    }

    fn reload(&self, text: &str, format: Format) -> Result<(), ReloadError> {
        let reloaded = self.put_in_place(text, format);
        metrics::count_reload(if reloaded.is_ok() { "ok" } else { "rejected" });
        reloaded
    }

    fn put_in_place(&self, text: &str, format: Format) -> Result<(), ReloadError> {
        let policies = PolicyFile::parse(text, format)
            .accepted()
            .map_err(ReloadError::Invalid)?;
        self.replace(policies).map_err(ReloadError::Missing)
    }
}

/// Why the policies stay as they were.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReloadError {
    /// The file has mistakes.
    Invalid(InvalidPolicyFile),
    /// Attributes of this program name policies that would be gone.
    Missing(MissingPolicies),
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Invalid(invalid) => invalid.fmt(f),
            ReloadError::Missing(missing) => missing.fmt(f),
        }
    }
}

impl error::Error for ReloadError {}
