//! Callers that go away, tasks that panic, and a process without file descriptors.

use std::{
    future::Future as _,
    io::{BufRead as _, BufReader, Lines, Write as _},
    pin::Pin,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    task::{Context, Waker},
    time::Duration,
};

use ratelimit_core::FailureMode;
use ratelimit_tests::chaos::{
    Audit as _, Fixture, Observations, PATIENCE, endless, eventually, ours,
};
use tokio::task::block_in_place;

use crate::harness::{calls, heals, is_checked, key, policy};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_25_a_hundred_thousand_dropped_futures_swap_no_reply_and_leak_nothing() {
    const ROUNDS: u64 = 1_000;
    const DROPPED: u64 = 100;
    let fixture = Fixture::start(&[]).await;
    let direct = fixture.config_at(&fixture.server.url()).timeout(PATIENCE);
    let ours = ours(direct, FailureMode::Closed).await;
    let clients = fixture.info("connected_clients");

    for round in 1..=ROUNDS {
        let mut checks: Vec<_> = (0..DROPPED)
            .map(|_| ours.limiter.check(&endless(), &key("dropped")))
            .collect();
        for check in &mut checks {
            let _ = Pin::new(check).poll(&mut Context::from_waker(Waker::noop()));
        }
        // Some are on their way, some answered, some not even sent when their callers go.
        if round % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(checks);
        // Every call has a limit of its own, so that another call's answer would show.
        let own = policy("own", &format!("fixed_window {}/366d", 10 + round));
        let verdict = ours
            .limiter
            .check(&own, &key(&format!("own-{round}")))
            .await;
        let decision = verdict.decision().expect("a decision");

        assert!(is_checked(&verdict));
        assert_eq!(
            (decision.limit, decision.remaining),
            (10 + round, 9 + round)
        );
    }

    let counted = ours.counted(&endless(), "dropped").await;
    println!(
        "row 25 dropped futures: {counted} of {} counted",
        ROUNDS * DROPPED
    );
    assert!(counted > 0 && counted <= ROUNDS * DROPPED);
    assert_eq!(fixture.info("connected_clients"), clients);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_25_a_request_that_was_sent_still_costs() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Closed).await;
    let _ = ours.limiter.peek(&endless(), &key("sent")).await;
    fixture.proxy.hold_replies();

    for _ in 0..10 {
        let check = ours.limiter.check(&endless(), &key("sent"));
        let given_up = tokio::time::timeout(Duration::from_millis(20), check).await;
        assert!(given_up.is_err());
    }
    fixture.proxy.behave();

    let all_counted = async || ours.counted(&endless(), "sent").await == 10;
    eventually("ten counted", all_counted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_26_a_background_task_that_panics_is_started_again() {
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config(), FailureMode::Local).await;

    observed.panic_at("rate_limiter_reconnects_total");
    fixture.proxy.reset();
    let (_, unchecked) = calls(&ours.limiter, &endless(), Duration::from_secs(1)).await;
    let healed = heals(&ours).await;

    println!(
        "row 26 a panic in the background: {unchecked} decisions without the store, healed in {healed:?}"
    );
    assert!(!observed.panics_are_due(), "nothing panicked");
    assert!(observed.counter("rate_limiter_task_restarts_total", "") > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_35_a_process_without_file_descriptors_goes_on() {
    let mut fixture = Fixture::start(&[]).await;
    let mut starved = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$@\"", "starved"])
        .args([env!("CARGO_BIN_EXE_starved"), &fixture.server.url()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stage = Stage::of(&mut starved);

    stage.reaches("connected");
    block_in_place(|| fixture.server.restart());
    let during = stage.reaches("starved");
    let after = stage.reaches("healed");
    let status = starved.wait().unwrap();

    println!("row 35 no file descriptors: {during}; {after}");
    assert!(status.success());
}

/// The lines of a process that waits for a line after each of its own.
struct Stage {
    lines: Lines<BufReader<ChildStdout>>,
    next: ChildStdin,
}

impl Stage {
    fn of(process: &mut Child) -> Stage {
        let lines = process.stdout.take().expect("its output is piped");
        Stage {
            lines: BufReader::new(lines).lines(),
            next: process.stdin.take().expect("its input is piped"),
        }
    }

    /// Lets the process go on, and reads what it says next.
    fn reaches(&mut self, word: &str) -> String {
        let _ = self.next.write_all(b"\n");
        let line = block_in_place(|| self.lines.next());
        let line = line.expect("another line").expect("text");
        assert!(line.starts_with(word), "{line}");
        line
    }
}
