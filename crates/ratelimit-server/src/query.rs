//! Query parameters.

use std::borrow::Cow;

use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use ratelimit_http::policy_file::nearest;

use crate::api_error::ApiError;

/// Stands for the parameters `keys.NAME` in a list of known names.
pub(crate) const NAMED_KEYS: &str = "keys.NAME";

const MAX_SHOWN: usize = 64;

/// A raw query string. Values are percent-decoded; `+` is a plus sign.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a>(pub(crate) &'a str);

impl<'a> Query<'a> {
    pub(crate) fn of(parts: &'a Parts) -> Query<'a> {
        Query(parts.uri.query().unwrap_or_default())
    }

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

    /// The first parameter that is not in `known`, with what to send instead.
    ///
    /// An unknown parameter is never ignored: with `polcy=api` the call would be decided by another policy.
    pub(crate) fn unknown(self, known: &[&str]) -> Option<String> {
        let pairs = self.0.split('&').filter(|pair| !pair.is_empty());
        let names = pairs.filter_map(|pair| pair.split('=').next());
        let is_known = |name: &str| {
            let is_named_key = name
                .strip_prefix("keys.")
                .is_some_and(|name| !name.is_empty());
            known.contains(&name) || (is_named_key && known.contains(&NAMED_KEYS))
        };
        let mut names = names.map(|name| percent_decode_str(name).decode_utf8_lossy());
        let unknown = names.find(|name| !is_known(name))?;
        let shown: String = unknown.chars().take(MAX_SHOWN).collect();
        let hint = match nearest(&unknown, known.iter().copied()) {
            Some(meant) => format!("did you mean {meant}?"),
            None if known.is_empty() => "this call takes none in its query".to_owned(),
            None => format!("known are {}", known.join(", ")),
        };
        Some(format!("unknown parameter {shown:?}: {hint}"))
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
    fn an_unknown_parameter_is_reported_with_the_nearest_name() {
        let known = ["policy", "key", NAMED_KEYS];
        let unknown = |query| Query(query).unknown(&known);

        for query in ["", "&", "policy=a&key=b", "p%6Flicy=a", "keys.ip=1&", "key"] {
            assert_eq!(unknown(query), None, "{query}");
        }
        assert_eq!(
            unknown("key=a&polcy=api").as_deref(),
            Some(r#"unknown parameter "polcy": did you mean policy?"#)
        );
        assert_eq!(
            unknown("user=a").as_deref(),
            Some(r#"unknown parameter "user": known are policy, key, keys.NAME"#)
        );
        for query in ["keys.=1", "Policy=a", "=a", "%FF"] {
            assert!(unknown(query).is_some(), "{query}");
        }
        let none = Query("policy=a").unknown(&[]).unwrap();
        assert!(
            none.ends_with("this call takes none in its query"),
            "{none}"
        );
    }

    #[test]
    fn two_values_and_broken_text_are_refused() {
        assert!(Query("a=1&%61=2").one("a").is_err());
        assert!(Query("a=%FF").one("a").is_err());
    }
}
