//! The sources of a request's cost, before the response and after it.

use std::{fmt, str::FromStr};

use crate::syntax::{InvalidSyntax, field_name, trim};

/// The source of a request's cost, for
/// [`HttpPolicy::with_cost_source`](crate::policy::HttpPolicy::with_cost_source).
///
/// The cost is known before the request is served. [`SettleSource`] corrects it afterwards. The text
/// form is `header:NAME` or `body`, as in a policy file.
///
/// ```
/// use ratelimit_http::policy::CostSource;
///
/// assert_eq!("header:X-Tokens".parse(), Ok(CostSource::Header("x-tokens".to_owned())));
/// assert_eq!("body".parse(), Ok(CostSource::ContentLength));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostSource {
    /// The policy's own cost.
    #[default]
    Fixed,
    /// The whole number in this header of the request. Of several lines the largest counts. The
    /// policy's cost is used if there is no number or it is 0.
    Header(String),
    /// The `Content-Length` of the request, at least 1.
    ///
    /// A request without one costs the policy's cost at first. The layers of the adapters then count its body
    /// and charge the bytes that were read, as far as the budget allows.
    ContentLength,
}

impl CostSource {
    /// The header that contains the cost, in lower case.
    pub fn field(&self) -> Option<&str> {
        match self {
            CostSource::Fixed => None,
            CostSource::Header(name) => Some(name),
            CostSource::ContentLength => Some("content-length"),
        }
    }

    /// The same source with its header in lower case, as header maps look names up.
    pub(crate) fn in_lower_case(self) -> CostSource {
        match self {
            CostSource::Header(name) => CostSource::Header(name.to_ascii_lowercase()),
            other => other,
        }
    }
}

impl FromStr for CostSource {
    type Err = InvalidSyntax;

    /// Parses `header:NAME` or `body`.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] if `text` is neither, or `NAME` is not the name of a header.
    fn from_str(text: &str) -> Result<CostSource, InvalidSyntax> {
        let header = text.strip_prefix("header:").and_then(field_name);
        match (text, header) {
            ("body", _) => Ok(CostSource::ContentLength),
            (_, Some(name)) => Ok(CostSource::Header(name)),
            _ => Err(InvalidSyntax::value(text, "header:NAME or body")),
        }
    }
}

/// The source of a request's actual cost, for
/// [`HttpPolicy::with_settle_source`](crate::policy::HttpPolicy::with_settle_source).
///
/// The request is charged before it is served and settled by its response: the difference is refunded
/// or charged. The text form is `header:NAME` or `response-bytes`, as in a policy file.
///
/// ```
/// use ratelimit_http::policy::SettleSource;
///
/// let tokens: SettleSource = "header:x-tokens-used".parse()?;
/// assert_eq!(tokens.value_in([&b"150"[..]]), Some(150));
/// assert_eq!("response-bytes".parse(), Ok(SettleSource::ResponseBytes));
/// # Ok::<(), ratelimit_http::InvalidSyntax>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettleSource {
    /// The whole number in this header of the response. The charge is kept if there is none.
    Header(String),
    /// The number of bytes in the body of the response.
    ResponseBytes,
}

impl SettleSource {
    /// The header of the response that contains the actual cost, in lower case.
    pub fn field(&self) -> Option<&str> {
        match self {
            SettleSource::Header(name) => Some(name),
            SettleSource::ResponseBytes => None,
        }
    }

    /// The actual cost in the lines of the header [`field`](SettleSource::field): the largest whole number.
    pub fn value_in<'a>(&self, lines: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
        self.field().and_then(|_| largest(lines))
    }

    /// The same source with its header in lower case, as header maps look names up.
    pub(crate) fn in_lower_case(self) -> SettleSource {
        match self {
            SettleSource::Header(name) => SettleSource::Header(name.to_ascii_lowercase()),
            other @ SettleSource::ResponseBytes => other,
        }
    }
}

impl fmt::Display for SettleSource {
    /// Writes the text form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettleSource::Header(name) => write!(f, "header:{name}"),
            SettleSource::ResponseBytes => f.write_str("response-bytes"),
        }
    }
}

impl FromStr for SettleSource {
    type Err = InvalidSyntax;

    /// Parses `header:NAME` or `response-bytes`.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] if `text` is neither, or `NAME` is not the name of a header.
    fn from_str(text: &str) -> Result<SettleSource, InvalidSyntax> {
        let header = text.strip_prefix("header:").and_then(field_name);
        match (text, header) {
            ("response-bytes", _) => Ok(SettleSource::ResponseBytes),
            (_, Some(name)) => Ok(SettleSource::Header(name)),
            _ => Err(InvalidSyntax::value(text, "header:NAME or response-bytes")),
        }
    }
}

/// The largest whole number among the lines of a header.
pub(crate) fn largest<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    lines.into_iter().filter_map(whole_number).max()
}

/// Parses a whole number. A number above `u64::MAX` saturates: as garbage it would be charged the
/// policy's cost, and a client could lower its cost by raising the number.
fn whole_number(line: &[u8]) -> Option<u64> {
    let digits = trim(line);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0_u64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_a_whole_number_and_the_largest_counts() {
        for (lines, cost) in [
            (&[" 12\t"][..], Some(12)),
            (&["5", "7", "6"], Some(7)),
            (&["many", "3"], Some(3)),
            (&["0"], Some(0)),
            (&["99999999999999999999999"], Some(u64::MAX)),
            (&["-1"], None),
            (&["+1"], None),
            (&["1.5"], None),
            (&["1, 2"], None),
            (&[""], None),
            (&[], None),
        ] {
            let bytes = lines.iter().map(|line| line.as_bytes());
            assert_eq!(largest(bytes), cost, "{lines:?}");
        }
    }

    #[test]
    fn an_invalid_cost_source_is_an_error() {
        for text in ["", "header:", "header:a b", "Body", "bytes", "5"] {
            assert!(text.parse::<CostSource>().is_err(), "{text}");
            assert!(text.parse::<SettleSource>().is_err(), "{text}");
        }
        let message = "body".parse::<SettleSource>().unwrap_err().to_string();
        assert_eq!(
            message,
            "expected header:NAME or response-bytes, not \"body\""
        );
    }
}
