//! Servers that are far away, and near ones that are slow.

use std::time::Duration;

use futures_util::future::join_all;
use ratelimit_core::{FailureMode, Policy, Verdict};
use ratelimit_tests::chaos::{Fixture, Ours, PATIENCE, Proxy, eventually, ours};

use crate::harness::{is_checked, key, policy};

const ROUND_TRIP: Duration = Duration::from_millis(20);
const HITS: usize = 1_024;
const LIMIT: usize = 500;
/// Two hits are sent alone. Fewer than 64 of the others are left when every full batch is under way.
const CALLS_OF_A_LONG_LINK: usize = 2 + (HITS - 2) / 64;
/// Two hits alone, four batches, and one for each 0.4 ms of the shortest of many round trips, of 2 ms at most.
const CALLS_OF_A_SHORT_LINK: usize = 2 + 4 + 5;

/// A limiter whose first hits are sent alone and whose other hits are batched.
async fn batching(fixture: &Fixture) -> Ours {
    let config = fixture.config().timeout(PATIENCE).connect_timeout(PATIENCE);
    let ours = ours(config.unbatched_calls(2), FailureMode::Closed).await;
    // The server learns the scripts.
    for verdict in hits(&ours, &policy("warm", "fixed_window 1000/366d"), 40).await {
        assert!(is_checked(&verdict), "{verdict:?}");
    }
    ours
}

/// Checks one key many times at once.
async fn hits(ours: &Ours, limit: &Policy, count: usize) -> Vec<Verdict> {
    let key = key("hot");
    join_all((0..count).map(|_| ours.limiter.check(limit, &key))).await
}

/// The calls of the policy `hot` that have arrived at the proxy.
fn calls(proxy: &Proxy) -> usize {
    let is_hot = |word: &Vec<u8>| word.windows(5).any(|part| part == b":hot:");
    let heard = proxy.heard();
    heard.iter().filter(|call| call.iter().any(is_hot)).count()
}

/// Checks one key many times while replies are held back. Returns how many calls were under way when `is_reached`, and
/// asserts that every hit is then decided, and exactly the limit admitted.
async fn calls_under_way(
    fixture: &Fixture,
    ours: Ours,
    is_reached: impl Fn(usize) -> bool,
) -> usize {
    fixture.proxy.overhear();
    fixture.proxy.hold_replies();
    let all = tokio::spawn(async move {
        let limit = policy("hot", &format!("fixed_window {LIMIT}/366d"));
        hits(&ours, &limit, HITS).await
    });

    eventually("calls under way", async || {
        is_reached(calls(&fixture.proxy))
    })
    .await;
    // A batch that may start does so without a reply.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let under_way = calls(&fixture.proxy);
    fixture.proxy.behave();

    let verdicts = all.await.expect("no task panics");
    assert_eq!(verdicts.iter().filter(|&one| is_checked(one)).count(), HITS);
    let admitted = verdicts.iter().filter(|one| one.is_allowed()).count();
    assert_eq!(admitted, LIMIT);
    under_way
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_a_long_link_every_full_batch_is_under_way() {
    let fixture = Fixture::start(&[]).await;
    fixture.proxy.delay(ROUND_TRIP);
    let ours = batching(&fixture).await;

    let under_way = calls_under_way(&fixture, ours, |calls| calls >= CALLS_OF_A_LONG_LINK).await;

    println!("{HITS} hits, {under_way} calls under way");
    // Four batches of any size start beside the full ones.
    assert!(under_way <= CALLS_OF_A_LONG_LINK + 4, "{under_way}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_near_server_that_becomes_slow_gets_no_more_batches() {
    let fixture = Fixture::start(&[]).await;
    let ours = batching(&fixture).await;
    // One of them takes no longer than the link, also on a busy machine.
    let limit = policy("warm", "fixed_window 1000/366d");
    for _ in 0..200 {
        hits(&ours, &limit, 1).await;
    }

    let under_way = calls_under_way(&fixture, ours, |calls| calls >= 6).await;

    println!("{HITS} hits, {under_way} calls under way");
    assert!(under_way <= CALLS_OF_A_SHORT_LINK, "{under_way}");
}
