//! Sets of response statuses.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::syntax::InvalidSyntax;

/// A set of response statuses, written as `401, 403, 5xx`.
///
/// A class such as `4xx` contains all its statuses, so `401, 4xx` equals `4xx`.
///
/// ```
/// use ratelimit_http::policy::StatusSet;
///
/// let failed: StatusSet = "401, 5xx".parse()?;
/// assert!(failed.contains(401) && failed.contains(503));
/// assert!(!failed.contains(200));
/// # Ok::<(), ratelimit_http::InvalidSyntax>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusSet {
    /// First digits of the classes.
    classes: BTreeSet<u16>,
    /// Single statuses outside the classes.
    statuses: BTreeSet<u16>,
}

impl StatusSet {
    /// Whether the set contains `status`, by itself or by its class.
    pub fn contains(&self, status: u16) -> bool {
        self.classes.contains(&(status / 100)) || self.statuses.contains(&status)
    }

    /// The union of two sets.
    ///
    /// ```
    /// use ratelimit_http::policy::StatusSet;
    ///
    /// let failed = "401".parse::<StatusSet>()?.and(&"5xx".parse()?);
    /// assert_eq!(failed, "401, 5xx".parse()?);
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    #[must_use]
    pub fn and(mut self, other: &StatusSet) -> StatusSet {
        self.classes.extend(&other.classes);
        self.statuses.extend(&other.statuses);
        let classes = &self.classes;
        self.statuses
            .retain(|status| !classes.contains(&(status / 100)));
        self
    }

    fn class(digit: u16) -> StatusSet {
        StatusSet {
            classes: BTreeSet::from([digit]),
            ..StatusSet::default()
        }
    }

    fn status(status: u16) -> StatusSet {
        StatusSet {
            statuses: BTreeSet::from([status]),
            ..StatusSet::default()
        }
    }
}

impl fmt::Display for StatusSet {
    /// Writes a text that parses to an equal set, classes first.
    ///
    /// ```
    /// use ratelimit_http::policy::StatusSet;
    ///
    /// let failed: StatusSet = "401, 5xx".parse()?;
    /// assert_eq!(failed.to_string(), "5xx, 401");
    /// # Ok::<(), ratelimit_http::InvalidSyntax>(())
    /// ```
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = self.classes.iter().map(|class| format!("{class}xx"));
        let statuses = self.statuses.iter().map(u16::to_string);
        let parts: Vec<String> = classes.chain(statuses).collect();
        f.write_str(&parts.join(", "))
    }
}

impl FromStr for StatusSet {
    type Err = InvalidSyntax;

    /// Parses statuses and classes, separated by commas.
    ///
    /// # Errors
    ///
    /// [`InvalidSyntax`] for the first part that is neither a status from 100 to 599 nor a class from
    /// `1xx` to `5xx`.
    fn from_str(text: &str) -> Result<StatusSet, InvalidSyntax> {
        let mut all = StatusSet::default();
        for part in text.split(',') {
            let part = part.trim();
            let one = parse_part(part).ok_or_else(|| InvalidSyntax::value(part, EXPECTED))?;
            all = all.and(&one);
        }
        Ok(all)
    }
}

const EXPECTED: &str = "a status from 100 to 599, or a class such as 4xx";

/// Parses one status or class.
fn parse_part(text: &str) -> Option<StatusSet> {
    let digits = text.strip_suffix("xx").unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match (digits.parse().ok()?, digits.len(), text.len()) {
        (digit @ 1..=5, 1, 3) => Some(StatusSet::class(digit)),
        (status @ 100..=599, 3, 3) => Some(StatusSet::status(status)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> StatusSet {
        text.parse().expect(text)
    }

    #[test]
    fn a_status_is_named_or_in_a_named_class() {
        let some = set("401, 5xx");

        for (status, is_in) in [
            (400, false),
            (401, true),
            (499, false),
            (500, true),
            (599, true),
        ] {
            assert_eq!(some.contains(status), is_in, "{status}");
        }
    }

    #[test]
    fn a_status_in_a_class_is_there_once() {
        assert_eq!(set("401,4xx"), set("4xx"));
        assert_eq!(set("4xx, 404"), set("4xx"));
        assert_eq!(set("403, 401"), set("401, 403"));
    }

    #[test]
    fn a_set_is_written_as_it_is_read() {
        for text in ["401", "4xx", "5xx, 401, 403"] {
            assert_eq!(set(text).to_string(), text);
        }
    }

    #[test]
    fn an_invalid_status_is_an_error() {
        for text in [
            "", "4", "6xx", "0xx", "xx", "44xx", "99", "600", "0401", "+01", "401;403", "4XX",
        ] {
            let message = text.parse::<StatusSet>().expect_err(text).to_string();
            assert!(
                message.starts_with(&format!("expected {EXPECTED}")),
                "{message}"
            );
        }
    }
}
