//! Where a cost comes from: before the response, and after it.

use std::{error, fmt, str::FromStr};

use crate::client_addr::{field_name, trim};

/// Where the cost of a request comes from, for [`Policy::cost_of`](crate::Policy::cost_of).
///
/// ```
/// use ratelimit_core::CostOf;
///
/// assert_eq!("header:X-Tokens".parse(), Ok(CostOf::Header("x-tokens".to_owned())));
/// assert_eq!("body".parse(), Ok(CostOf::Body));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostOf {
    /// It is the policy's.
    #[default]
    Fixed,
    /// It is the whole number in this header field of the request; the policy's where there is none,
    /// and where it is 0.
    Header(String),
    /// It is the length of the body that the request announces, at least 1; the policy's where it
    /// announces none.
    Body,
}

impl CostOf {
    /// The header field that tells the cost.
    pub fn field(&self) -> Option<&str> {
        match self {
            CostOf::Fixed => None,
            CostOf::Header(name) => Some(name),
            CostOf::Body => Some("content-length"),
        }
    }

    pub(super) fn in_lower_case(self) -> CostOf {
        match self {
            CostOf::Header(name) => CostOf::Header(name.to_ascii_lowercase()),
            other => other,
        }
    }
}

impl FromStr for CostOf {
    type Err = InvalidTerm;

    fn from_str(text: &str) -> Result<CostOf, InvalidTerm> {
        let header = text.strip_prefix("header:").and_then(field_name);
        match (text, header) {
            ("body", _) => Ok(CostOf::Body),
            (_, Some(name)) => Ok(CostOf::Header(name)),
            _ => Err(InvalidTerm::new(text, "header:NAME or body")),
        }
    }
}

/// Where the actual cost of a request comes from, for [`Policy::settle_by`](crate::Policy::settle_by).
///
/// ```
/// use ratelimit_core::SettleBy;
///
/// let tokens: SettleBy = "header:x-tokens-used".parse()?;
/// assert_eq!(tokens.told([&b"150"[..]]), Some(150));
/// assert_eq!("response-bytes".parse(), Ok(SettleBy::ResponseBytes));
/// # Ok::<(), ratelimit_core::InvalidTerm>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettleBy {
    /// It is the whole number in this header field of the response.
    Header(String),
    /// It is the number of bytes of the response's body.
    ResponseBytes,
}

impl SettleBy {
    /// The header field of the response that tells the actual cost.
    pub fn field(&self) -> Option<&str> {
        match self {
            SettleBy::Header(name) => Some(name),
            SettleBy::ResponseBytes => None,
        }
    }

    /// The actual cost that the lines of [`field`](SettleBy::field) tell: the largest whole number.
    pub fn told<'a>(&self, lines: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
        self.field().and_then(|_| largest(lines))
    }

    pub(super) fn in_lower_case(self) -> SettleBy {
        match self {
            SettleBy::Header(name) => SettleBy::Header(name.to_ascii_lowercase()),
            other @ SettleBy::ResponseBytes => other,
        }
    }
}

impl FromStr for SettleBy {
    type Err = InvalidTerm;

    fn from_str(text: &str) -> Result<SettleBy, InvalidTerm> {
        let header = text.strip_prefix("header:").and_then(field_name);
        match (text, header) {
            ("response-bytes", _) => Ok(SettleBy::ResponseBytes),
            (_, Some(name)) => Ok(SettleBy::Header(name)),
            _ => Err(InvalidTerm::new(text, "header:NAME or response-bytes")),
        }
    }
}

/// The largest whole number among the lines of a field.
pub(super) fn largest<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Option<u64> {
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

/// A text that is no [`CostOf`], [`SettleBy`] or [`StatusSet`](crate::StatusSet).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTerm {
    text: String,
    expected: &'static str,
}

impl InvalidTerm {
    pub(super) fn new(text: &str, expected: &'static str) -> InvalidTerm {
        InvalidTerm {
            text: text.to_owned(),
            expected,
        }
    }
}

impl fmt::Display for InvalidTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidTerm { text, expected } = self;
        write!(f, "expected {expected}, not {text:?}")
    }
}

impl error::Error for InvalidTerm {}

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
            assert!(text.parse::<CostOf>().is_err(), "{text}");
            assert!(text.parse::<SettleBy>().is_err(), "{text}");
        }
        let told = "body".parse::<SettleBy>().unwrap_err().to_string();
        assert_eq!(told, "expected header:NAME or response-bytes, not \"body\"");
    }
}
