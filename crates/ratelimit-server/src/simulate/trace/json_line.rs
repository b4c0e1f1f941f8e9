//! A line of a trace as a JSON object.

use std::{borrow::Cow, fmt};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{DEFAULT_KEY, TraceHit};
use crate::simulate::decimal;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLine<'a> {
    #[serde(borrow)]
    t: &'a RawValue,
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    cost: Option<u64>,
}

/// Parses `{"t":0.5,"key":"a","cost":1}`, of which only `t` is needed.
pub(super) fn parse(line: &[u8]) -> Result<TraceHit, InvalidJsonLine> {
    let line: JsonLine<'_> = serde_json::from_slice(line).map_err(InvalidJsonLine::Json)?;
    let at_micros = decimal::micros(line.t.get()).ok_or(InvalidJsonLine::Time)?;
    let key = line.key.unwrap_or(Cow::Borrowed(DEFAULT_KEY));
    if key.is_empty() {
        return Err(InvalidJsonLine::Key);
    }
    Ok(TraceHit {
        at_micros,
        key: key.into_owned(),
        cost: line.cost,
    })
}

/// A line that is not a hit.
#[derive(Debug)]
pub(super) enum InvalidJsonLine {
    Json(serde_json::Error),
    Time,
    Key,
}

impl fmt::Display for InvalidJsonLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Each line is a JSON document of its own, so only the column is meaningful.
            InvalidJsonLine::Json(why) => {
                let text = why.to_string();
                let what = text.split(" at line ").next().unwrap_or(&text);
                write!(f, "{what} at column {}", why.column())
            }
            InvalidJsonLine::Time => f.write_str("t must be seconds from 0 to 9007199254.740991"),
            InvalidJsonLine::Key => f.write_str("key must not be empty"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_needs_only_a_time() {
        let hit = parse(b"{\"cost\":3,\"key\":\"a\\u0041\",\"t\":1e-6}").unwrap();

        assert_eq!((hit.at_micros, &*hit.key, hit.cost), (1, "aA", Some(3)));
        assert_eq!(parse(b"{\"t\":0.5}").unwrap(), TraceHit::at(500_000));
    }

    #[test]
    fn a_mistake_is_an_error() {
        let mistakes = [
            "{\"t\":-1}",
            "{\"key\":\"a\"}",
            "{\"t\":1,\"cost\":-1}",
            "{\"t\":1,\"cost\":1.5}",
            "{\"t\":1,\"key\":\"\"}",
            "nonsense",
            "{\"t\":\"1\"}",
            "{\"t\":1} {}",
            "{\"t\":1,\"csot\":2}",
        ];
        for mistake in mistakes {
            assert!(parse(mistake.as_bytes()).is_err(), "{mistake}");
        }
    }
}
