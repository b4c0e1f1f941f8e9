//! Query parameters.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::api_error::ApiError;

/// A raw query string. Values are percent-decoded; `+` is a plus sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a>(pub(crate) &'a str);

impl<'a> Query<'a> {
    /// The value of the parameter `name`. A repeated parameter is an error.
    pub(crate) fn one(self, name: &str) -> Result<Option<Cow<'a, str>>, ApiError> {
        let pairs = self.0.split('&');
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut values = pairs
            .filter(|pair| percent_decode_str(pair.0).eq(name.bytes()))
            .map(|pair| pair.1);
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            let twice = format!("the parameter {name} was sent more than once");
            return Err(ApiError::bad_request(twice));
        }
        let decoded = percent_decode_str(value).decode_utf8();
        let decoded = decoded
            .map_err(|_| ApiError::bad_request(format!("the parameter {name} is not UTF-8")))?;
        Ok(Some(decoded))
    }

    /// The names of all parameters that begin with `prefix`, without it.
    pub(crate) fn names_after(self, prefix: &str) -> impl Iterator<Item = String> {
        let names = self.0.split('&').map(|pair| pair.split('=').next());
        let names = names
            .flatten()
            .map(|name| percent_decode_str(name).decode_utf8_lossy());
        names.filter_map(move |name| name.strip_prefix(prefix).map(str::to_owned))
    }

    /// The raw bytes.
    pub(crate) const fn as_bytes(self) -> &'a [u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_whatever_its_encoding() {
        let query = Query("key=a%20b&p%65rmits=%32&x");

        assert_eq!(query.one("permits").unwrap().as_deref(), Some("2"));
        assert_eq!(query.one("key").unwrap().as_deref(), Some("a b"));
        assert_eq!(query.one("x").unwrap().as_deref(), Some(""));
        assert_eq!(query.one("policy").unwrap(), None);
    }

    #[test]
    fn two_values_and_broken_text_are_refused() {
        assert!(Query("a=1&%61=2").one("a").is_err());
        assert!(Query("a=%FF").one("a").is_err());
    }
}
