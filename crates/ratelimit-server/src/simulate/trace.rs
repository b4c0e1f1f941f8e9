//! Traces: hits with their times.

use std::{
    borrow::Cow,
    fmt,
    io::{self, BufRead},
};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decimal;

/// The key of a line without a key.
const DEFAULT_KEY: &str = "default";

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TraceHit {
    pub(super) at_micros: u64,
    pub(super) key: String,
    pub(super) cost: u64,
}

impl TraceHit {
    /// A hit of cost 1 on the default key.
    pub(super) fn at(at_micros: u64) -> TraceHit {
        TraceHit {
            at_micros,
            key: DEFAULT_KEY.to_owned(),
            cost: 1,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceLine<'a> {
    #[serde(borrow)]
    t: &'a RawValue,
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    cost: Option<u64>,
}

/// Reads a trace and sorts it by time. Empty lines are skipped. A note on standard error says how many lines were late.
///
/// Access logs are written when requests end, so their lines are seldom in the order in which requests began.
pub(super) fn read(mut lines: impl BufRead) -> Result<Vec<TraceHit>, InvalidTrace> {
    let mut trace = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let wrong = |problem| InvalidTrace {
            line: number,
            problem,
        };
        let length = lines.read_until(b'\n', &mut line);
        if length.map_err(|why| wrong(Problem::Read(why)))? == 0 {
            break;
        }
        if !line.trim_ascii().is_empty() {
            trace.push(parse_line(&line).map_err(wrong)?);
        }
    }
    let late = trace.windows(2);
    let late = late.filter(|pair: &&[TraceHit]| pair[1].at_micros < pair[0].at_micros);
    let late = late.count();
    if late > 0 {
        let lines = if late == 1 { "line was" } else { "lines were" };
        eprintln!(
            "note: {late} {lines} earlier than the line before; hits are replayed by their time"
        );
    }
    trace.sort_by_key(|hit| hit.at_micros);
    Ok(trace)
}

fn parse_line(line: &[u8]) -> Result<TraceHit, Problem> {
    let line: TraceLine<'_> = serde_json::from_slice(line).map_err(Problem::Json)?;
    let at_micros = decimal::micros(line.t.get()).ok_or(Problem::Time)?;
    let key = line.key.unwrap_or(Cow::Borrowed(DEFAULT_KEY));
    if key.is_empty() {
        return Err(Problem::Key);
    }
    Ok(TraceHit {
        at_micros,
        key: key.into_owned(),
        cost: line.cost.unwrap_or(1),
    })
}

/// An invalid line of a trace.
#[derive(Debug)]
pub(super) struct InvalidTrace {
    line: usize,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Read(io::Error),
    Json(serde_json::Error),
    Time,
    Key,
}

impl fmt::Display for InvalidTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: ", self.line)?;
        match &self.problem {
            Problem::Read(why) => why.fmt(f),
            // Each line is a JSON document of its own, so only the column is meaningful.
            Problem::Json(why) => {
                let text = why.to_string();
                let what = text.split(" at line ").next().unwrap_or(&text);
                write!(f, "{what} at column {}", why.column())
            }
            Problem::Time => f.write_str("t must be seconds from 0 to 9007199254.740991"),
            Problem::Key => f.write_str("key must not be empty"),
        }
    }
}

impl std::error::Error for InvalidTrace {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_needs_only_a_time() {
        let trace =
            read(&b"{\"t\":0.5}\n\n{\"cost\":3,\"key\":\"a\\u0041\",\"t\":1e-6}"[..]).unwrap();

        assert_eq!(
            (trace[0].at_micros, &*trace[0].key, trace[0].cost),
            (1, "aA", 3)
        );
        assert_eq!(trace[1], TraceHit::at(500_000));
    }

    #[test]
    fn an_error_names_its_line() {
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
            let text = format!("{{\"t\":0}}\n{mistake}\n");
            let why = read(text.as_bytes()).unwrap_err().to_string();
            assert!(why.starts_with("line 2 of the trace: "), "{mistake}: {why}");
        }
    }
}
