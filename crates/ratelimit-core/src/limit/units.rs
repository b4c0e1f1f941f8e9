//! Units of time in the texts of limits.

use std::{fmt, time::Duration};

use crate::time::micros;

/// Units in microseconds, the largest first. `us` is accepted and written, and left out of error
/// messages.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("min", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Words for units, each also with an `s` behind it. They are accepted and never written.
const LONG: [(&str, &str); 4] = [
    ("day", "d"),
    ("hour", "h"),
    ("minute", "min"),
    ("second", "s"),
];

/// The unit called `name`, in microseconds.
pub(super) fn micros_of(name: &str) -> Option<u64> {
    let is_long = |long: &str| name == long || name.strip_suffix('s') == Some(long);
    let long = LONG.into_iter().find(|(long, _)| is_long(long));
    let short = long.map_or(name, |(_, short)| short);
    let unit = UNITS.into_iter().find(|(unit, _)| *unit == short);
    unit.map(|(_, micros)| micros)
}

/// The name of the largest unit that divides a number of microseconds, and how many there are.
fn in_largest_unit(micros: u64) -> (u64, &'static str) {
    let divides = |(_, unit): &(&str, u64)| micros.is_multiple_of(*unit);
    let (name, unit) = UNITS.into_iter().find(divides).unwrap_or(("us", 1));
    (micros / unit, name)
}

/// Writes a period in the largest unit that divides it: `15min`, or `s` without its number for one unit.
pub(super) fn write_period(f: &mut fmt::Formatter<'_>, micros: u64) -> fmt::Result {
    match in_largest_unit(micros) {
        (1, name) => f.write_str(name),
        (many, name) => write!(f, "{many}{name}"),
    }
}

/// Writes a span of time in the largest unit that divides it, with its number: `30s`.
pub(super) fn write_span(f: &mut fmt::Formatter<'_>, span: Duration) -> fmt::Result {
    let (many, name) = in_largest_unit(micros(span));
    write!(f, "{many}{name}")
}
