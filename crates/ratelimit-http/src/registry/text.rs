//! Registries from policy files.

use std::{error, fmt};

use crate::metrics;
use crate::policy_file::{Format, InvalidPolicyFile, PolicyFile};
use crate::registry::{MissingPolicies, Registry};

impl Registry {
    /// A registry of the policies in a TOML text. Its table `policy` has a text of limits or a table of
    /// fields for each name.
    ///
    /// Warnings are dropped; [`PolicyFile::parse`] returns them.
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
    /// [`InvalidPolicyFile`] if the text is not TOML, or a field, limit or value is invalid. It contains all
    /// diagnostics, not only the first.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Registry, InvalidPolicyFile> {
        Registry::from_text(text, Format::Toml)
    }

    /// A registry of the policies in a YAML text, with the fields of [`from_toml`](Registry::from_toml).
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
    /// [`InvalidPolicyFile`] if the text is not YAML, uses aliases or tags, or a field, limit or value is
    /// invalid. It contains all diagnostics, not only the first.
    #[cfg(feature = "yaml")]
    pub fn from_yaml(text: &str) -> Result<Registry, InvalidPolicyFile> {
        Registry::from_text(text, Format::Yaml)
    }

    /// Replaces all policies by those of a TOML text, or none if the text has an error.
    ///
    /// ```
    /// use ratelimit_http::registry::Registry;
    ///
    /// let registry = Registry::from_toml("[policy]\nlogin = '5/min'")?;
    /// registry.reload_toml("[policy]\nlogin = '3/min'")?;
    /// assert!(registry.reload_toml("[policy]\nlogin = 'often'").is_err());
    /// assert_eq!(registry.get("login").expect("is there").to_string(), "token_bucket 3/min");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Policies that keep their name keep the spent budgets. Each call is counted in
    /// [`POLICY_RELOADS`](crate::metrics::POLICY_RELOADS).
    ///
    /// # Errors
    ///
    /// The registry is unchanged after an error:
    ///
    /// - [`ReloadError::Invalid`] as in [`Registry::from_toml`].
    /// - [`ReloadError::Missing`] as in [`Registry::replace`].
    #[cfg(feature = "toml")]
    pub fn reload_toml(&self, text: &str) -> Result<(), ReloadError> {
        self.reload(text, Format::Toml)
    }

    /// Replaces all policies by those of a YAML text, as [`reload_toml`](Registry::reload_toml) does.
    ///
    /// # Errors
    ///
    /// The registry is unchanged after an error:
    ///
    /// - [`ReloadError::Invalid`] as in [`Registry::from_yaml`].
    /// - [`ReloadError::Missing`] as in [`Registry::replace`].
    #[cfg(feature = "yaml")]
    pub fn reload_yaml(&self, text: &str) -> Result<(), ReloadError> {
        self.reload(text, Format::Yaml)
    }

    fn from_text(text: &str, format: Format) -> Result<Registry, InvalidPolicyFile> {
        let policies = PolicyFile::parse(text, format).accepted()?;
        Ok(Registry::from_policies(policies))
    }

    /// Replaces the policies and counts the result.
    fn reload(&self, text: &str, format: Format) -> Result<(), ReloadError> {
        let reloaded = self.replace_by_text(text, format);
        metrics::count_reload(if reloaded.is_ok() { "ok" } else { "rejected" });
        reloaded
    }

    fn replace_by_text(&self, text: &str, format: Format) -> Result<(), ReloadError> {
        let policies = PolicyFile::parse(text, format)
            .accepted()
            .map_err(ReloadError::Invalid)?;
        self.replace(policies).map_err(ReloadError::Missing)
    }
}

/// The error of a reload. The registry keeps its previous policies.
#[non_exhaustive]
pub enum ReloadError {
    /// The file has errors.
    Invalid(InvalidPolicyFile),
    /// Attributes of the program name policies that would be removed.
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

debug_as_display!(ReloadError);

impl error::Error for ReloadError {}
