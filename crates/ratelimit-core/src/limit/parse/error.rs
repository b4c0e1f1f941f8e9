//! The error of a text that is not a limit.

use std::{borrow::Cow, fmt};

use crate::algorithm::InvalidLimit;

/// A text is not a limit. The message has the column and what was expected there, or the [`InvalidLimit`].
///
/// ```
/// use ratelimit_core::Limit;
///
/// let error = "10/m".parse::<Limit>().unwrap_err();
/// assert_eq!(error.offset(), 3);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ParseLimitError {
    /// The whole text, also where one limit of a list failed.
    pub(super) text: String,
    /// The byte offset of the mistake.
    pub(super) at: usize,
    /// The kind of mistake.
    pub(super) problem: Reason,
}

/// The kind of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The grammar expected something else.
    Expected(Cow<'static, str>),
    /// The text is well-formed, and its numbers cannot be a limit.
    Refused(InvalidLimit),
}

impl ParseLimitError {
    /// The byte offset in the text at which the mistake begins.
    pub const fn offset(&self) -> usize {
        self.at
    }
}

impl fmt::Display for ParseLimitError {
    /// The column counts characters from 1, for a reader; [`offset`](ParseLimitError::offset) counts bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.text.get(..self.at).unwrap_or(&self.text);
        let column = before.chars().count() + 1;
        match &self.problem {
            Reason::Expected(what) => {
                write!(f, "expected {what} at column {column} of {:?}", self.text)
            }
            Reason::Refused(why) => write!(f, "{why} (at column {column} of {:?})", self.text),
        }
    }
}

debug_as_display!(ParseLimitError);

impl std::error::Error for ParseLimitError {}
