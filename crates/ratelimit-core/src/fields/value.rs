//! The bytes of a field's value.

use std::fmt;

use smallvec::SmallVec;

/// The largest integer of RFC 9651.
const LARGEST: u64 = 999_999_999_999_999;
const LONGEST_NUMBER: usize = 20;

/// The value of a header field: visible ASCII and spaces, kept in place unless it is long.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FieldValue(SmallVec<[u8; 64]>);

impl FieldValue {
    /// A number in decimal.
    pub fn number(number: u64) -> FieldValue {
        let mut value = FieldValue::default();
        value.push_number(number);
        value
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn push_number(&mut self, number: u64) {
        let mut digits = [0; LONGEST_NUMBER];
        let mut start = LONGEST_NUMBER;
        let mut rest = number;
        // Two digits for each of the expensive divisions.
        while rest >= 10 {
            let pair = u8::try_from(rest % 100).unwrap_or(0);
            rest /= 100;
            start -= 2;
            digits[start] = b'0' + pair / 10;
            digits[start + 1] = b'0' + pair % 10;
        }
        if rest > 0 || start == LONGEST_NUMBER {
            start -= 1;
            digits[start] = b'0' + u8::try_from(rest).unwrap_or(0);
        }
        self.push(&digits[start..]);
    }

    pub(super) fn push_parameter(&mut self, name: &str, number: u64) {
        self.push(name.as_bytes());
        self.push_number(number.min(LARGEST));
    }

    /// Text between quotes, as RFC 9651 and JSON both write it.
    pub(super) fn push_escaped(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.push(&[b'\\', byte]),
                b' '..=b'~' => self.push(&[byte]),
                _ => self.push(b"?"),
            }
        }
    }
}

impl fmt::Debug for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FieldValue({})", self.0.escape_ascii())
    }
}

/// Reads a number in decimal and nothing else.
pub(super) fn parse(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// The least `r` of the members of a `RateLimit` field, and the longest `t` beside it.
pub(super) fn strictest_member(value: &[u8]) -> Option<(u64, u64)> {
    let members = unquoted(value, b',').map(|member| {
        let parameter = |name: &[u8]| {
            let mut parameters = unquoted(member, b';').skip(1).map(<[u8]>::trim_ascii);
            parameters.find_map(|parameter| parse(parameter.strip_prefix(name)?))
        };
        Some((parameter(b"r=")?, parameter(b"t=").unwrap_or(0)))
    });
    let stricter = |one: (u64, u64), other: (u64, u64)| {
        if (other.0, u64::MAX - other.1) < (one.0, u64::MAX - one.1) {
            other
        } else {
            one
        }
    };
    let members: Option<SmallVec<[_; 8]>> = members.collect();
    members?.into_iter().reduce(stricter)
}

/// Splits at `separator` where it stands outside of quotes.
fn unquoted(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let mut escaped = false;
    value.split(move |&byte| {
        let was_escaped = std::mem::replace(&mut escaped, false);
        match byte {
            _ if was_escaped => {}
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => {}
        }
        byte == separator && !quoted
    })
}
