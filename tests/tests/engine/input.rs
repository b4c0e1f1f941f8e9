//! Wrong numbers are refused where they are written, and no text makes the parser panic.

use std::time::Duration;

use proptest::prelude::*;
use ratelimit_core::{FixedWindow, InvalidLimit, Limit, Policy, SlidingWindowLog, TokenBucket};
use ratelimit_tests::traces::{Aim, Trace, to_limit};

const DAY: Duration = Duration::from_secs(86_400);

#[test]
fn wrong_numbers_are_refused_with_the_number_and_the_bound() {
    let second = Duration::from_secs(1);
    let cases = [
        (FixedWindow::new(0, second).unwrap_err(), "at least 1"),
        (TokenBucket::new(1, 0, second).unwrap_err(), "at least 1"),
        (
            FixedWindow::new(1, Duration::ZERO).unwrap_err(),
            "from 1 ms to 366 days",
        ),
        (
            FixedWindow::new(1, Duration::from_micros(999)).unwrap_err(),
            "999µs",
        ),
        (FixedWindow::new(1, 367 * DAY).unwrap_err(), "31708800s"),
        (
            FixedWindow::new(1 << 53, second).unwrap_err(),
            "9007199254740992 per 1s is too large",
        ),
        (FixedWindow::new(u64::MAX, second).unwrap_err(), "2^53"),
        (
            TokenBucket::new(1, 1 << 53, second).unwrap_err(),
            "below 2^53",
        ),
        (
            FixedWindow::new(1 << 40, Duration::from_micros(1_234_567)).unwrap_err(),
            "whole milliseconds",
        ),
        (
            FixedWindow::new(1, Duration::from_nanos(1_000_001)).unwrap_err(),
            "whole microseconds",
        ),
        (SlidingWindowLog::new(10_001, second).unwrap_err(), "10001"),
    ];
    for (error, words) in cases {
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(FixedWindow::new(0, second), Err(InvalidLimit::Zero));
}

#[test]
fn the_edges_of_the_allowed_numbers_are_allowed() {
    assert!(FixedWindow::new(1, Duration::from_millis(1)).is_ok());
    assert!(FixedWindow::new(1, 366 * DAY).is_ok());
    assert!(FixedWindow::new((1 << 53) - 1, Duration::from_secs(1)).is_ok());
    assert!(SlidingWindowLog::new(10_000, DAY).is_ok());
    assert!(TokenBucket::new(1_000_000, 1, DAY).is_ok());
}

#[test]
fn a_policy_has_a_plain_name_and_one_to_eight_limits() {
    assert!(Policy::parse("", "1/s").is_err());
    assert!(Policy::parse("a{b", "1/s").is_err());
    assert!(Policy::parse("a", "").is_err());
    assert!(Policy::parse("a", &["1/s"; 8].join(";")).is_ok());
    assert!(Policy::parse("a", &["1/s"; 9].join(";")).is_err());
}

#[test]
fn every_limit_survives_its_own_text() {
    for seed in 0..5_000 {
        for spec in Trace::new(seed, Aim::ANYTHING).next_hit().limits {
            let limit = to_limit(&spec).unwrap();
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}") {
        let _ = Limit::parse_list(&text);
    }

    #[test]
    fn texts_close_to_the_grammar_parse_or_say_where(
        text in "(token_bucket|leaky_bucket|fixed_window|concurrency|x)? ?[0-9]{0,20}/?[0-9]{0,20}(ms|s|min|h|d|y)?( burst| queue| police| count-denied)?( [0-9]{0,3})?;?"
    ) {
        if let Err(error) = Limit::parse_list(&text) {
            prop_assert!(error.offset() <= text.len());
            prop_assert!(error.to_string().contains("at column"));
        }
    }
}
