//! Syntax that the parsers of this crate share: their error, tokens, trimming and percent-decoding.

use std::{borrow::Cow, error, fmt};

/// A text that does not have the syntax its type expects.
///
/// Every `FromStr` of this crate fails with it: [`Cidr`](crate::client_ip::Cidr),
/// [`ChainHeader`](crate::client_ip::ChainHeader), [`Rule`](crate::policy::Rule),
/// [`CostSource`](crate::policy::CostSource), [`SettleSource`](crate::policy::SettleSource) and
/// [`StatusSet`](crate::policy::StatusSet). The message quotes the text and says what was expected:
///
/// ```
/// use ratelimit_http::client_ip::Cidr;
///
/// let error = "10.0.0.0/33".parse::<Cidr>().expect_err("IPv4 has 32 bits");
/// assert_eq!(error.to_string(), "invalid network \"10.0.0.0/33\": expected a prefix from 1 to 32");
/// assert_eq!(error.text(), "10.0.0.0/33");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidSyntax {
    /// The noun for the whole text, such as `rule`; `None` for the value of a field that has a name already.
    noun: Option<&'static str>,
    text: String,
    expected: Cow<'static, str>,
}

/// The expectation in place of a network of all addresses.
pub(crate) const SMALLER_NETWORK: &str = "a network smaller than the whole internet";

impl InvalidSyntax {
    /// The error for a `noun` that is written as `text`.
    pub(crate) fn new(
        noun: &'static str,
        text: &str,
        expected: impl Into<Cow<'static, str>>,
    ) -> InvalidSyntax {
        InvalidSyntax {
            noun: Some(noun),
            ..InvalidSyntax::value(text, expected)
        }
    }

    /// The error for the value of a field, where the caller names the field.
    pub(crate) fn value(text: &str, expected: impl Into<Cow<'static, str>>) -> InvalidSyntax {
        InvalidSyntax {
            noun: None,
            text: text.to_owned(),
            expected: expected.into(),
        }
    }

    /// The text as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A phrase for the expected syntax, such as `a prefix from 1 to 32`.
    pub fn expected(&self) -> &str {
        &self.expected
    }

    /// Whether the text is a network of all addresses, such as `0.0.0.0/0`.
    ///
    /// Such a network is rejected as a [`Cidr`](crate::client_ip::Cidr) and as a trusted proxy, although
    /// it is well formed. [`TrustedProxies::everyone`](crate::client_ip::TrustedProxies::everyone) states
    /// the same intent explicitly.
    pub fn is_everyone(&self) -> bool {
        self.expected.starts_with(SMALLER_NETWORK)
    }
}

impl fmt::Display for InvalidSyntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidSyntax {
            noun,
            text,
            expected,
        } = self;
        match noun {
            Some(noun) => write!(f, "invalid {noun} {text:?}: expected {expected}"),
            None => write!(f, "expected {expected}, not {text:?}"),
        }
    }
}

debug_as_display!(InvalidSyntax);

impl error::Error for InvalidSyntax {}

/// Strips spaces and tabs, which are the only whitespace of HTTP (`OWS` in RFC 9110).
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    let Some(start) = text.iter().position(|byte| !is_space(*byte)) else {
        return &[];
    };
    let end = text
        .iter()
        .rposition(|byte| !is_space(*byte))
        .map_or(start, |last| last + 1);
    &text[start..end]
}

/// Whether `byte` is a space or a tab.
pub(crate) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Whether `text` is a token of RFC 9110, such as the name of a header field. A token contains no colon.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_token_byte)
}

/// Whether `byte` may be part of a token.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The name of a header field in lower case, or `None` if `text` is not a token.
pub(crate) fn field_name(text: &str) -> Option<String> {
    is_token(text).then(|| text.to_ascii_lowercase())
}

/// The decoded bytes of percent-encoded text. A `%` without two hexadecimal digits is [`Err`].
///
/// The error holds the `%` itself, for callers that keep a broken escape as it is written. A `+` stays a
/// plus.
pub(crate) struct PercentDecoded<'a>(pub(crate) &'a [u8]);

impl<'a> PercentDecoded<'a> {
    /// Decodes `text` and keeps broken escapes as they are written.
    pub(crate) fn lossy(text: &'a [u8]) -> impl Iterator<Item = u8> + 'a {
        PercentDecoded(text).map(|byte| byte.unwrap_or_else(|percent| percent))
    }
}

impl Iterator for PercentDecoded<'_> {
    type Item = Result<u8, u8>;

    fn next(&mut self) -> Option<Result<u8, u8>> {
        let (first, rest) = self.0.split_first()?;
        let escaped = match self.0 {
            [b'%', high, low, ..] => hex(*high).zip(hex(*low)),
            _ => None,
        };
        let Some((high, low)) = escaped else {
            self.0 = rest;
            return Some(if *first == b'%' {
                Err(b'%')
            } else {
                Ok(*first)
            });
        };
        self.0 = &rest[2..];
        Some(Ok(high << 4 | low))
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_decoding_reports_broken_escapes_or_keeps_them() {
        for (text, strict, lossy) in [
            ("a%20b", Some("a b"), "a b"),
            ("%e2%82%AC+", Some("\u{20ac}+"), "\u{20ac}+"),
            ("100%", None, "100%"),
            ("%4", None, "%4"),
            ("%zz%41", None, "%zzA"),
            ("%%41", None, "%A"),
        ] {
            let decoded: Result<Vec<u8>, u8> = PercentDecoded(text.as_bytes()).collect();
            let kept: Vec<u8> = PercentDecoded::lossy(text.as_bytes()).collect();

            assert_eq!(decoded.ok().as_deref(), strict.map(str::as_bytes), "{text}");
            assert_eq!(kept, lossy.as_bytes(), "{text}");
        }
    }
}
