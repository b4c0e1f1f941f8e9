//! Traces: hits with their times.

mod access_log;
mod json_line;

use std::{
    fmt,
    io::{self, BufRead},
};

use clap::ValueEnum;
use ratelimit_core::Key;

use self::{access_log::InvalidAccessLine, json_line::InvalidJsonLine};
use crate::check_keys;

/// The key of a line without a key.
const DEFAULT_KEY: &str = "default";

/// The mark of UTF-8 that some editors write at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// One hit of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceHit {
    pub(crate) at_micros: u64,
    pub(crate) key: String,
    /// The cost; `None` for the cost of the policy.
    pub(crate) cost: Option<u64>,
}

impl TraceHit {
    /// A hit on the default key.
    pub(super) fn at(at_micros: u64) -> TraceHit {
        TraceHit {
            at_micros,
            key: DEFAULT_KEY.to_owned(),
            cost: None,
        }
    }

    /// The key of its budget.
    pub(super) fn budget_key(&self) -> Result<Key, String> {
        budget_key(&self.key)
    }
}

/// The key of a budget by its text, as `check` reads it: `ip:` begins an address.
pub(super) fn budget_key(text: &str) -> Result<Key, String> {
    check_keys::named_key(text).map_err(|why| why.detail().to_owned())
}

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TraceFormat {
    /// A JSON object on each line: {"t":0.5,"key":"a","cost":1}
    Json,
    /// An access log in the common or combined format
    AccessLog,
}

impl TraceFormat {
    /// The format of a trace by its first line.
    fn detect(line: &[u8]) -> TraceFormat {
        match line.trim_ascii_start().first() {
            Some(b'{') => TraceFormat::Json,
            _ => TraceFormat::AccessLog,
        }
    }

    fn parse_line(self, line: &[u8]) -> Result<TraceHit, TraceProblem> {
        match self {
            TraceFormat::Json => json_line::parse(line).map_err(TraceProblem::Json),
            TraceFormat::AccessLog => access_log::parse(line).map_err(TraceProblem::AccessLog),
        }
    }
}

/// Reads traces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceReader {
    /// The format; `None` to tell it by the first line.
    pub(crate) format: Option<TraceFormat>,
    /// Whether invalid lines are counted, in place of an error.
    pub(crate) skips_invalid: bool,
    /// More hits are an error.
    pub(crate) max_hits: usize,
}

/// The hits of a trace, in the order of their lines.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) hits: Vec<TraceHit>,
    /// Lines that were skipped, and the first of them.
    pub(crate) skipped: Vec<InvalidTrace>,
    pub(crate) skipped_count: usize,
}

impl TraceReader {
    /// Reads a trace. Empty lines are ignored.
    pub(crate) fn read(self, mut lines: impl BufRead) -> Result<Trace, InvalidTrace> {
        let mut format = self.format;
        let mut trace = Trace::default();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let wrong = |problem| InvalidTrace {
                line: number,
                problem,
            };
            let length = lines.read_until(b'\n', &mut line);
            if length.map_err(|why| wrong(TraceProblem::Read(why)))? == 0 {
                break;
            }
            if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
                line.drain(..BYTE_ORDER_MARK.len());
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let parsed = format
                .get_or_insert_with(|| TraceFormat::detect(&line))
                .parse_line(line.trim_ascii());
            let parsed = parsed.and_then(|hit| match hit.budget_key() {
                Ok(_) => Ok(hit),
                Err(why) => Err(TraceProblem::Key(why)),
            });
            match parsed {
                Ok(_) if trace.hits.len() == self.max_hits => {
                    return Err(wrong(TraceProblem::TooMany(self.max_hits)));
                }
                Ok(hit) => trace.hits.push(hit),
                Err(problem) if self.skips_invalid => trace.skip(wrong(problem)),
                Err(problem) => return Err(wrong(problem)),
            }
        }
        Ok(trace)
    }
}

impl Trace {
    fn skip(&mut self, invalid: InvalidTrace) {
        self.skipped_count += 1;
        if self.skipped.is_empty() {
            self.skipped.push(invalid);
        }
    }

    /// How many hits are earlier than the one before.
    ///
    /// Access logs are written when requests end, so their lines are seldom in the order in which requests began.
    pub(crate) fn late_count(&self) -> usize {
        let pairs = self.hits.windows(2);
        pairs
            .filter(|pair| pair[1].at_micros < pair[0].at_micros)
            .count()
    }

    /// The hits in the order of their times; those of one time in the order of their lines.
    pub(crate) fn into_sorted_hits(mut self) -> Vec<TraceHit> {
        self.hits.sort_by_key(|hit| hit.at_micros);
        self.hits
    }
}

/// An invalid line of a trace.
#[derive(Debug)]
pub(crate) struct InvalidTrace {
    line: usize,
    problem: TraceProblem,
}

#[derive(Debug)]
enum TraceProblem {
    Read(io::Error),
    Json(InvalidJsonLine),
    AccessLog(InvalidAccessLine),
    Key(String),
    TooMany(usize),
}

impl fmt::Display for InvalidTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: ", self.line)?;
        match &self.problem {
            TraceProblem::Read(why) => why.fmt(f),
            TraceProblem::Json(why) => why.fmt(f),
            TraceProblem::AccessLog(why) => why.fmt(f),
            TraceProblem::Key(why) => why.fmt(f),
            TraceProblem::TooMany(most) => write!(f, "a trace has at most {most} hits here"),
        }
    }
}

impl std::error::Error for InvalidTrace {}

#[cfg(test)]
mod tests {
    use super::*;

    const READER: TraceReader = TraceReader {
        format: None,
        skips_invalid: false,
        max_hits: 100,
    };

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_line() {
        let trace = READER.read("\u{feff}{\"t\":1}\n{\"t\":2}\n".as_bytes());

        assert_eq!(
            trace.unwrap().hits,
            [1_000_000, 2_000_000].map(TraceHit::at)
        );
        let later = READER.read("{\"t\":1}\n\u{feff}{\"t\":2}\n".as_bytes());
        assert!(later.is_err());
    }

    #[test]
    fn an_invalid_key_is_an_error_of_its_line() {
        let key = Key::new("a").unwrap().fingerprint();
        let text = format!("{{\"t\":1}}\n{{\"t\":2,\"key\":\"{key}\"}}\n");

        let why = READER.read(text.as_bytes()).unwrap_err().to_string();

        assert!(
            why.starts_with("line 2 of the trace: this is the fingerprint"),
            "{why}"
        );
    }

    #[test]
    fn the_format_is_told_by_the_first_line() {
        let log = "\n203.0.113.9 - - [16/Nov/2026:14:55:02 +0000] \"GET / HTTP/1.1\" 200 1\n";
        let json = "  {\"t\":1}\n";

        assert_eq!(
            READER.read(log.as_bytes()).unwrap().hits[0].key,
            "ip:203.0.113.9"
        );
        assert_eq!(
            READER.read(json.as_bytes()).unwrap().hits,
            [TraceHit::at(1_000_000)]
        );
        let json_only = TraceReader {
            format: Some(TraceFormat::Json),
            ..READER
        };
        assert!(json_only.read(log.as_bytes()).is_err());
    }

    #[test]
    fn an_invalid_line_is_an_error_or_counted() {
        let text = "{\"t\":0}\nnonsense\n{\"t\":-1}\n{\"t\":2}\n";
        let skipping = TraceReader {
            skips_invalid: true,
            ..READER
        };

        let why = READER.read(text.as_bytes()).unwrap_err().to_string();
        let trace = skipping.read(text.as_bytes()).unwrap();

        assert!(why.starts_with("line 2 of the trace: "), "{why}");
        assert_eq!((trace.hits.len(), trace.skipped_count), (2, 2));
        assert!(trace.skipped[0].to_string().starts_with("line 2 "));
    }

    #[test]
    fn a_trace_with_too_many_hits_is_an_error() {
        let text = "{\"t\":0}\n".repeat(101);

        let why = READER.read(text.as_bytes()).unwrap_err().to_string();

        assert_eq!(
            why,
            "line 101 of the trace: a trace has at most 100 hits here"
        );
    }

    #[test]
    fn hits_are_sorted_by_time_and_late_ones_counted() {
        let text = "{\"t\":2,\"key\":\"a\"}\n{\"t\":1,\"key\":\"b\"}\n{\"t\":2,\"key\":\"c\"}\n";

        let trace = READER.read(text.as_bytes()).unwrap();

        assert_eq!(trace.late_count(), 1);
        let keys: Vec<String> = trace
            .into_sorted_hits()
            .into_iter()
            .map(|hit| hit.key)
            .collect();
        assert_eq!(keys, ["b", "a", "c"]);
    }
}
