//! Texts, numbers and booleans, by the rules of YAML 1.1.

use ratelimit_http::policy_file::{DiagnosticCode, Diagnostics};

use crate::config::yaml::{YamlEntry, YamlNode, YamlValue};

impl YamlNode {
    /// Whether the value is null: absent, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.value, YamlValue::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The text of a scalar, empty for null. A whole number or a boolean is taken as it is written; a fraction is
    /// rejected.
    pub(super) fn text(&self, diagnostics: &mut Diagnostics) -> Option<&str> {
        match &self.value {
            _ if self.is_null() => Some(""),
            YamlValue::Plain(text) if is_fraction(text) => {
                self.reject("a text in quotes", diagnostics)
            }
            YamlValue::Plain(text) | YamlValue::Quoted(text) => Some(text),
            YamlValue::List(_) | YamlValue::Map(_) => self.reject("a text", diagnostics),
        }
    }

    /// The boolean, `false` for null.
    pub(super) fn boolean(&self, diagnostics: &mut Diagnostics) -> Option<bool> {
        let YamlValue::Plain(text) = &self.value else {
            return self.reject("true or false", diagnostics);
        };
        boolean(text)
            .or_else(|| self.is_null().then_some(false))
            .or_else(|| self.reject("true or false", diagnostics))
    }

    /// The whole number from 0 to 2^32 - 1; 0 for null.
    pub(super) fn unsigned(&self, diagnostics: &mut Diagnostics) -> Option<u32> {
        const EXPECTED: &str = "a whole number from 0 to 4294967295";
        let YamlValue::Plain(text) = &self.value else {
            return self.reject(EXPECTED, diagnostics);
        };
        let number = integer(text).and_then(|number| u32::try_from(number).ok());
        number
            .or_else(|| self.is_null().then_some(0))
            .or_else(|| self.reject(EXPECTED, diagnostics))
    }

    /// The list, empty for null.
    pub(super) fn list(&self, diagnostics: &mut Diagnostics) -> Option<&[YamlNode]> {
        match &self.value {
            YamlValue::List(nodes) => Some(nodes),
            _ if self.is_null() => Some(&[]),
            _ => self.reject("a list", diagnostics),
        }
    }

    /// The entries of the map.
    pub(super) fn map(&self, diagnostics: &mut Diagnostics) -> Option<&[YamlEntry]> {
        match &self.value {
            YamlValue::Map(entries) => Some(entries),
            _ => self.reject("a map", diagnostics),
        }
    }

    /// Adds a diagnostic that the value is not what was `expected`. It always returns `None`.
    fn reject<T>(&self, expected: &str, diagnostics: &mut Diagnostics) -> Option<T> {
        let message = match &self.value {
            YamlValue::Plain(text) | YamlValue::Quoted(text) => {
                format!("expected {expected}, not {text:?}")
            }
            YamlValue::List(_) => format!("expected {expected}, not a list"),
            YamlValue::Map(_) => format!("expected {expected}, not a map"),
        };
        diagnostics.add(DiagnosticCode::WrongType, self.line, message);
        None
    }
}

/// The boolean that a text without quotes stands for.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
            Some(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            Some(false)
        }
        _ => None,
    }
}

/// The whole number that a text without quotes stands for: decimal, or with the prefix `0x`, `0o`, `0b` or `0`.
pub(super) fn integer(text: &str) -> Option<i64> {
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x', ..] => (&digits[2..], 16),
        [b'0', b'o', ..] => (&digits[2..], 8),
        [b'0', b'b', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if !digits.starts_with(|digit: char| digit.is_digit(radix)) {
        return None;
    }
    i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
}

/// Whether a text without quotes is a number that is not whole.
pub(super) fn is_fraction(text: &str) -> bool {
    let is_numeric = |letter: char| letter.is_ascii_digit() || "+-.eE".contains(letter);
    let unsigned = text.trim_start_matches(['+', '-']);
    if matches!(
        unsigned,
        ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN"
    ) {
        return true;
    }
    integer(text).is_none()
        && text.contains(|letter: char| letter.is_ascii_digit())
        && text.chars().all(is_numeric)
        && text.parse::<f64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_the_rules_of_yaml_1_1() {
        for (text, number) in [
            ("0", 0),
            ("10", 10),
            ("-5", -5),
            ("+5", 5),
            ("1_000", 1000),
            ("0x1F", 31),
            ("010", 8),
            ("0o10", 8),
            ("0b101", 5),
        ] {
            assert_eq!(integer(text), Some(number), "{text}");
            assert!(!is_fraction(text), "{text}");
        }
        for text in ["", "ten", "09", "1.0", "0x", "--5", "10.0.0.1"] {
            assert_eq!(integer(text), None, "{text}");
        }
        for text in ["1.0", "1e3", ".5", "-.inf"] {
            assert!(is_fraction(text), "{text}");
        }
        for text in ["10.0.0.1", "e", "1-2", "v1.0"] {
            assert!(!is_fraction(text), "{text}");
        }
    }
}
