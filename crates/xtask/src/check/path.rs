//! Paths in Rust code: `use` trees and paths inside expressions.

use crate::check::token::Token;

/// One name that a `use` brings in, or one path in the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RustPath {
    /// `["crate", "a", "B"]`; a glob ends in `*`.
    pub(super) segments: Vec<String>,
    /// The name after `as`.
    pub(super) alias: Option<String>,
    pub(super) line: usize,
}

impl RustPath {
    /// The name that this path has where it is imported.
    pub(super) fn name(&self) -> &str {
        let last = self.segments.last().map_or("", String::as_str);
        match (&self.alias, self.segments.len()) {
            (Some(alias), _) => alias,
            (None, 2..) if last == "self" => &self.segments[self.segments.len() - 2],
            (None, _) => last,
        }
    }
}

/// The paths of one tree that starts at the first token, and how many tokens it takes.
pub(super) fn parse_tree(tokens: &[Token<'_>]) -> (Vec<RustPath>, usize) {
    let mut segments = Vec::new();
    let mut at = 0;
    let line = tokens.first().map_or(0, |token| token.line);
    while let Some(token) = tokens.get(at) {
        if token.text == "::" {
            at += 1;
        } else if token.text == "{" {
            let (paths, length) = parse_braces(&tokens[at..], &segments);
            return (paths, at + length);
        } else if token.text == "*" || token.is_word() {
            segments.push(token.text.to_owned());
            at += 1;
            if tokens.get(at).is_none_or(|next| next.text != "::") {
                break;
            }
        } else {
            break;
        }
    }
    let mut alias = None;
    if let [as_, name, ..] = &tokens[at..]
        && as_.text == "as"
        && name.is_word()
    {
        alias = Some(name.text.to_owned());
        at += 2;
    }
    let path = RustPath {
        segments,
        alias,
        line,
    };
    (vec![path], at)
}

fn parse_braces(tokens: &[Token<'_>], prefix: &[String]) -> (Vec<RustPath>, usize) {
    let mut paths = Vec::new();
    let mut at = 1;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "}" => return (paths, at + 1),
            "," => at += 1,
            _ => {
                let (mut found, length) = parse_tree(&tokens[at..]);
                for path in &mut found {
                    path.segments.splice(0..0, prefix.iter().cloned());
                }
                paths.extend(found);
                at += length.max(1);
            }
        }
    }
    (paths, at)
}

/// A `use` item.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UseItem {
    pub(super) visibility: Visibility,
    pub(super) paths: Vec<RustPath>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visibility {
    Private,
    /// `pub(crate)`, `pub(super)` and `pub(in ...)`.
    Restricted,
    Public,
}

/// Every `use` item of a file.
pub(super) fn use_items(tokens: &[Token<'_>]) -> Vec<UseItem> {
    let mut items = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let is_bound = tokens.get(at + 1).is_some_and(|next| next.text == "<");
        if token.text == "use" && !is_bound {
            let (paths, _) = parse_tree(&tokens[at + 1..]);
            let visibility = visibility_before(&tokens[..at]);
            items.push(UseItem { visibility, paths });
        }
    }
    items
}

/// The visibility that stands right before an item.
pub(super) fn visibility_before(tokens: &[Token<'_>]) -> Visibility {
    match tokens.iter().rev().map(|token| token.text).next() {
        Some("pub") => Visibility::Public,
        Some(")") => {
            let open = tokens.iter().rposition(|token| token.text == "(");
            let before = open.and_then(|open| tokens[..open].last());
            match before {
                Some(before) if before.text == "pub" => Visibility::Restricted,
                _ => Visibility::Private,
            }
        }
        _ => Visibility::Private,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::token::tokens;

    fn joined(code: &str) -> Vec<String> {
        let items = use_items(&tokens(code));
        let paths = items.iter().flat_map(|item| &item.paths);
        paths
            .map(|path| format!("{} {}", path.segments.join("::"), path.name()))
            .collect()
    }

    #[test]
    fn trees_are_flattened() {
        assert_eq!(
            joined("use a::{b::{self, C}, d::*, E as F}; fn x() {}"),
            ["a::b::self b", "a::b::C C", "a::d::* *", "a::E F"]
        );
        assert_eq!(joined("use a;"), ["a a"]);
    }

    #[test]
    fn visibility_is_read_before_the_item() {
        let visibility = |code| use_items(&tokens(code))[0].visibility;

        assert_eq!(visibility("pub use a::B;"), Visibility::Public);
        assert_eq!(visibility("pub(crate) use a::B;"), Visibility::Restricted);
        assert_eq!(visibility("fn f() {} use a::B;"), Visibility::Private);
    }
}
