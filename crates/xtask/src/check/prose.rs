//! The words of pages and comments, without code.

use crate::check::rust_file::RustFile;

/// A word of prose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    /// Counted from 1.
    pub(super) line: usize,
    /// Whether the word is the first one of a sentence, list item, table cell or heading.
    pub(super) starts_sentence: bool,
}

/// The words of a Markdown page.
pub(super) fn page_words(text: &str) -> Vec<Word> {
    words((1..).zip(text.lines()))
}

/// The words of comments on lines of their own, rustdoc included.
pub(super) fn rust_words(file: &RustFile) -> Vec<Word> {
    words((1..).zip(file.text.lines()).map(|(number, line)| {
        let line = line.trim_start();
        let comment = line.strip_prefix("//").unwrap_or_default();
        (number, comment.trim_start_matches(['/', '!']))
    }))
}

/// The words of the comments of a script.
pub(super) fn lua_words(text: &str) -> Vec<Word> {
    words((1..).zip(text.lines()).map(|(number, line)| {
        let comment = line.split_once("--").map_or("", |(_, comment)| comment);
        (number, comment)
    }))
}

fn words<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Word> {
    let mut words = Vec::new();
    let mut reader = Reader {
        starts_sentence: true,
        ..Reader::default()
    };
    for (number, line) in lines {
        reader.read_line(line, number, &mut words);
    }
    words
}

/// Where in a page the next character stands.
#[derive(Debug, Default)]
struct Reader {
    code: Code,
    /// Whether the last line was empty, so that an indented one is code.
    after_blank: bool,
    starts_sentence: bool,
}

/// The kind of code that surrounds a character.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Code {
    #[default]
    None,
    Fenced,
    Span,
}

impl Code {
    /// The kind after a mark that opens or closes this one.
    fn toggled(self, mark: Code) -> Code {
        if self == mark { Code::None } else { mark }
    }
}

impl Reader {
    fn read_line(&mut self, line: &str, number: usize, words: &mut Vec<Word>) {
        let trimmed = line.trim();
        if trimmed.starts_with("```") || trimmed.starts_with("~~~") {
            self.code = self.code.toggled(Code::Fenced);
            return;
        }
        let is_indented = line.starts_with("    ") && self.after_blank && !is_list_item(trimmed);
        if self.code == Code::Fenced || is_indented {
            return;
        }
        self.after_blank = trimmed.is_empty();
        if trimmed.is_empty() || trimmed.starts_with(['#', '|', '>']) || is_list_item(trimmed) {
            self.starts_sentence = true;
            self.code = Code::None;
        }
        self.read_text(trimmed, number, words);
    }

    fn read_text(&mut self, text: &str, line: usize, words: &mut Vec<Word>) {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let mut length = first.len_utf8();
            match first {
                '`' => {
                    self.code = self.code.toggled(Code::Span);
                    self.starts_sentence = false;
                }
                _ if self.code == Code::Span => {}
                // The address of a link.
                ']' if rest.starts_with("](") => {
                    length = rest.find(')').map_or(rest.len(), |end| end + 1);
                }
                '|' => self.starts_sentence = true,
                '.' | '!' | '?' => {
                    let is_end = rest[1..].chars().next().is_none_or(char::is_whitespace);
                    self.starts_sentence |= is_end;
                }
                _ if first.is_alphabetic() => {
                    length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                    words.push(Word {
                        text: rest[..length].to_owned(),
                        line,
                        starts_sentence: self.starts_sentence,
                    });
                    self.starts_sentence = false;
                }
                _ => {}
            }
            rest = &rest[length..];
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '\''
}

fn is_list_item(line: &str) -> bool {
    let bullet = ["- ", "* ", "+ "].iter().any(|mark| line.starts_with(mark));
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    bullet || (number.len() < line.len() && number.starts_with(". "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[Word]) -> Vec<String> {
        let mark = |word: &Word| {
            let mark = if word.starts_sentence { "^" } else { "" };
            format!("{}{mark}{}", word.line, word.text)
        };
        words.iter().map(mark).collect()
    }

    #[test]
    fn code_is_not_prose() {
        let page = "# A\n\nSome `code\nhere` [b](c.md).\n\n    indented\n\n```text\nd\n```\nE. F";

        let found = texts(&page_words(page));

        assert_eq!(found, ["1^A", "3^Some", "4b", "11^E", "11^F"]);
    }

    #[test]
    fn cells_and_items_start_a_sentence() {
        let found = texts(&page_words("| a | b c |\n- d\n  e\n1. f"));

        assert_eq!(found, ["1^a", "1^b", "1c", "2^d", "3e", "4^f"]);
    }

    #[test]
    fn comments_are_read_in_rust_and_lua() {
        let file = RustFile::new("crates/a/src/b.rs", "//! A\nlet b = 1;\n    /// C d");

        assert_eq!(texts(&rust_words(&file)), ["1^A", "3^C", "3d"]);
        assert_eq!(texts(&lua_words("local a = 1 -- b\n-- c")), ["1^b", "2c"]);
    }
}
