//! Where a cost comes from: before the response, and after it.

use std::str::FromStr;

use crate::syntax::{InvalidSyntax, field_name, trim};

/// Where the cost of a request comes from, for [`HttpPolicy::with_cost_source`](crate::policy::HttpPolicy::with_cost_source).
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
    /// It is the policy's.
    #[default]
    Fixed,
    /// It is the whole number in this header field of the request; the policy's where there is none,
    /// and where it is 0.
    Header(String),
    /// It is the length of the body that the request announces, at least 1; the policy's where it
    /// announces none.
    ContentLength,
}

impl CostSource {
    /// The header field that tells the cost.
    pub fn field(&self) -> Option<&str> {
        match self {
            CostSource::Fixed => None,
            CostSource::Header(name) => Some(name),
            CostSource::ContentLength => Some("content-length"),
        }
    }

    pub(crate) fn in_lower_case(self) -> CostSource {
        match self {
            CostSource::Header(name) => CostSource::Header(name.to_ascii_lowercase()),
            other => other,
        }
    }
}

impl FromStr for CostSource {
    type Err = InvalidSyntax;

    fn from_str(text: &str) -> Result<CostSource, InvalidSyntax> {
        let header = text.strip_prefix("header:").and_then(field_name);
        match (text, header) {
            ("body", _) => Ok(CostSource::ContentLength),
            (_, Some(name)) => Ok(CostSource::Header(name)),
            _ => Err(InvalidSyntax::value(text, "header:NAME or body")),
        }
    }
}

/// Where the actual cost of a request comes from, for [`HttpPolicy::with_settle_source`](crate::policy::HttpPolicy::with_settle_source).
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
    /// It is the whole number in this header field of the response.
    Header(String),
    /// It is the number of bytes of the response's body.
    ResponseBytes,
}

impl SettleSource {
    /// The header field of the response that tells the actual cost.
    pub fn field(&self) -> Option<&str> {
        match self {
            SettleSource::Header(name) => Some(name),
            SettleSource::ResponseBytes => None,
        }
    }

    /// The actual cost that the lines of [`field`](SettleSource::field) tell: the largest whole number.
    pub fn value_in<'a>(&self, lines: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
        self.field().and_then(|_| largest(lines))
    }

    pub(crate) fn in_lower_case(self) -> SettleSource {
        match self {
            SettleSource::Header(name) => SettleSource::Header(name.to_ascii_lowercase()),
            other @ SettleSource::ResponseBytes => other,
        }
    }
}

impl FromStr for SettleSource {
    type Err = InvalidSyntax;

    fn from_str(text: &str) -> Result<SettleSource, InvalidSyntax> {
        let header = text.strip_prefix("header:").and_then(field_name);
        match (text, header) {
            ("response-bytes", _) => Ok(SettleSource::ResponseBytes),
            (_, Some(name)) => Ok(SettleSource::Header(name)),
            _ => Err(InvalidSyntax::value(text, "header:NAME or response-bytes")),
        }
    }
}

/// The largest whole number among the lines of a field.
pub(crate) fn largest<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
    lines.into_iter().filter_map(whole_number).max()
}

/// One that is too large for all limits stays so: as garbage it would cost next to nothing.
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
    fn what_is_no_source_of_a_cost_is_told() {
        for text in ["", "header:", "header:a b", "Body", "bytes", "5"] {
            assert!(text.parse::<CostSource>().is_err(), "{text}");
            assert!(text.parse::<SettleSource>().is_err(), "{text}");
        }
        let told = "body".parse::<SettleSource>().unwrap_err().to_string();
        assert_eq!(told, "expected header:NAME or response-bytes, not \"body\"");
    }
}
