//! Durations as numbers of microseconds.

use std::time::Duration;

/// The whole microseconds of a duration, at most [`u64::MAX`].
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
