//! A key that a rule or a tenant of a policy names.

use std::{borrow::Cow, fmt, str::FromStr};

use ratelimit_core::Key;

use crate::syntax::InvalidSyntax;

/// A key that a rule or a tenant of a policy names by its text.
///
/// | text | the key |
/// |---|---|
/// | `key:user:1` | [`Key::new`] of `user:1`: a key that the caller or the application names |
/// | `printed:user:1` | the key that prints `user:1`, such as [`Key::tagged`] of `user` and `1`, or `printed:header:x-tenant:acme` of [`HeaderKey`](crate::key::HeaderKey) |
/// | `secret:api-key:VALUE` | the key of [`ApiKey`](crate::key::ApiKey) for this value |
/// | `secret:cookie:NAME:VALUE` | the key of [`CookieKey`](crate::key::CookieKey) for this value |
/// | `secret:header:NAME:VALUE` | the key of [`HeaderKey`](crate::key::HeaderKey) for this value, if the name is that of a [credential](crate::key::is_credential); likewise `secret:query:...` and `secret:path:...` |
///
/// The value of a secret is hashed when the text is read. It is neither kept nor shown in errors.
///
/// ```
/// use ratelimit_core::Key;
/// use ratelimit_http::key::RuleKey;
///
/// let user: RuleKey = "printed:user:1".parse()?;
/// assert_eq!(user.key(), &Key::tagged("user", "1").expect("is not empty"));
///
/// let secret: RuleKey = "secret:api-key:s3cr3t".parse()?;
/// assert_eq!(secret.key(), &Key::hashed("api-key", "s3cr3t").expect("is not empty"));
/// assert_eq!(secret.to_string(), "secret:api-key:...");
/// # Ok::<(), ratelimit_http::InvalidSyntax>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleKey {
    key: Key,
    /// The kind of a secret, which its digest does not show.
    secret_kind: Option<Box<str>>,
}

/// The prefix of a secret's text.
const SECRET: &str = "secret:";

impl RuleKey {
    /// The key that a request must have.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The key of a tenant. A text without one of the prefixes is a key that the caller names.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] if the text is empty, or the part after its prefix is invalid.
    pub fn of_tenant(text: &str) -> Result<RuleKey, InvalidSyntax> {
        if let Some(parsed) = RuleKey::parse_prefixed(text) {
            return parsed;
        }
        let key = Key::new(text).map_err(|_| InvalidSyntax::new("tenant", text, "a key"))?;
        Ok(key.into())
    }

    /// The kind of a secret; `None` for other keys.
    pub(crate) fn secret_kind(&self) -> Option<&str> {
        self.secret_kind.as_deref()
    }

    /// Parses a text with a prefix; `None` if it has none.
    pub(crate) fn parse_prefixed(text: &str) -> Option<Result<RuleKey, InvalidSyntax>> {
        let invalid = |expected| InvalidSyntax::new("rule", &without_secret(text), expected);
        if let Some(value) = text.strip_prefix("key:") {
            let key = Key::new(value).map(RuleKey::from);
            return Some(key.map_err(|_| invalid("a key such as key:user:1")));
        }
        if let Some(printed) = text.strip_prefix("printed:") {
            let key = Key::from_printed(printed).map(RuleKey::from);
            return Some(key.map_err(|_| {
                invalid("the text that a key prints, such as printed:header:x-tenant:acme")
            }));
        }
        let secret = text.strip_prefix(SECRET)?.split_once(':');
        let key = secret.and_then(|(kind, value)| {
            let key = Key::hashed(kind, value).ok()?;
            let secret_kind = Some(kind.into());
            Some(RuleKey { key, secret_kind })
        });
        Some(key.ok_or_else(|| {
            invalid("a kind and a value: secret:api-key:VALUE, secret:cookie:NAME:VALUE or secret:header:NAME:VALUE")
        }))
    }
}

/// The text for messages: that of a secret without its value.
pub(crate) fn without_secret(text: &str) -> Cow<'_, str> {
    let start = text.trim_start().get(..SECRET.len());
    if start.is_some_and(|start| start.eq_ignore_ascii_case(SECRET)) {
        return "secret:...".into();
    }
    text.into()
}

impl From<Key> for RuleKey {
    fn from(key: Key) -> RuleKey {
        RuleKey {
            key,
            secret_kind: None,
        }
    }
}

impl FromStr for RuleKey {
    type Err = InvalidSyntax;

    /// Parses `key:TEXT`, `printed:TEXT` or `secret:KIND:VALUE`.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] if the text has another prefix, or the part after it is invalid.
    fn from_str(text: &str) -> Result<RuleKey, InvalidSyntax> {
        let expected = "key:TEXT, printed:TEXT or secret:KIND:VALUE";
        RuleKey::parse_prefixed(text)
            .unwrap_or_else(|| Err(InvalidSyntax::new("key", text, expected)))
    }
}

impl fmt::Display for RuleKey {
    /// Writes the text of the rule. That of a secret has no value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.secret_kind {
            Some(kind) => write!(f, "{SECRET}{kind}:..."),
            None if self.key.as_str().starts_with("key:") => self.key.fmt(f),
            None => write!(f, "printed:{}", self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_neither_by_the_key_nor_by_an_error() {
        let key: RuleKey = "secret:cookie:session:s3cr3t".parse().unwrap();

        assert_eq!(key.key(), &Key::hashed("cookie", "session:s3cr3t").unwrap());
        assert!(!format!("{key} {key:?}").contains("s3cr3t"));
        for wrong in ["secret:s3cr3t", "secret:API:s3cr3t", "secret::s3cr3t"] {
            let error = wrong.parse::<RuleKey>().unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
        }
    }

    #[test]
    fn a_tenant_without_a_prefix_is_an_explicit_key() {
        let tenant = |text: &str| RuleKey::of_tenant(text).unwrap();

        assert_eq!(tenant("user:1"), tenant("key:user:1"));
        assert_eq!(tenant("printed:key:user:1").key(), tenant("user:1").key());
        assert_eq!(tenant("printed:user:1").to_string(), "printed:user:1");
        assert!(RuleKey::of_tenant("").is_err());
    }
}
