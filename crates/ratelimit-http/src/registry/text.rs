//! Registries from policy files.

use std::{error, fmt, io};

use crate::metrics;
use crate::policy_file::{Format, InvalidPolicyFile, PolicyFile};
use crate::registry::{MissingPolicies, Registry};

impl Registry {
    /// A registry of the policies in a TOML text. Its table `policy` has a text of limits or a table of
    /// fields for each name.
    ///
    /// Warnings are logged; [`PolicyFile::parse`] returns them. [`watch`](Registry::watch) follows a file.
    ///
    /// ```
    /// use ratelimit_http::registry::Registry;
    ///
    /// let registry = Registry::from_toml(r#"
    ///     [policy]
    ///     comment = "10/min; fixed_window 100/d"
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
    ///   comment: 10/min; fixed_window 100/d
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
    /// [`POLICY_RELOADS`](crate::metrics::POLICY_RELOADS), and [`CONFIG_OK`](crate::metrics::CONFIG_OK) is 0 after
    /// an error until a text is accepted. Warnings are logged.
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
        let policies = PolicyFile::parse(text, format).accepted_with_warnings(None)?;
        Ok(Registry::from_policies(policies))
    }

    /// Replaces the policies and counts the result.
    fn reload(&self, text: &str, format: Format) -> Result<(), ReloadError> {
        let reloaded = self.replace_by_text(text, format);
        metrics::count_reload(reloaded.is_ok());
        reloaded
    }

    fn replace_by_text(&self, text: &str, format: Format) -> Result<(), ReloadError> {
        let policies = PolicyFile::parse(text, format)
            .accepted_with_warnings(None)
            .map_err(ReloadError::Invalid)?;
        self.replace(policies).map_err(ReloadError::Missing)
    }
}

/// The error of a reload. The registry keeps its previous policies.
#[non_exhaustive]
pub enum ReloadError {
    /// The file has errors.
    Invalid(InvalidPolicyFile),
    /// The program uses policies that would be removed.
    Missing(MissingPolicies),
    /// The file cannot be read or watched.
    Io(io::Error),
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReloadError::Invalid(invalid) => invalid.fmt(f),
            ReloadError::Missing(missing) => missing.fmt(f),
            ReloadError::Io(error) => write!(f, "the policy file cannot be read: {error}"),
        }
    }
}

debug_as_display!(ReloadError);

impl error::Error for ReloadError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            ReloadError::Io(error) => Some(error),
            ReloadError::Invalid(_) | ReloadError::Missing(_) => None,
        }
    }
}

#[cfg(test)]
#[cfg(feature = "toml")]
mod tests {
    use super::*;
    use crate::registry::test_log::Log;

    #[test]
    fn the_warnings_about_a_text_are_logged_unless_it_has_an_error() {
        let log = Log::default();
        let text = "[policy]\nsearch = '10/s; 1000/s'\n";

        tracing::subscriber::with_default(log.clone(), || {
            let registry = Registry::from_toml(text).unwrap();
            assert!(log.take()[0].contains("policy file, line 2: warning[shadowed-limit]"));
            registry.reload_toml(text).unwrap();
            assert_eq!(log.take().len(), 1);
            let broken = format!("{text}login = 'many'\n");
            assert!(registry.reload_toml(&broken).is_err());
            assert_eq!(log.take(), [""; 0], "the error has the warnings");
        });
    }
}
