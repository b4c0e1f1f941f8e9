//! Policies written in TOML.

use std::{fmt, num::NonZeroU32};

use toml::{Table, Value};

use super::Registry;
use crate::{
    attributes::MissingPolicies,
    policy::{FailureMode, InvalidPolicy, Policy},
};

impl Registry {
    /// The policies of the table `policy`: a text of limits each, or a table with a failure mode.
    ///
    /// ```
    /// use ratelimit_core::Registry;
    ///
    /// let registry = Registry::from_toml(r#"
    ///     [policy]
    ///     comment = "10/min; 100/d"
    ///     login = { limits = "5/min", on_failure = "closed" }
    ///     search = { limits = "100/s", on_failure = "local_share", instances = 4 }
    /// "#)?;
    /// assert_eq!(registry.names().len(), 3);
    /// # Ok::<(), ratelimit_core::InvalidRegistry>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When the text is not TOML, or a policy is not one.
    pub fn from_toml(text: &str) -> Result<Registry, InvalidRegistry> {
        Ok(Registry::of(policies(text)?))
    }

    /// Puts the policies of this text in place of all there are, or none of them.
    ///
    /// Policies that keep their names keep what was spent under them.
    ///
    /// # Errors
    ///
    /// As [`Registry::from_toml`], and as [`Registry::replace`]; then nothing has changed.
    pub fn reload_toml(&self, text: &str) -> Result<(), InvalidRegistry> {
        self.replace(policies(text)?)?;
        Ok(())
    }
}

fn policies(text: &str) -> Result<Vec<Policy>, InvalidRegistry> {
    let mut file: Table = text.parse().map_err(|source| InvalidRegistry::Toml {
        source: Box::new(source),
    })?;
    let Some(Value::Table(policies)) = file.remove("policy") else {
        return Err(InvalidRegistry::NoTable);
    };
    policies
        .iter()
        .map(|(name, value)| policy(name, value))
        .collect()
}

fn policy(name: &str, value: &Value) -> Result<Policy, InvalidRegistry> {
    let invalid = |source| InvalidRegistry::Policy {
        name: name.to_owned(),
        source,
    };
    let odd = |what| InvalidRegistry::Entry {
        name: name.to_owned(),
        what,
    };
    let table = match value {
        Value::String(limits) => return Policy::parse(name, limits).map_err(invalid),
        Value::Table(table) => table,
        _ => return Err(odd("a text of limits, or a table with `limits`")),
    };
    let known = ["limits", "on_failure", "instances"];
    if table.keys().any(|key| !known.contains(&key.as_str())) {
        return Err(odd("no other keys than limits, on_failure and instances"));
    }
    let Some(limits) = table.get("limits").and_then(Value::as_str) else {
        return Err(odd("`limits`, a text such as \"5/min\""));
    };
    let policy = Policy::parse(name, limits).map_err(invalid)?;
    let Some(mode) = table.get("on_failure") else {
        return Ok(policy);
    };
    let mode = failure_mode(mode, table.get("instances")).map_err(odd)?;
    Ok(policy.on_failure(mode))
}

fn failure_mode(mode: &Value, instances: Option<&Value>) -> Result<FailureMode, &'static str> {
    match mode.as_str() {
        Some("local") => Ok(FailureMode::Local),
        Some("open") => Ok(FailureMode::Open),
        Some("closed") => Ok(FailureMode::Closed),
        Some("local_share") => {
            let instances = instances.and_then(Value::as_integer);
            let instances = instances.and_then(|count| u32::try_from(count).ok());
            let instances = instances.and_then(NonZeroU32::new);
            let instances = instances.ok_or("`instances`, at least 1, for local_share")?;
            Ok(FailureMode::LocalShare { instances })
        }
        _ => Err("`on_failure` to be local, local_share, open or closed"),
    }
}

/// Why a text is not that of a registry.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidRegistry {
    /// It is not TOML.
    Toml {
        /// Where, and what was expected.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It has no table `policy`.
    NoTable,
    /// A policy is written in an unknown way.
    Entry {
        /// Its name.
        name: String,
        /// What was expected.
        what: &'static str,
    },
    /// A name or its limits cannot be a policy.
    Policy {
        /// The name.
        name: String,
        /// What is wrong with it.
        source: InvalidPolicy,
    },
    /// Attributes of this program name policies that are not there.
    Missing(MissingPolicies),
}

impl From<MissingPolicies> for InvalidRegistry {
    fn from(missing: MissingPolicies) -> InvalidRegistry {
        InvalidRegistry::Missing(missing)
    }
}

impl fmt::Display for InvalidRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidRegistry::Toml { source } => write!(f, "the policies are not TOML: {source}"),
            InvalidRegistry::NoTable => f.write_str("expected a table [policy]"),
            InvalidRegistry::Entry { name, what } => {
                write!(f, "policy {name:?}: expected {what}")
            }
            InvalidRegistry::Policy { name, source } => write!(f, "policy {name:?}: {source}"),
            InvalidRegistry::Missing(missing) => missing.fmt(f),
        }
    }
}

impl std::error::Error for InvalidRegistry {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_says_where_it_is_and_changes_nothing() {
        let registry = Registry::from_toml("[policy]\nlogin = '5/min'").unwrap();
        for (text, told) in [
            ("policy", "the policies are not TOML"),
            ("[other]", "expected a table [policy]"),
            (
                "[policy]\nlogin = 5",
                "policy \"login\": expected a text of limits",
            ),
            (
                "[policy]\nlogin = '5/fortnight'",
                "policy \"login\": expected a period",
            ),
            (
                "[policy]\nlogin = { limits = '5/min', burst = 3 }",
                "policy \"login\": expected no other keys",
            ),
            (
                "[policy]\nlogin = { limits = '5/min', on_failure = 'ignore' }",
                "policy \"login\": expected `on_failure` to be",
            ),
        ] {
            let error = registry.reload_toml(text).unwrap_err().to_string();

            assert!(error.starts_with(told), "{error}");
            assert_eq!(
                registry.get("login").unwrap().to_string(),
                "token_bucket 5/min"
            );
        }
    }
}
