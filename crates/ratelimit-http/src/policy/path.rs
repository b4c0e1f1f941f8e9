//! Matching of request paths by rules.
//!
//! Services read unusual paths differently: `/a/..;/b` is `/b` for one and a file `..;` for another. A rule
//! that exempts must match only what all of them read alike ([`certainly_matches`]), and a rule that blocks
//! must match what one of them could read as the blocked path ([`PathReadings`]).

use std::{borrow::Cow, cell::OnceCell};

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

/// Whether every service reads `path` as one that `wanted` matches.
///
/// - The path is compared as it was sent, with its case.
/// - It has no segment `.` or `..`, in any spelling.
/// - What a star matches has no path parameter, backslash, control character, `%25`, broken escape or
///   invalid UTF-8. A repeated or an escaped slash is fine: the path stays below the prefix.
pub(crate) fn certainly_matches(wanted: &str, path: &str) -> bool {
    let rest = match wanted.strip_suffix('*') {
        Some(begin) => path.strip_prefix(begin),
        None => (path == wanted).then_some(""),
    };
    rest.is_some_and(is_unambiguous) && !has_dot_segments(path)
}

/// Whether all services read a part of a path alike, apart from slashes and dot segments.
fn is_unambiguous(part: &str) -> bool {
    // The replacement character stands for invalid UTF-8, and a percent sign was `%25` or a broken escape.
    let is_ambiguous = |c: char| matches!(c, ';' | '\\' | '%' | '\u{fffd}') || c.is_control();
    !decoded(part).contains(is_ambiguous)
}

/// Whether a segment is `.` or `..`, in any spelling.
fn has_dot_segments(path: &str) -> bool {
    decoded(path).split(is_separator).any(is_dot_segment)
}

fn is_dot_segment(segment: &str) -> bool {
    matches!(segment, "." | "..")
}

/// The path percent-decoded. Broken escapes stay, and bytes that are not UTF-8 are replaced.
fn decoded(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let bytes: Vec<u8> = PercentDecoded::lossy(path.as_bytes()).collect();
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// The paths that services could read, for rules that block.
///
/// - Case is ignored, and escapes are decoded as often as there are any.
/// - A backslash is a slash, and empty segments are removed.
/// - Path parameters (`;x`) count as part of their segment, and as absent.
/// - The path ends before an escaped `?` or `#` or a control character, or it does not.
/// - Services disagree on which segments a dot segment removes. So a path with one is blocked if it has the
///   rule's segments in their order, with any others between them.
///
/// A path is analysed once for all rules, and an ordinary one without an allocation.
pub(crate) struct PathReadings<'a> {
    sent: &'a str,
    /// `None` if the path as it was sent is the only reading, apart from case.
    unusual: OnceCell<Option<UnusualPath>>,
}

/// A path with several readings.
struct UnusualPath {
    /// The decoded path in lower case.
    decoded: String,
    /// The readings of a path without dot segments.
    readings: Vec<String>,
    has_dot_segments: bool,
}

impl<'a> PathReadings<'a> {
    pub(crate) const fn new(sent: &'a str) -> PathReadings<'a> {
        PathReadings {
            sent,
            unusual: OnceCell::new(),
        }
    }

    /// Whether a service could read the path as one that `wanted` matches.
    ///
    /// - The escapes of `wanted` are decoded too: `/%C3%BCber` also blocks `/%c3%bcber` and `/über`.
    /// - A `wanted` without escapes and backslashes is taken as it is, so `//a` does not block `/a`.
    /// - An escaped star is not a wildcard.
    /// - A prefix of nothing but escaped slashes does not become the prefix of all paths.
    pub(crate) fn could_match(&self, wanted: &str) -> bool {
        if matches(wanted, self.sent) {
            return true;
        }
        let (begin, is_prefix) = match wanted.strip_suffix('*') {
            Some(begin) => (begin, true),
            None => (wanted, false),
        };
        let wanted = if begin.contains(['%', '\\']) {
            Cow::Owned(joined(&decoded_in_lower_case(begin), |segment| segment))
        } else {
            Cow::Borrowed(begin)
        };
        if is_prefix && wanted == "/" && begin != "/" {
            return false;
        }
        let is_match = |reading: &str| {
            let reading = reading.as_bytes();
            let end = if is_prefix {
                wanted.len()
            } else {
                reading.len()
            };
            let begin = reading.get(..end);
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(wanted.as_bytes()))
        };
        let unusual = || (!is_ordinary(self.sent)).then(|| UnusualPath::new(self.sent));
        match self.unusual.get_or_init(unusual) {
            None => is_match(self.sent),
            Some(path) => {
                path.readings.iter().any(|reading| is_match(reading))
                    || path.has_dot_segments && path.has_in_order(&wanted, is_prefix)
            }
        }
    }
}

impl UnusualPath {
    fn new(sent: &str) -> UnusualPath {
        let decoded = decoded_in_lower_case(sent);
        let readings = [&decoded, before_end(&decoded)].map(|path| {
            let kept = joined(path, |segment| segment);
            [kept, joined(path, without_parameters)]
        });
        let segments = decoded.split(is_separator).map(without_parameters);
        let has_dot_segments = segments.clone().any(is_dot_segment);
        UnusualPath {
            readings: readings.concat(),
            has_dot_segments,
            decoded,
        }
    }

    /// Whether the segments of `wanted` are among those of the path, in their order. Something has to follow
    /// those of a prefix.
    fn has_in_order(&self, wanted: &str, is_prefix: bool) -> bool {
        let mut segments = self.decoded.split(is_separator);
        let mut wanted = wanted.split('/').filter(|segment| !segment.is_empty());
        let is_found = wanted.all(|wanted| {
            segments.any(|segment| {
                let readings = [segment, without_parameters(segment), before_end(segment)];
                let mut readings = readings.iter();
                readings.any(|reading| wanted.eq_ignore_ascii_case(reading))
            })
        });
        is_found && (!is_prefix || segments.next().is_some())
    }
}

/// Whether a path has one reading only, apart from its case.
fn is_ordinary(path: &str) -> bool {
    let is_ordinary =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'%' | b';' | b'\\' | b'?' | b'#');
    let starts_oddly = |segment: &str| segment.is_empty() || segment.starts_with('.');
    let Some(segments) = path.strip_prefix('/') else {
        return false;
    };
    let segments = segments.strip_suffix('/').unwrap_or(segments);
    path.bytes().all(is_ordinary) && (path == "/" || !segments.split('/').any(starts_oddly))
}

/// The path in lower case, percent-decoded until no escape is left. Bytes that are not UTF-8 are replaced.
fn decoded_in_lower_case(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    for byte in path.bytes() {
        bytes.push(byte);
        // A decoded byte can complete another escape: `%2541` is `%41` and then `A`.
        while let Some(start) = bytes.len().checked_sub(3)
            && let Some(Ok(decoded)) = PercentDecoded(&bytes[start..]).next()
            && bytes[start] == b'%'
        {
            bytes.truncate(start);
            bytes.push(decoded);
        }
    }
    String::from_utf8_lossy(&bytes).to_lowercase()
}

/// The path of what `part` leaves of each segment, without empty segments.
fn joined(path: &str, part: fn(&str) -> &str) -> String {
    let mut joined = String::with_capacity(path.len() + 1);
    let mut is_open = true;
    for segment in path.split(is_separator).map(part) {
        is_open = segment.is_empty();
        if !is_open {
            joined.push('/');
            joined.push_str(segment);
        }
    }
    if is_open {
        joined.push('/');
    }
    joined
}

/// A segment without its path parameters, as in `/admin;x=1`.
fn without_parameters(segment: &str) -> &str {
    segment.split_once(';').map_or(segment, |(name, _)| name)
}

/// The part before a decoded `?`, `#` or control character, where some services end the path.
fn before_end(text: &str) -> &str {
    let is_end = |c: char| matches!(c, '?' | '#') || c.is_control();
    text.split(is_end).next().unwrap_or_default()
}

/// Some services treat a backslash as a slash.
const fn is_separator(c: char) -> bool {
    matches!(c, '/' | '\\')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_are_decoded_until_none_is_left() {
        for (path, expected) in [
            ("/%41", "/a"),
            ("/%2541", "/a"),
            ("/%25252541", "/a"),
            ("/%4%31", "/a"),
            ("/%2%35%34%31", "/a"),
            ("/%", "/%"),
            ("/%zz%4", "/%zz%4"),
            ("/%ff", "/\u{fffd}"),
        ] {
            assert_eq!(decoded_in_lower_case(path), expected, "{path}");
        }
    }

    proptest! {
        /// The fast path and the general one agree.
        #[test]
        fn an_ordinary_path_has_itself_as_its_only_reading(path in "/?([a-zA-Z.%;/\\\\]{0,2}/?){0,4}") {
            if is_ordinary(&path) {
                let unusual = UnusualPath::new(&path);

                prop_assert!(!unusual.has_dot_segments);
                for reading in unusual.readings {
                    prop_assert_eq!(reading, path.to_lowercase());
                }
            }
        }
    }
}
