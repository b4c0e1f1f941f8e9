//! Keys that stand in the request under a name.

use std::{fmt, sync::Arc};

use crate::key::explicit::ExplicitKey;
use crate::{key::error::KeyError, middleware::RequestHead, syntax::is_token};
use ratelimit_core::Key;

/// The value of one header, for headers that a gateway sets or checks.
///
/// A client that writes the header itself can escape its limit. Absent or empty is missing, two
/// lines are ambiguous.
#[derive(Clone, Debug)]
pub struct HeaderKey<N>(N);

impl<N> HeaderKey<N> {
    /// The value of the header `name`.
    pub const fn new(name: N) -> HeaderKey<N> {
        HeaderKey(name)
    }

    /// The header's name.
    pub const fn name(&self) -> &N {
        &self.0
    }
}

impl<N: AsRef<str>> HeaderKey<N> {
    /// The key that the lines of the header make.
    ///
    /// # Errors
    ///
    /// When there is no value, or more than one.
    pub fn extract_key<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) -> Result<Key, KeyError> {
        let value = only(lines.map(<[u8]>::trim_ascii))?;
        // A header's name holds no colon, so name and value cannot be told wrong.
        let named = [self.0.as_ref().as_bytes(), b":", value].concat();
        Ok(Key::tagged("header", named)?)
    }
}

/// The caller's API key: `X-Api-Key`, or else the token of `Authorization: Bearer`.
///
/// Only a digest of it is kept. Nobody checks here whether it is a good one: put the limit behind
/// the check, or a caller escapes it by inventing keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiKey;

impl ApiKey {
    /// The key of a request.
    ///
    /// # Errors
    ///
    /// When there is no API key, or more than one.
    pub fn extract_key(self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let single = |name| only(request.lines(name).map(<[u8]>::trim_ascii));
        let value = match single("x-api-key") {
            Err(KeyError::Missing) => bearer(single("authorization")?)?,
            found => found?,
        };
        Ok(Key::hashed("api-key", value)?)
    }
}

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

/// The value of one cookie; only a digest of it is kept.
///
/// A cookie that nobody checked is the client's word: see [`ApiKey`]. Absent or empty is missing,
/// two of the name are ambiguous.
#[derive(Clone, Debug)]
pub struct CookieKey(Box<str>);

impl CookieKey {
    /// The value of the cookie `name`.
    ///
    /// # Panics
    ///
    /// When `name` is not one that a cookie can have.
    pub fn new(name: &str) -> CookieKey {
        assert!(is_token(name), "a cookie's name is a token of HTTP");
        CookieKey(name.into())
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// When there is no such cookie, or more than one.
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

/// The one value there is: none or an empty one is missing.
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
/// A client that can name its own key can escape its limit: let only values pass that are known.
/// Values are percent-decoded. Absent or empty is missing, two of the name are ambiguous, and what
/// the validator refuses, or is longer than 256 bytes, is answered with 400.
#[derive(Clone)]
pub struct QueryKey {
    name: Box<str>,
    is_valid: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl QueryKey {
    /// The value of the parameter `name`, if it passes `is_valid`.
    ///
    /// # Panics
    ///
    /// When `name` is not a token of HTTP: letters, digits and ``!#$%&'*+-.^_`|~``.
    pub fn new(name: &str, is_valid: impl Fn(&str) -> bool + Send + Sync + 'static) -> QueryKey {
        assert!(is_token(name), "the name of a parameter is a token of HTTP");
        QueryKey {
            name: name.into(),
            is_valid: Arc::new(is_valid),
        }
    }

    /// The key of a request.
    ///
    /// # Errors
    ///
    /// When there is no such parameter, more than one, or one that is not valid.
    pub fn extract_key(&self, request: &impl RequestHead) -> Result<Key, KeyError> {
        let value = ExplicitKey::from_query(request.query().as_bytes(), &self.name)?;
        let value = value.ok_or(KeyError::Missing)?;
        if !(self.is_valid)(value.as_str()) {
            return Err(KeyError::Invalid);
        }
        let named = format!("{}:{}", self.name, value.as_str());
        Ok(Key::tagged("query", named)?)
    }
}

impl fmt::Debug for QueryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryKey")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
