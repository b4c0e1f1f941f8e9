//! Keys that a request contains under a name.

use std::{borrow::Cow, fmt};

use crate::{
    client_ip::{ClientIpError, HeaderLines},
    syntax::{PercentDecoded, trim},
};

/// The longest key in bytes, after decoding.
const MAX_KEY: usize = 256;

/// A key that the application chose, or the request if the application opted in.
///
/// - It has 1 to 256 bytes of UTF-8 without control bytes.
/// - It displays with a tag, as `key:user-42`, so that no key can be mistaken for an address.
/// - A client that chooses its own key can escape its limit. Check the key before you use it.
///
/// ```
/// use ratelimit_http::{client_ip::ClientIpError, key::ExplicitKey};
///
/// let key = ExplicitKey::from_query(b"a=1&api_key=k%201", "api_key")?;
/// assert_eq!(key.expect("was sent").to_string(), "key:k 1");
///
/// let twice = ExplicitKey::from_query(b"api_key=k1&api_key=k2", "api_key");
/// assert_eq!(twice, Err(ClientIpError::AmbiguousKey));
/// # Ok::<(), ClientIpError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExplicitKey<'a>(Cow<'a, str>);

impl<'a> ExplicitKey<'a> {
    /// Takes a value as it is, without decoding. An empty value is `None`.
    ///
    /// # Errors
    ///
    /// [`ClientIpError::BadKey`] if `value` is longer than 256 bytes or contains control bytes.
    pub fn from_value(value: impl Into<Cow<'a, str>>) -> Result<Option<Self>, ClientIpError> {
        let value = value.into();
        if value.len() > MAX_KEY || value.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(ClientIpError::BadKey);
        }
        Ok(if value.is_empty() {
            None
        } else {
            Some(Self(value))
        })
    }

    /// Reads the header `name` and percent-decodes it. An absent or empty header is `None`.
    ///
    /// # Errors
    ///
    /// - [`ClientIpError::AmbiguousKey`] if the request has more than one such header.
    /// - [`ClientIpError::BadKey`] if the value has a broken escape, is too long, is not UTF-8, or
    ///   contains control bytes.
    pub fn from_header(
        headers: &'a (impl HeaderLines + ?Sized),
        name: &'a str,
    ) -> Result<Option<Self>, ClientIpError> {
        Self::from_values(headers.lines(name).map(trim))
    }

    /// Reads the parameter `name` of a raw query string and percent-decodes it. An absent or empty
    /// parameter is `None`.
    ///
    /// A `+` stays a plus. Names are decoded before they are compared: otherwise `api%5Fkey` would be
    /// a second value that only the application sees.
    ///
    /// # Errors
    ///
    /// - [`ClientIpError::AmbiguousKey`] if the query has the parameter more than once.
    /// - [`ClientIpError::BadKey`] as in [`from_header`](Self::from_header).
    pub fn from_query(query: &'a [u8], name: &str) -> Result<Option<Self>, ClientIpError> {
        let parameters = query.split(|byte| *byte == b'&').map(|parameter| {
            let equals = parameter
                .iter()
                .position(|byte| *byte == b'=')
                .unwrap_or(parameter.len());
            (
                &parameter[..equals],
                parameter.get(equals + 1..).unwrap_or(&[]),
            )
        });
        let named =
            |parameter: &(&[u8], &[u8])| PercentDecoded(parameter.0).eq(name.bytes().map(Ok));
        Self::from_values(parameters.filter(named).map(|parameter| parameter.1))
    }

    /// The key without its tag.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key without its tag, owned.
    pub fn into_string(self) -> String {
        self.0.into_owned()
    }

    /// Decodes the only value.
    fn from_values(
        mut values: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Option<Self>, ClientIpError> {
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(ClientIpError::AmbiguousKey);
        }
        Self::from_value(decode(value).ok_or(ClientIpError::BadKey)?)
    }
}

impl fmt::Display for ExplicitKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key:{}", self.0)
    }
}

/// Percent-decodes a value. It borrows if there is no escape.
fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    if !value.contains(&b'%') {
        return std::str::from_utf8(value).ok().map(Cow::Borrowed);
    }
    // One byte more than the maximum proves that the key is too long.
    let bytes: Result<Vec<u8>, u8> = PercentDecoded(value).take(MAX_KEY + 1).collect();
    String::from_utf8(bytes.ok()?).ok().map(Cow::Owned)
}
