//! The text of a limit, `token_bucket 10/s burst 100`: a parser that reports where it failed.

mod error;

use std::{str::FromStr, time::Duration};

pub use self::error::ParseLimitError;
use self::error::Reason;

use crate::algorithm::{
    Algorithm, Concurrency, FixedWindow, LeakyBucket, PenaltyBox, SlidingWindowCounter,
    SlidingWindowLog, TokenBucket,
};
use crate::limit::{Limit, units::micros_of};

/// The phrase of an error message, after "expected".
const EXPECTED_RATE: &str = "a rate such as 10/s or 100/15min";
/// The same for a period, whose number is optional.
const EXPECTED_PERIOD: &str = "a period such as s, 15min or 1h (units: ms, s, min, h, d)";
/// The same for `m`, which could be a minute or a month.
const EXPECTED_MINUTE: &str = "`min` for a minute, or `30d` for a month";
/// The same for a comma behind a limit.
const EXPECTED_SEMICOLON: &str = "`;` between two limits";
/// The same for `by` before other words.
const EXPECTED_KEY_LAST: &str = "`by KEY` as the last words of the limit";
/// The same for a span, whose number is required.
const EXPECTED_SPAN: &str = "a time such as 30s or 15min (units: ms, s, min, h, d)";

impl FromStr for Limit {
    type Err = ParseLimitError;

    /// Parses one limit; see [`Limit`] for the grammar.
    fn from_str(text: &str) -> Result<Limit, ParseLimitError> {
        Parser::of(text).limit()
    }
}

impl Limit {
    /// Parses limits that are joined with `;`, in order.
    ///
    /// ```
    /// use ratelimit_core::Limit;
    ///
    /// let limits = Limit::parse_list("10/s; fixed_window 1000/h")?;
    /// assert_eq!(limits.len(), 2);
    /// # Ok::<(), ratelimit_core::ParseLimitError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ParseLimitError`] for the first part that is not a limit, with the offset in the whole text.
    pub fn parse_list(text: &str) -> Result<Vec<Limit>, ParseLimitError> {
        let mut limits = Vec::new();
        let mut start = 0;
        for part in text.split(';') {
            limits.push(Parser::from(text, part, start).limit()?);
            // The separator is one byte long.
            start += part.len() + 1;
        }
        Ok(limits)
    }

    /// The same for a policy, where a limit may name its key: `100/min by ip`. Returns each limit with that
    /// name.
    pub(crate) fn parse_list_keyed(
        text: &str,
    ) -> Result<Vec<(Limit, Option<&str>)>, ParseLimitError> {
        let mut limits = Vec::new();
        let mut start = 0;
        for part in text.split(';') {
            let (limit, by) = cut_key(part);
            let parser = Parser {
                is_keyed: true,
                ..Parser::from(text, limit, start)
            };
            limits.push((parser.limit()?, by));
            start += part.len() + 1;
        }
        Ok(limits)
    }
}

/// Splits `by NAME` off the end of a limit. The name is checked by the policy.
fn cut_key(part: &str) -> (&str, Option<&str>) {
    let last_word = |text: &str| text.trim_end().rfind(char::is_whitespace);
    let Some((head, name)) = last_word(part).map(|at| part.split_at(at)) else {
        return (part, None);
    };
    match last_word(head).map(|at| head.split_at(at)) {
        Some((limit, by)) if by.trim() == "by" => (limit, Some(name.trim())),
        _ => (part, None),
    }
}

/// A cursor over the words of one limit.
struct Parser<'a> {
    /// The whole text, for error messages.
    text: &'a str,
    /// The part of this limit that is not read yet.
    rest: &'a str,
    /// The byte offset of `rest` in `text`.
    at: usize,
    /// Whether the limit may name its key.
    is_keyed: bool,
}

/// A word and its byte offset in the whole text; an empty word is the end of the limit.
#[derive(Clone, Copy)]
struct Token<'a> {
    word: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// A cursor at the beginning of a text that is one limit.
    fn of(text: &'a str) -> Parser<'a> {
        Parser::from(text, text, 0)
    }

    /// A cursor over `rest`, which begins at the byte `at` of `text`.
    fn from(text: &'a str, rest: &'a str, at: usize) -> Parser<'a> {
        Parser {
            text,
            rest,
            at,
            is_keyed: false,
        }
    }

    /// Parses the whole limit; the words that the algorithm does not have are errors.
    fn limit(mut self) -> Result<Limit, ParseLimitError> {
        let first = self.next();
        let (algorithm, rate) = match Algorithm::from_name(first.word) {
            Some(algorithm) => (algorithm, self.next()),
            None => (Algorithm::TokenBucket, first),
        };
        if algorithm == Algorithm::Concurrency {
            return self.concurrency(rate);
        }
        // A first word of letters is a misspelt name. Without this check the message would complain about a
        // rate.
        let looks_like_a_name = |word: &str| word.starts_with(|c: char| c.is_ascii_alphabetic());
        if looks_like_a_name(rate.word) && rate.at == first.at {
            return Err(self.expected(first, "an algorithm (token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter, concurrency, penalty_box) or a rate such as 10/s"));
        }
        let (count, period) = self.rate(rate)?;
        if algorithm == Algorithm::PenaltyBox {
            return self.penalty_box(rate, count, period);
        }
        let options = self.options(algorithm)?;
        let capacity = options.capacity.unwrap_or(count);
        let built = match algorithm {
            Algorithm::TokenBucket => TokenBucket::new(capacity, count, period).map(Limit::from),
            Algorithm::LeakyBucket => LeakyBucket::new(capacity, count, period).map(|bucket| {
                let bucket = if options.police {
                    bucket.without_delay()
                } else {
                    bucket
                };
                bucket.into()
            }),
            Algorithm::FixedWindow => FixedWindow::new(count, period).map(Limit::from),
            Algorithm::SlidingWindowLog => SlidingWindowLog::new(count, period).map(|log| {
                let log = if options.count_denied {
                    log.counting_denied()
                } else {
                    log
                };
                log.into()
            }),
            _ => SlidingWindowCounter::new(count, period).map(Limit::from),
        };
        // Errors of numbers point at the rate, where most of them are.
        built.map_err(|why| self.error(rate.at, Reason::Refused(why)))
    }

    /// `N [lease SPAN]`.
    fn concurrency(mut self, slots: Token<'a>) -> Result<Limit, ParseLimitError> {
        let limit = self.number(slots)?;
        let option = self.next();
        let lease = match option.word {
            "" => Concurrency::DEFAULT_LEASE,
            "lease" => {
                let lease = self.next();
                self.span(lease)?
            }
            _ => return Err(self.expected(option, "`lease D`, or the end of the limit")),
        };
        self.end()?;
        let built = Concurrency::new(limit, lease).map(Limit::from);
        built.map_err(|why| self.error(slots.at, Reason::Refused(why)))
    }

    /// `for SPAN [growing]`, after `penalty_box N/PERIOD`.
    fn penalty_box(
        mut self,
        rate: Token<'a>,
        denials: u64,
        within: Duration,
    ) -> Result<Limit, ParseLimitError> {
        let option = self.next();
        if option.word != "for" {
            return Err(self.expected(option, "`for D`, how long the refusal is"));
        }
        let refusal = self.next();
        let built = PenaltyBox::new(denials, within, self.span(refusal)?);
        let mut built = built.map_err(|why| self.error(rate.at, Reason::Refused(why)))?;
        let option = self.next();
        match option.word {
            "" => {}
            "growing" => built = built.doubling(),
            _ => return Err(self.expected(option, "`growing`, or the end of the limit")),
        }
        self.end()?;
        Ok(built.into())
    }

    /// Rejects words after the end of the limit.
    fn end(&mut self) -> Result<(), ParseLimitError> {
        let rest = self.next();
        match rest.word {
            "" => Ok(()),
            _ => Err(self.expected(rest, "the end of the limit")),
        }
    }

    /// A span of time such as `30s`; unlike a period it needs its number.
    fn span(&self, span: Token<'a>) -> Result<Duration, ParseLimitError> {
        if !span.word.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.expected(span, EXPECTED_SPAN));
        }
        let found = self.period(span);
        found.map_err(|error| match error.problem {
            Reason::Expected(what) if what == EXPECTED_PERIOD => self.expected(span, EXPECTED_SPAN),
            _ => error,
        })
    }

    /// `N/PERIOD`.
    fn rate(&self, rate: Token<'a>) -> Result<(u64, Duration), ParseLimitError> {
        let Some((count, period)) = rate.word.split_once('/') else {
            return Err(self.expected(rate, EXPECTED_RATE));
        };
        let count = self.number(Token {
            word: count,
            ..rate
        })?;
        let period = Token {
            word: period,
            at: rate.at + rate.word.len() - period.len(),
        };
        Ok((count, self.period(period)?))
    }

    /// A unit with an optional number before it. A number that overflows saturates and is rejected as too long.
    fn period(&self, period: Token<'a>) -> Result<Duration, ParseLimitError> {
        let digits = period.word.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = period.word.split_at(digits);
        let Some(micros) = micros_of(unit) else {
            let is_ambiguous = unit == "m";
            let what = if is_ambiguous {
                EXPECTED_MINUTE
            } else {
                EXPECTED_PERIOD
            };
            return Err(self.expected(period, what));
        };
        let many = if number.is_empty() {
            1
        } else {
            self.number(Token {
                word: number,
                ..period
            })?
        };
        Ok(Duration::from_micros(many.saturating_mul(micros)))
    }

    /// The options of a rate, in any order and each at most once.
    fn options(&mut self, algorithm: Algorithm) -> Result<Options, ParseLimitError> {
        let (allowed, capacity_word) = match algorithm {
            Algorithm::TokenBucket => ("`burst N`, or the end of the limit", "burst"),
            Algorithm::LeakyBucket => ("`queue N`, `police`, or the end of the limit", "queue"),
            Algorithm::SlidingWindowLog => ("`count-denied`, or the end of the limit", ""),
            _ => ("the end of the limit", ""),
        };
        let mut options = Options::default();
        loop {
            let option = self.next();
            let seen = match option.word {
                "" => return Ok(options),
                word if word == capacity_word => {
                    let number = self.next();
                    options.capacity.replace(self.number(number)?).is_some()
                }
                "police" if algorithm == Algorithm::LeakyBucket => {
                    std::mem::replace(&mut options.police, true)
                }
                "count-denied" if algorithm == Algorithm::SlidingWindowLog => {
                    std::mem::replace(&mut options.count_denied, true)
                }
                // An unknown option is reported as a repeated one is.
                _ => true,
            };
            if seen {
                return Err(self.expected(option, allowed));
            }
        }
    }

    /// Digits only: `parse` alone would accept a plus sign.
    fn number(&self, number: Token<'a>) -> Result<u64, ParseLimitError> {
        let digits_only = number.word.bytes().all(|b| b.is_ascii_digit());
        match number.word.parse() {
            Ok(value) if digits_only => Ok(value),
            _ => Err(self.expected(number, "a whole number below 2^64")),
        }
    }

    /// The next word; an empty one at the end.
    fn next(&mut self) -> Token<'a> {
        let trimmed = self.rest.trim_start();
        let at = self.at + self.rest.len() - trimmed.len();
        let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
        let (word, rest) = trimmed.split_at(end);
        (self.rest, self.at) = (rest, at + end);
        Token { word, at }
    }

    /// The error for a word, with a hint for frequent mistakes.
    fn expected(&self, found: Token<'_>, what: &'static str) -> ParseLimitError {
        let comma = found.word.find(',').filter(|comma| {
            let (before, after) = found.word.split_at(*comma);
            // A comma between digits belongs to a number.
            after.len() == 1 || !before.ends_with(|c: char| c.is_ascii_digit())
        });
        if let Some(comma) = comma {
            return self.error(
                found.at + comma,
                Reason::Expected(EXPECTED_SEMICOLON.into()),
            );
        }
        let what = match found.word {
            "by" if self.is_keyed => EXPECTED_KEY_LAST.into(),
            _ if self.is_keyed => what
                .replace("or the end of", "the end of")
                .replace("the end of", "`by KEY`, or the end of")
                .into(),
            _ => what.into(),
        };
        self.error(found.at, Reason::Expected(what))
    }

    /// The error at a byte of the text.
    fn error(&self, at: usize, problem: Reason) -> ParseLimitError {
        ParseLimitError {
            text: self.text.to_owned(),
            at,
            problem,
        }
    }
}

/// The options of a rate.
#[derive(Default)]
struct Options {
    capacity: Option<u64>,
    police: bool,
    count_denied: bool,
}

#[cfg(test)]
mod tests;
