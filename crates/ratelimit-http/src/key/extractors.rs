//! Keys from named values of a request: headers, cookies, query parameters.

use std::{fmt, sync::Arc};

use crate::key::{credential::key_of_named, explicit::ExplicitKey, kinds::KeyKinds};
use crate::{framework::RequestHead, key::error::KeyError, syntax::is_token};
use ratelimit_core::Key;

/// The value of one header, for headers that a gateway sets or checks.
///
/// - An absent or empty header is [`KeyError::Missing`], two lines are [`KeyError::Ambiguous`].
/// - A client that can write the header itself can escape its limit.
/// - The key contains only a digest of the value if the name is that of a [credential](crate::key::is_credential), such as
///   `Authorization`. For API keys [`ApiKey`] is better: it also reads bearer tokens.
/// - `N` is the name type of the framework, so that a name is parsed once.
#[derive(Clone, Debug)]
pub struct HeaderKey<N>(N);

impl<N> HeaderKey<N> {
    /// Counts by the header `name`.
    pub const fn new(name: N) -> HeaderKey<N> {
        HeaderKey(name)
    }

    /// The header's name.
    pub const fn name(&self) -> &N {
        &self.0
    }
}

impl<N: AsRef<str>> HeaderKey<N> {
    /// The kinds of keys that it makes.
    pub fn kinds(&self) -> KeyKinds {
        KeyKinds::of_named("header", self.0.as_ref())
    }

    /// The key for the lines of the header.
    ///
    /// ```
    /// use ratelimit_http::key::{HeaderKey, KeyError};
    ///
    /// let tenant = HeaderKey::new("x-tenant");
    /// let key = |lines: &[&'static str]| tenant.extract_key(lines.iter().map(|line| line.as_bytes()));
    /// assert_eq!(key(&["acme"])?.as_str(), "header:x-tenant:acme");
    /// assert_eq!(key(&[]), Err(KeyError::Missing));
    /// assert_eq!(key(&["acme", "evil"]), Err(KeyError::Ambiguous));
    ///
    /// let secret = HeaderKey::new("authorization").extract_key([&b"Basic YWxpY2U6czNjcjN0"[..]].into_iter())?;
    /// assert!(secret.as_str().starts_with("sha256~"));
    /// # Ok::<(), KeyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`KeyError::Missing`] if there is no line, or an empty one.
    /// - [`KeyError::Ambiguous`] if there is more than one line.
    /// - [`KeyError::Invalid`] if the value is too long for a key.
    pub fn extract_key<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) -> Result<Key, KeyError> {
        let value = only(lines.map(<[u8]>::trim_ascii))?;
        // A header's name contains no colon, so the pair is unambiguous.
        Ok(key_of_named("header", self.0.as_ref(), value)?)
    }
}

/// The caller's API key: `X-Api-Key`, or else the token of `Authorization: Bearer`.
///
/// - The key contains a digest of the secret, never the secret itself.
/// - The extractor does not authenticate. Put the limit behind authentication, or a caller escapes it
///   by inventing keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiKey;

impl ApiKey {
    /// The kinds of keys that it makes.
    pub fn kinds(self) -> KeyKinds {
        KeyKinds::hashed("api-key")
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// - [`KeyError::Missing`] if the request has neither header, or another authorization scheme.
    /// - [`KeyError::Ambiguous`] if a header has more than one line.
    pub fn extract_key(self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let single = |name| only(request.lines(name).map(<[u8]>::trim_ascii));
        let value = match single("x-api-key") {
            Err(KeyError::Missing) => bearer(single("authorization")?)?,
            found => found?,
        };
        Ok(Key::hashed("api-key", value)?)
    }
}

/// The token of a bearer authorization.
fn bearer(authorization: &[u8]) -> Result<&[u8], KeyError> {
    let (scheme, token) = authorization
        .split_first_chunk::<7>()
        .ok_or(KeyError::Missing)?;
    let token = token.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(KeyError::Missing);
    }
    Ok(token)
}

/// The value of one cookie, such as a session.
///
/// - The key contains a digest of the value, never the value itself.
/// - A cookie without authentication can be invented, as in [`ApiKey`].
#[derive(Clone, Debug)]
pub struct CookieKey(Box<str>);

impl CookieKey {
    /// Counts by the cookie `name`.
    ///
    /// # Panics
    ///
    /// If `name` is not a token of HTTP.
    pub fn new(name: &str) -> CookieKey {
        assert!(is_token(name), "a cookie's name is a token of HTTP");
        CookieKey(name.into())
    }

    /// The kinds of keys that it makes.
    pub fn kinds(&self) -> KeyKinds {
        KeyKinds::hashed("cookie")
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// - [`KeyError::Missing`] if the request has no such cookie, or an empty one.
    /// - [`KeyError::Ambiguous`] if it has more than one.
    pub fn extract_key(&self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let lines = request.lines("cookie");
        let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';'));
        let value = only(pairs.filter_map(|pair| {
            let value = pair.trim_ascii().strip_prefix(self.0.as_bytes())?;
            Some(value.trim_ascii_start().strip_prefix(b"=")?.trim_ascii())
        }))?;
        let named = [self.0.as_bytes(), b":", value].concat();
        Ok(Key::hashed("cookie", named)?)
    }
}

/// The single value. None and an empty one are missing, two are ambiguous.
fn only<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Result<&'a [u8], KeyError> {
    let value = values.next().ok_or(KeyError::Missing)?;
    if values.next().is_some() {
        return Err(KeyError::Ambiguous);
    }
    if value.is_empty() {
        return Err(KeyError::Missing);
    }
    Ok(value)
}

/// The value of one query parameter that passes a validator.
///
/// - The key contains only a digest of the value if the name is that of a [credential](crate::key::is_credential), such as
///   `access_token`.
/// - Values are percent-decoded and have at most 256 bytes.
/// - A client that chooses its own key can escape its limit, so let the validator accept only known
///   values.
#[derive(Clone)]
pub struct QueryKey {
    name: Box<str>,
    is_valid: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl QueryKey {
    /// Counts by the parameter `name` if its value passes `is_valid`.
    ///
    /// # Panics
    ///
    /// If `name` is not a token of HTTP: letters, digits and ``!#$%&'*+-.^_`|~``.
    pub fn new(name: &str, is_valid: impl Fn(&str) -> bool + Send + Sync + 'static) -> QueryKey {
        assert!(is_token(name), "the name of a parameter is a token of HTTP");
        QueryKey {
            name: name.into(),
            is_valid: Arc::new(is_valid),
        }
    }

    /// The kinds of keys that it makes.
    pub fn kinds(&self) -> KeyKinds {
        KeyKinds::of_named("query", &self.name)
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// - [`KeyError::Missing`] if the query has no such parameter, or an empty one.
    /// - [`KeyError::Ambiguous`] if it has more than one.
    /// - [`KeyError::Invalid`] if the value fails the validator or is malformed.
    pub fn extract_key(&self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let value = ExplicitKey::from_query(request.query().as_bytes(), &self.name)?;
        let value = value.ok_or(KeyError::Missing)?;
        if !(self.is_valid)(value.as_str()) {
            return Err(KeyError::Invalid);
        }
        Ok(key_of_named(
            "query",
            &self.name,
            value.as_str().as_bytes(),
        )?)
    }
}

impl fmt::Debug for QueryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
