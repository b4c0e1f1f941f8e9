//! Tokens of Rust code.

/// A word, a number, `::` or one other character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Counted from 1.
    pub(super) line: usize,
}

impl Token<'_> {
    /// Whether this is an identifier or a keyword.
    pub(super) fn is_word(&self) -> bool {
        self.text
            .starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

/// The tokens of code from which comments and literals are removed.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        let mut rest = text.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            let (text, after) = rest.split_at(length);
            tokens.push(Token { text, line });
            rest = after.trim_start();
        }
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_paths_are_split() {
        let found = tokens("use a::{b_1};\n x<'c>");

        let texts: Vec<&str> = found.iter().map(|token| token.text).collect();
        assert_eq!(
            texts,
            [
                "use", "a", "::", "{", "b_1", "}", ";", "x", "<", "'", "c", ">"
            ]
        );
        assert_eq!(found[7].line, 2);
    }
}
