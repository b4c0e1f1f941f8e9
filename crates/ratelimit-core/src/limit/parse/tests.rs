//! Texts that parse, and the error messages of those that do not.

use super::*;

fn refusal(text: &str) -> String {
    text.parse::<Limit>().unwrap_err().to_string()
}

#[test]
fn every_form_of_the_grammar_survives_a_round_trip() {
    for text in [
        "token_bucket 10/min",
        "token_bucket 10/s burst 100",
        "leaky_bucket 10/s queue 20",
        "leaky_bucket 10/s queue 20 police",
        "leaky_bucket 10/s police",
        "fixed_window 100/min",
        "sliding_window_log 100/min",
        "sliding_window_log 100/1500ms count-denied",
        "sliding_window_counter 1000/h",
        "token_bucket 1000000/d",
        "token_bucket 10000/30d",
        "token_bucket 1000000/366d",
        "token_bucket 1000000000/min",
        "concurrency 5 lease 30s",
        "concurrency 10000 lease 1d",
        "penalty_box 3/10min for 1h",
        "penalty_box 10/s for 1500ms growing",
    ] {
        assert_eq!(text.parse::<Limit>().unwrap().to_string(), text);
    }
}

#[test]
fn without_a_name_it_is_a_token_bucket() {
    assert_eq!(
        "10/min".parse::<Limit>(),
        "token_bucket 10/60s burst 10".parse()
    );
    assert_eq!(" 10/min ".parse::<Limit>(), "10/min".parse());
}

#[test]
fn several_limits_are_joined_by_semicolons_and_errors_count_from_the_start() {
    assert_eq!(
        Limit::parse_list("10/s; fixed_window 1000/h")
            .unwrap()
            .len(),
        2
    );
    assert_eq!(Limit::parse_list("10/s; 5/x").unwrap_err().offset(), 8);
    assert_eq!(Limit::parse_list("10/s;").unwrap_err().offset(), 5);
}

#[test]
fn an_error_says_where_and_what_was_expected() {
    let cases = [
        (
            "",
            "expected a rate such as 10/s or 100/15min at column 1 of \"\"",
        ),
        (
            "ten/s",
            "expected an algorithm (token_bucket, leaky_bucket, fixed_window, sliding_window_log, sliding_window_counter, concurrency, penalty_box) or a rate such as 10/s at column 1 of \"ten/s\"",
        ),
        (
            "10",
            "expected a rate such as 10/s or 100/15min at column 1 of \"10\"",
        ),
        (
            "-1/s",
            "expected a whole number below 2^64 at column 1 of \"-1/s\"",
        ),
        (
            "+1/s",
            "expected a whole number below 2^64 at column 1 of \"+1/s\"",
        ),
        (
            "10/s burst",
            "expected a whole number below 2^64 at column 11 of \"10/s burst\"",
        ),
        (
            "10/s queue 5",
            "expected `burst N`, or the end of the limit at column 6 of \"10/s queue 5\"",
        ),
        (
            "10/s burst 5 burst 6",
            "expected `burst N`, or the end of the limit at column 14 of \"10/s burst 5 burst 6\"",
        ),
        (
            "fixed_window 5/min police",
            "expected the end of the limit at column 20 of \"fixed_window 5/min police\"",
        ),
        (
            "0/s",
            "a limit must be at least 1, not 0 (at column 1 of \"0/s\")",
        ),
        (
            "1/0s",
            "the period 0ns must be from 1 ms to 366 days (at column 1 of \"1/0s\")",
        ),
        (
            "1/367d",
            "the period 31708800s must be from 1 ms to 366 days (at column 1 of \"1/367d\")",
        ),
        (
            "sliding_window_log 10001/min",
            "a sliding window log of 10001 is too long: it remembers every hit, so at most 10000 (a sliding_window_counter has no such bound) (at column 20 of \"sliding_window_log 10001/min\")",
        ),
        (
            "concurrency 5/s",
            "expected a whole number below 2^64 at column 13 of \"concurrency 5/s\"",
        ),
        (
            "concurrency 5 lease s",
            "expected a time such as 30s or 15min (units: ms, s, min, h, d) at column 21 of \"concurrency 5 lease s\"",
        ),
        (
            "concurrency 5 lease 30s lease 3s",
            "expected the end of the limit at column 25 of \"concurrency 5 lease 30s lease 3s\"",
        ),
        (
            "concurrency 10001",
            "a concurrency limit of 10001 is too large: every slot is remembered, so at most 10000 (at column 13 of \"concurrency 10001\")",
        ),
        (
            "penalty_box 3/min",
            "expected `for D`, how long the refusal is at column 18 of \"penalty_box 3/min\"",
        ),
        (
            "penalty_box 3/min for 1h shrinking",
            "expected `growing`, or the end of the limit at column 26 of \"penalty_box 3/min for 1h shrinking\"",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refusal(text), message);
    }
}

#[test]
fn a_number_that_no_grain_can_count_is_refused_by_name() {
    assert!(refusal("10000000000/366d").contains("10000000000 per 31622400s is too large"));
    assert!(refusal("9000000000000000/1500ms").contains("whole seconds"));
    assert!(refusal("18446744073709551615/s").contains("too large"));
}

#[test]
fn units_have_long_names() {
    for (long, short) in [
        ("10/second", "10/s"),
        ("10/minute", "10/min"),
        ("10/hour", "10/h"),
        ("10/day", "10/d"),
        ("100/15minutes", "100/15min"),
        ("concurrency 5 lease 30seconds", "concurrency 5 lease 30s"),
        ("penalty_box 3/hour for 2days", "penalty_box 3/h for 2d"),
    ] {
        assert_eq!(long.parse::<Limit>(), short.parse(), "{long}");
    }
}

#[test]
fn frequent_mistakes_have_a_hint() {
    let refusal = |text: &str| {
        let refused = Limit::parse_list_keyed(text).expect_err(text);
        refused.to_string()
    };
    for (text, message) in [
        (
            "10/m",
            "expected `min` for a minute, or `30d` for a month at column 4 of \"10/m\"",
        ),
        (
            "concurrency 5 lease 5m",
            "expected `min` for a minute, or `30d` for a month at column 21 of \"concurrency 5 lease 5m\"",
        ),
        (
            "10/min,20/h",
            "expected `;` between two limits at column 7 of \"10/min,20/h\"",
        ),
        (
            "10/min burst 5, 20/h",
            "expected `;` between two limits at column 15 of \"10/min burst 5, 20/h\"",
        ),
        (
            "1,000/min",
            "expected a whole number below 2^64 at column 1 of \"1,000/min\"",
        ),
        (
            "10/min per ip",
            "expected `burst N`, `by KEY`, or the end of the limit at column 8 of \"10/min per ip\"",
        ),
        (
            "fixed_window 10/min per ip",
            "expected `by KEY`, or the end of the limit at column 21 of \"fixed_window 10/min per ip\"",
        ),
        (
            "10/min by ip burst 5",
            "expected `by KEY` as the last words of the limit at column 8 of \"10/min by ip burst 5\"",
        ),
    ] {
        assert_eq!(refusal(text), message);
    }
}
