//! Paths of requests, and those that rules name.

use std::borrow::Cow;

use crate::syntax::PercentDecoded;

/// Whether a rule can name it: it begins with a slash, and a star stands only at its end.
pub(crate) fn can_be_wanted(wanted: &str) -> bool {
    let begin = wanted.strip_suffix("/*").unwrap_or(wanted);
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'*' | b'?' | b'#');
    wanted.starts_with('/') && begin.bytes().all(is_plain) && !has_dot_segments(wanted)
}

/// Whether `path` is the one `wanted`, or begins as it does before its star.
pub(crate) fn is(wanted: &str, path: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(begin) => path.starts_with(begin),
        None => path == wanted,
    }
}

/// Whether a segment is `.` or `..`, however it is written.
pub(crate) fn has_dot_segments(path: &str) -> bool {
    let decoded = decoded(path);
    let mut segments = decoded.split(is_separator);
    segments.any(|segment| segment == "." || segment == "..")
}

/// The path decoded, without dot segments and empty ones.
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

/// Some services take one for the other.
const fn is_separator(c: char) -> bool {
    matches!(c, '/' | '\\')
}

fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let bytes: Vec<u8> = PercentDecoded::lossy(path.as_bytes()).collect();
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}
