//! Requests and replies that are lost, torn, late, or no replies at all.

use std::time::{Duration, Instant};

use ratelimit_core::FailureMode;
use ratelimit_tests::chaos::{Fixture, Kind, Loss, endless, ours, scenario};

use crate::harness::{AT_ONCE, calls, heals, is_checked, key, resident};

const LOST: usize = 5;
const MEBIBYTE: u64 = 1 << 20;

/// Loses something of single calls, and tells of each whether it was decided, and what was counted.
async fn single_calls(loss: Loss) -> Vec<(bool, u64)> {
    let fixture = Fixture::start(&[]).await;
    let config = fixture.config().timeout(AT_ONCE);
    let ours = ours(config, FailureMode::Closed).await;
    let audit = fixture.audit(Kind::Ours).await;
    let mut told = Vec::new();
    for place in 0..LOST {
        heals(&ours).await;
        let name = format!("single-{place}");
        let _ = ours.limiter.check(&endless(), &key("warm")).await;

        fixture.proxy.lose(loss, &name);
        let asked = Instant::now();
        let verdict = ours.limiter.check(&endless(), &key(&name)).await;

        assert!(asked.elapsed() < 3 * AT_ONCE);
        told.push((is_checked(&verdict), audit.counted(&endless(), &name).await));
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_06_a_reply_torn_by_a_reset_counts_at_most_once() {
    scenario::torn_replies(Kind::Ours).await.assert_survived();
    for (checked, counted) in single_calls(Loss::RestOfReply).await {
        assert!(!checked && counted <= 1, "{checked} {counted}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_07_a_lost_reply_is_counted_once() {
    scenario::lost_replies(Kind::Ours).await.assert_survived();
    assert_eq!(single_calls(Loss::Reply).await, [(false, 1); LOST]);
    assert_eq!(single_calls(Loss::ReplyInSilence).await, [(false, 1); LOST]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_08_a_lost_request_is_not_counted() {
    scenario::lost_requests(Kind::Ours).await.assert_survived();
    assert_eq!(single_calls(Loss::Request).await, [(false, 0); LOST]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_09_a_late_reply_was_counted_once_and_a_late_request_never() {
    scenario::late_replies(Kind::Ours).await.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_31_garbage_is_an_error_and_takes_no_memory() {
    let nested = b"*1\r\n".repeat(10_000);
    let answers: [&[u8]; 11] = [
        b"+OK\r\n",
        b":5\r\n",
        b"*0\r\n",
        b"$-1\r\n",
        b"$3\r\nabc\r\n",
        b"*2\r\n:1\r\n$-1\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\xff\xfe\r\n",
        b"$999999999\r\nabc",
        b"*1000000000\r\n",
        &nested,
    ];
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config(), FailureMode::Local).await;
    let before = resident();

    for answer in answers {
        fixture.proxy.answer(answer);
        let (checked, unchecked) =
            calls(&ours.limiter, &endless(), Duration::from_millis(300)).await;
        let shown = String::from_utf8_lossy(&answer[..answer.len().min(24)]);
        assert_eq!(checked, 0, "{shown:?} is no decision");
        fixture.proxy.behave();
        let healed = heals(&ours).await;
        println!("row 31 {shown:?}: {unchecked} decisions without the store, healed in {healed:?}");
    }

    let grown = resident().saturating_sub(before) / MEBIBYTE;
    println!("row 31 garbage: {grown} MiB more than before");
    assert!(grown < 64, "{grown} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_31_replies_that_arrive_byte_by_byte_are_read() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Local).await;

    fixture.proxy.trickle();
    let (checked, unchecked) = calls(&ours.limiter, &endless(), Duration::from_secs(1)).await;

    println!("row 31 one byte at a time: {checked} decisions by the store, {unchecked} without");
    assert!(checked > 0 && unchecked == 0);
}
