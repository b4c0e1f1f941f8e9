//! Matching of request paths by rules.
//!
//! A rule that blocks must match every path that a service could interpret as the blocked one, and a
//! rule that exempts must match only what is certain. [`plain`] therefore normalises a path for blocking,
//! and [`has_dot_segments`] excludes ambiguous paths from exemption.

use std::borrow::Cow;

use crate::syntax::PercentDecoded;

/// Whether `wanted` is valid in a rule: it begins with a slash, and a star is allowed only at its end.
pub(crate) fn is_valid_pattern(wanted: &str) -> bool {
    let begin = wanted.strip_suffix("/*").unwrap_or(wanted);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'?' | b'#');
    wanted.starts_with('/') && begin.bytes().all(is_plain) && !has_dot_segments(wanted)
}

/// Whether `path` equals `wanted`, or begins with the part of `wanted` before its star.
pub(crate) fn matches(wanted: &str, path: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(begin) => path.starts_with(begin),
        None => path == wanted,
    }
}

/// Whether a service could interpret `path` as a path that `wanted` matches.
///
/// - The path is compared as it was sent, and as [`plain`] makes it.
/// - The escapes of `wanted` are decoded too: `/%C3%BCber` also blocks `/%c3%bcber` and `/über`.
/// - A `wanted` without escapes is taken as it is, so `//a` does not block `/a`.
/// - An escaped star is not a wildcard.
/// - A prefix of nothing but escaped slashes does not become the prefix of all paths.
pub(crate) fn could_match(wanted: &str, path: &str) -> bool {
    if matches(wanted, path) {
        return true;
    }
    let path = plain(path);
    if matches(wanted, &path) {
        return true;
    }
    if !wanted.contains('%') {
        return false;
    }
    match wanted.strip_suffix('*') {
        Some(begin) => {
            let begin = plain(begin);
            begin != "/" && path.starts_with(&begin)
        }
        None => path == plain(wanted),
    }
}

/// Whether a segment is `.` or `..`, in any spelling.
pub(crate) fn has_dot_segments(path: &str) -> bool {
    let decoded = decoded(path);
    let mut segments = decoded.split(is_separator);
    segments.any(|segment| segment == "." || segment == "..")
}

/// The path percent-decoded, with dot segments resolved and empty segments removed.
pub(crate) fn plain(path: &str) -> String {
    let decoded = decoded(path);
    let mut kept = Vec::new();
    for segment in decoded.split(is_separator) {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    let end = if decoded.ends_with(is_separator) && !kept.is_empty() {
        "/"
    } else {
        ""
    };
    format!("/{}{end}", kept.join("/"))
}

/// Some services treat a backslash as a slash.
const fn is_separator(c: char) -> bool {
    matches!(c, '/' | '\\')
}

/// The path percent-decoded. Broken escapes stay, and bytes that are not UTF-8 are replaced.
fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let bytes: Vec<u8> = PercentDecoded::lossy(path.as_bytes()).collect();
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}
