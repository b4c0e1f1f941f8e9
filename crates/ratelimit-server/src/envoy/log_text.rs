//! Texts of other servers in log lines.

use std::fmt;

/// The maximum length of a text, in characters.
const MAX_CHARS: usize = 2_000;

/// A text in one line of bounded length.
pub(super) fn one_line(text: impl fmt::Display) -> String {
    let text = text.to_string();
    let chars = text.chars().take(MAX_CHARS);
    let chars = chars.map(|char| if char.is_control() { ' ' } else { char });
    chars.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_line_of_bounded_length() {
        assert_eq!(one_line("a\nb"), "a b");
        assert_eq!(one_line("ä".repeat(9_999)).chars().count(), MAX_CHARS);
    }
}
