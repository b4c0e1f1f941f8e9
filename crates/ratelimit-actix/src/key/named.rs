//! Keys that stand in the request under a name, and what it asks for.

use std::{fmt, sync::Arc};

use actix_web::{
    HttpRequest,
    http::{
        Method,
        header::{self, HeaderMap, HeaderName},
    },
};
use ratelimit_core::{ExplicitKey, Key};

use super::{KeyExtractor, NoKey};

/// The value of one header, for headers that a gateway sets or checks.
///
/// A client that writes the header itself can escape its limit. Absent or empty is missing, two
/// lines are ambiguous.
#[derive(Clone, Debug)]
pub struct HeaderKey(HeaderName);

impl HeaderKey {
    /// The value of the header `name`.
    pub const fn new(name: HeaderName) -> HeaderKey {
        HeaderKey(name)
    }
}

impl KeyExtractor for HeaderKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        let value = single(request.headers(), &self.0)?;
        // A header's name holds no colon, so name and value cannot be told wrong.
        let named = [self.0.as_str().as_bytes(), b":", value].concat();
        Ok(Key::tagged("header", named)?)
    }
}

/// The caller's API key: `X-Api-Key`, or else the token of `Authorization: Bearer`.
///
/// Only a digest of it is kept. Nobody checks here whether it is a good one: put the limit behind
/// the check, or a caller escapes it by inventing keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApiKey;

impl KeyExtractor for ApiKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        let headers = request.headers();
        let value = match single(headers, &HeaderName::from_static("x-api-key")) {
            Err(NoKey::Missing) => bearer(single(headers, &header::AUTHORIZATION)?)?,
            found => found?,
        };
        Ok(Key::secret("api-key", value)?)
    }
}

fn bearer(authorization: &[u8]) -> Result<&[u8], NoKey> {
    let (scheme, token) = authorization
        .split_first_chunk::<7>()
        .ok_or(NoKey::Missing)?;
    let token = token.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(NoKey::Missing);
    }
    Ok(token)
}

/// The one value of a header, without the spaces around it.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<&'a [u8], NoKey> {
    let mut lines = headers.get_all(name);
    let value = lines.next().ok_or(NoKey::Missing)?.as_bytes().trim_ascii();
    if lines.next().is_some() {
        return Err(NoKey::AmbiguousKey);
    }
    if value.is_empty() {
        return Err(NoKey::Missing);
    }
    Ok(value)
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
}

impl KeyExtractor for CookieKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        let lines = request.headers().get_all(header::COOKIE);
        let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| {
            let value = pair.trim_ascii().strip_prefix(self.0.as_bytes())?;
            Some(value.trim_ascii_start().strip_prefix(b"=")?.trim_ascii())
        });
        let value = values.next().ok_or(NoKey::Missing)?;
        if values.next().is_some() {
            return Err(NoKey::AmbiguousKey);
        }
        if value.is_empty() {
            return Err(NoKey::Missing);
        }
        let named = [self.0.as_bytes(), b":", value].concat();
        Ok(Key::secret("cookie", named)?)
    }
}

/// The value of one query parameter that passes a validator.
///
/// A client that can name its own key can escape its limit: let only values pass that are known.
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
}

impl KeyExtractor for QueryKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        let query = request.query_string().as_bytes();
        let value = ExplicitKey::from_query(query, &self.name)?.ok_or(NoKey::Missing)?;
        if !(self.is_valid)(value.as_str()) {
            return Err(NoKey::BadKey);
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

/// Whether `name` is a token of HTTP, which holds no colon.
fn is_token(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

/// The route that a request matched, as it is written: `/users/{id}`, never the path itself.
///
/// Missing where no route matched.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteKey;

impl KeyExtractor for RouteKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        let route = request.match_pattern().ok_or(NoKey::Missing)?;
        Ok(Key::tagged("route", route)?)
    }
}

/// The request's method; all that HTTP does not define share one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct MethodKey;

impl KeyExtractor for MethodKey {
    fn extract(&self, request: &HttpRequest) -> Result<Key, NoKey> {
        let name = match *request.method() {
            Method::GET
            | Method::POST
            | Method::PUT
            | Method::DELETE
            | Method::HEAD
            | Method::OPTIONS
            | Method::CONNECT
            | Method::PATCH
            | Method::TRACE => request.method().as_str(),
            // A client can invent methods, and would have a budget for each.
            _ => "other",
        };
        Ok(Key::tagged("method", name)?)
    }
}
