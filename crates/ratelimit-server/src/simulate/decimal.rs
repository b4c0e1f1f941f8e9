//! Seconds as decimal text, exact to the microsecond.

/// Later times are not exact in every store.
const END_OF_TIME: u64 = 1 << 53;

const MICROS_DIGITS: i64 = 6;

/// Parses seconds from a JSON number without floating point.
///
/// Digits beyond microseconds are rounded to the nearest, half up: programs that add floats write
/// `0.30000000000000004` for `0.3`. Returns `None` for text that is negative, too large or not a number.
pub(super) fn micros(text: &str) -> Option<u64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    if whole.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    let after_point = i64::try_from(fraction.len()).ok()?;
    let shift = i64::from(exponent) - after_point + MICROS_DIGITS;
    let kept = i64::try_from(digits.len()).ok()? + shift;
    let micros = scaled(digits, kept)?;
    (micros == 0 || !negative && micros < END_OF_TIME).then_some(micros)
}

/// The first `kept` digits as a number, padded with zeros or rounded.
fn scaled(digits: &str, kept: i64) -> Option<u64> {
    let Ok(kept) = usize::try_from(kept) else {
        return Some(0);
    };
    if kept > 20 {
        return None;
    }
    let missing = u32::try_from(kept.saturating_sub(digits.len())).ok()?;
    let (head, tail) = digits.split_at(kept.min(digits.len()));
    let number = if head.is_empty() {
        0
    } else {
        head.parse::<u64>().ok()?
    };
    let rounded_up = u64::from(tail.bytes().next().is_some_and(|digit| digit >= b'5'));
    number
        .checked_mul(10_u64.checked_pow(missing)?)?
        .checked_add(rounded_up)
}

/// Formats microseconds as seconds, with as few digits as possible.
pub(super) fn seconds(micros: u64) -> String {
    let (whole, rest) = (micros / 1_000_000, micros % 1_000_000);
    if rest == 0 {
        return whole.to_string();
    }
    let fraction = format!("{rest:06}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_json_number_is_read_exactly() {
        let cases = [
            ("0", 0),
            ("-0.0", 0),
            ("0.5", 500_000),
            ("1.000001", 1_000_001),
            ("5e-05", 50),
            ("1E+2", 100_000_000),
            ("12.5e-1", 1_250_000),
            ("1700000000.123456", 1_700_000_000_123_456),
            ("0.30000000000000004", 300_000),
            ("0.0000005", 1),
            ("0.0000004999", 0),
            ("1e-400", 0),
            ("0e999999", 0),
            ("9007199254.740991", END_OF_TIME - 1),
        ];
        for (text, expected) in cases {
            assert_eq!(micros(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_a_time_is_rejected() {
        for text in [
            "-1",
            "-0.1",
            "9007199254.740992",
            "1e308",
            "1e99999999999",
            "NaN",
            "",
            ".5",
            "\"1\"",
            "1/2",
            "true",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_written_reads_the_same() {
        for value in [0, 1, 10, 500_000, 1_000_000, 59_900_000, END_OF_TIME - 1] {
            assert_eq!(micros(&seconds(value)), Some(value));
        }
        assert_eq!(seconds(500_000), "0.5");
    }
}
