//! What the log says of an outage: at once, why, and not again and again (F3).

use std::time::{Duration, Instant};

use ratelimit_core::{FailureMode, UncheckedReason, Verdict};
use ratelimit_tests::chaos::{Fixture, Observations, Ours, endless, ours};

use crate::harness::{AT_ONCE, calls, heals, key, policy};

/// The lines that were logged about a server since there were `before` of them.
fn lines_since(observed: &Observations, text: &str, before: usize) -> Vec<String> {
    observed.lines(text).split_off(before)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_outage_is_logged_at_once_and_then_ever_more_rarely_with_counts() {
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let server = fixture.proxy.port().to_string();
    let ours = ours(fixture.config(), FailureMode::Local).await;
    let before = observed.lines(&server).len();

    fixture.proxy.turn_away();
    fixture.proxy.reset();
    let since = Instant::now();
    calls(&ours.limiter, &endless(), Duration::from_secs(1)).await;
    let at_once = lines_since(observed, &server, before);
    calls(&ours.limiter, &endless(), Duration::from_secs(7)).await;
    let lines = lines_since(observed, &server, before);
    let attempts = fixture.proxy.attempts_since(since);
    fixture.proxy.behave();
    heals(&ours).await;

    println!(
        "an outage of 8 s, {attempts} attempts: {} lines: {lines:#?}",
        lines.len()
    );
    assert!(!at_once.is_empty(), "the first line came late");
    assert!(lines.len() <= 6, "{} lines in 8 s", lines.len());
    assert!(attempts > lines.len(), "nothing was left out");
    let all_count = lines.iter().all(|line| left_out_in(line).is_some());
    assert!(all_count, "no line tells how many were left out before it");
}

/// The number behind `left_out=`.
fn left_out_in(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("left_out=")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_connection_that_breaks_again_and_again_does_not_flood_the_log() {
    let observed = Observations::listen();
    let fixture =
        Fixture::start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await;
    let server = fixture.proxy.port().to_string();
    let ours = ours(fixture.config(), FailureMode::Local).await;
    let connects = observed.counter("rate_limiter_reconnects_total", &server);

    for _ in 0..8 {
        fixture.proxy.reset();
        calls(&ours.limiter, &endless(), Duration::from_millis(300)).await;
        heals(&ours).await;
    }

    let reconnects = observed.counter("rate_limiter_reconnects_total", &server) - connects;
    let lines = observed.lines(&server);
    let evicting = lines
        .iter()
        .filter(|line| line.contains("maxmemory"))
        .count();
    println!("{reconnects} reconnects: {} lines", lines.len());
    assert!(reconnects >= 4, "{reconnects}");
    assert_eq!(evicting, 1, "the same warning with each reconnect");
    assert!(lines.len() <= 10, "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lost_connection_is_logged_with_its_reason() {
    let observed = Observations::listen();
    for fault in ["reset", "answers nonsense", "says LOADING", "is silent"] {
        let fixture = Fixture::start(&[]).await;
        let server = fixture.proxy.port().to_string();
        let ours = ours(fixture.config(), FailureMode::Local).await;

        match fault {
            "reset" => fixture.proxy.reset(),
            "answers nonsense" => fixture.proxy.answer(b"+OK\r\n"),
            "says LOADING" => fixture
                .proxy
                .answer(b"-LOADING Redis is loading the dataset\r\n"),
            _ => fixture.proxy.freeze(),
        }
        calls(&ours.limiter, &endless(), Duration::from_millis(900)).await;
        fixture.proxy.behave();

        let lines = observed.lines(&server);
        let lost = lines
            .iter()
            .find(|line| line.contains("lost the connection"));
        let lost = lost.unwrap_or_else(|| panic!("{fault}: no such line in {lines:#?}"));
        assert!(lost.contains(" cause="), "{fault}: no reason in {lost:?}");
        if fault == "says LOADING" {
            assert!(lost.contains("loading the dataset"), "{lost:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_error_of_redis_is_logged_verbatim_and_not_each_time() {
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let ours: Ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Local).await;
    for text in [
        "fixed_window 1000/366d",
        "1000/h",
        "1000/h; fixed_window 900/366d",
    ] {
        let limit = policy(&text.replace([' ', '/', ';'], "_"), text);
        let name = format!("{}:v1:{}:{{key:list}}", fixture.prefix(), limit.name());
        fixture.command(&format!("LPUSH {name} x"));
        for _ in 0..100 {
            let verdict = ours.limiter.check(&limit, &key("list")).await;
            let is_refused = matches!(
                verdict,
                Verdict::Unchecked {
                    reason: UncheckedReason::Refused,
                    ..
                }
            );
            assert!(is_refused, "{text}: {verdict:?}");
        }
    }

    let lines = observed.lines("WRONGTYPE");
    println!("300 refused hits: {} lines", lines.len());
    assert!(
        !lines.is_empty(),
        "nothing is logged: {:#?}",
        observed.lines("")
    );
    assert!(lines.len() <= 5, "{lines:#?}");
}
