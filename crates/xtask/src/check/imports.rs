//! The imports of a file from its own crate.

/// The names right below the crate's root that a file mentions.
///
/// `depth` is the number of modules the file is in: 1 for `limit.rs` and
/// `store/mod.rs`, 2 for `store/memory.rs`.
pub(super) fn imports(code: &str, depth: usize) -> Vec<Import> {
    let mut found = Vec::new();
    let mut rest = code;
    let mut before = None;
    while let Some(next) = rest.chars().next() {
        let starts_word = !before.is_some_and(|c: char| is_name(c) || c == ':');
        if starts_word && let Some((start, after)) = root(rest, depth) {
            found.extend(names(after).into_iter().map(|name| Import { start, name }));
        }
        before = Some(next);
        rest = &rest[next.len_utf8()..];
    }
    found
}

/// A name, and the word its path starts with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) start: Start,
    pub(super) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Crate,
    /// Inside a `mod tests` this may reach the file's own names only.
    Super,
}

fn root(rest: &str, depth: usize) -> Option<(Start, &str)> {
    if let Some(after) = rest.strip_prefix("crate::") {
        return Some((Start::Crate, after));
    }
    let mut after = rest;
    let mut steps = 0;
    while let Some(outer) = after.strip_prefix("super::") {
        after = outer;
        steps += 1;
    }
    (steps >= depth && steps > 0).then_some((Start::Super, after))
}

/// The first name of a path, or of each path in braces.
fn names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return first_name(path).into_iter().collect();
    };
    let mut found = Vec::new();
    let mut depth = 0;
    let mut from = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.extend(first_name(&group[from..at]));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(first_name(&group[from..at]));
                from = at + 1;
            }
            _ => {}
        }
    }
    found
}

fn first_name(path: &str) -> Option<String> {
    let name: String = path
        .trim_start()
        .chars()
        .take_while(|c| is_name(*c))
        .collect();
    (!name.is_empty()).then_some(name)
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str, depth: usize) -> Vec<String> {
        imports(code, depth)
            .into_iter()
            .map(|import| import.name)
            .collect()
    }

    #[test]
    fn every_form_of_a_path_is_seen() {
        assert_eq!(found("use crate::time::Clock;", 1), ["time"]);
        assert_eq!(found("fn f(at: crate::time::Timestamp)", 1), ["time"]);
        assert_eq!(
            found(
                "use crate::{\n    key::{Key, Part}, limit,\n    time::Clock,\n};",
                1
            ),
            ["key", "limit", "time"]
        );
        assert_eq!(
            found("use crate::{a::{b, c::{d}}}; use crate::e;", 1),
            ["a", "e"]
        );
    }

    #[test]
    fn super_reaches_the_root_from_its_depth_only() {
        assert_eq!(found("use super::limiter::Limiter;", 1), ["limiter"]);
        assert_eq!(found("use super::StoreError;", 2), [""; 0]);
        assert_eq!(found("use super::super::policy::Policy;", 2), ["policy"]);
    }

    #[test]
    fn imports_of_other_crates_are_ignored() {
        assert_eq!(
            found("use my_crate::time; use http::super_::x; use std::fmt;", 1),
            [""; 0]
        );
    }
}
