//! Durations as text: `250ms`, `10s`.

use std::{fmt, str::FromStr, time::Duration};

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000)];

/// A duration above zero, written as a whole number and `ms`, `s`, `min` or `h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Span, InvalidSpan> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, unit) = text.split_at(digits);
        let millis_each = UNITS
            .iter()
            .find(|known| known.0 == unit)
            .map(|known| known.1);
        let millis = count.parse::<u64>().ok().zip(millis_each);
        match millis.and_then(|(count, each)| count.checked_mul(each)) {
            None | Some(0) => Err(InvalidSpan(())),
            Some(millis) => Ok(Span(Duration::from_millis(millis))),
        }
    }
}

/// A duration that may be zero, written `0` or as a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delay(pub(crate) Duration);

impl FromStr for Delay {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Delay, InvalidSpan> {
        match text {
            "0" | "0s" | "0ms" => Ok(Delay(Duration::ZERO)),
            _ => text.parse().map(|Span(span)| Delay(span)),
        }
    }
}

/// A duration that may be zero, or `never`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grace {
    After(Duration),
    Never,
}

impl FromStr for Grace {
    type Err = String;

    fn from_str(text: &str) -> Result<Grace, String> {
        if text == "never" {
            return Ok(Grace::Never);
        }
        let delay = text.parse::<Delay>();
        let delay = delay.map(|Delay(delay)| Grace::After(delay));
        delay.map_err(|_| "expected a time such as 10s or 0, or never".to_owned())
    }
}

/// Text that is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidSpan(());

impl fmt::Display for InvalidSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a time above zero such as 250ms, 10s or 1min")
    }
}

impl std::error::Error for InvalidSpan {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_a_number_and_a_unit() {
        assert_eq!("250ms".parse(), Ok(Span(Duration::from_millis(250))));
        assert_eq!("2min".parse(), Ok(Span(Duration::from_secs(120))));
    }

    #[test]
    fn a_delay_may_be_zero() {
        for (text, millis) in [("0", 0), ("0s", 0), ("250ms", 250)] {
            assert_eq!(text.parse(), Ok(Delay(Duration::from_millis(millis))));
        }
        assert!("00".parse::<Delay>().is_err());
    }

    #[test]
    fn a_grace_may_be_zero_and_may_never_end() {
        for (text, secs) in [("0", 0), ("10s", 10)] {
            assert_eq!(text.parse(), Ok(Grace::After(Duration::from_secs(secs))));
        }
        assert_eq!("never".parse(), Ok(Grace::Never));
        for text in ["", "10", "Never", "none"] {
            assert!(text.parse::<Grace>().is_err(), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "10",
            "s",
            "-1s",
            "0s",
            "1.5s",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
