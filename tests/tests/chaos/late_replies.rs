//! Hits without a reply in time: Redis may have charged them, so they are never charged again.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ratelimit_core::{FailureMode, Verdict, store::Hit};
use ratelimit_tests::chaos::{Fixture, Observations, Ours, PATIENCE, TIME_OUT, eventually, ours};

use crate::harness::{AT_ONCE, is_checked, key, policy, remaining};

const LIMITS: [&str; 3] = [
    "fixed_window 1000/366d",
    "1000/366d",
    "sliding_window_log 1000/366d; fixed_window 1000/366d",
];

/// The units that were charged later.
fn charged_later() -> u64 {
    Observations::listen().counter("rate_limiter_catch_up_units_total", "outcome=charged")
}

/// Hits at the same time. All of them time out and pass locally.
async fn ambiguous_hits(ours: &Ours, limits: &str, count: usize) {
    let limit = policy("late", limits);
    let key = key(limits);
    let hits = (0..count).map(|_| ours.limiter.check(&limit, &key));
    for verdict in join_all(hits).await {
        assert!(!is_checked(&verdict) && verdict.is_allowed(), "{verdict:?}");
    }
}

/// What Redis has left of 1,000.
async fn left(ours: &Ours, limits: &str) -> u64 {
    let limit = policy("late", limits);
    let key = key(limits);
    // A peek times out where the host stands still for longer than the short timeout of these tests.
    loop {
        let verdict = ours.limiter.peek(&limit, &key).await;
        if is_checked(&verdict) {
            return remaining(&verdict);
        }
    }
}

/// Waits until Redis has charged `spent` units, and asserts that it charges no more.
async fn charged_exactly(ours: &Ours, limits: &str, spent: u64) {
    eventually("charged", async || {
        left(ours, limits).await <= 1_000 - spent
    })
    .await;
    // Longer than the pause before hits are charged later.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(left(ours, limits).await, 1_000 - spent, "{limits}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hit_that_redis_charged_in_time_is_not_charged_again() {
    let fixture = Fixture::start(&[]).await;
    // Long enough for the requests to reach Redis in time on a busy machine.
    let ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Local).await;
    for limits in LIMITS {
        let before = charged_later();
        charged_exactly(&ours, limits, 0).await;
        fixture.proxy.hold_replies();
        // A third one would be in a batch, whose script the server may not have yet.
        ambiguous_hits(&ours, limits, 2).await;
        fixture.proxy.behave();

        charged_exactly(&ours, limits, 2).await;
        assert_eq!(charged_later(), before, "{limits}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hit_that_reached_redis_too_late_is_not_charged_afterwards() {
    let fixture = Fixture::start(&[]).await;
    // Long enough for the later charges to be answered in time.
    let config = fixture.config().timeout(AT_ONCE).connect_timeout(PATIENCE);
    let ours = ours(config, FailureMode::Local).await;
    for limits in LIMITS {
        let before = charged_later();
        charged_exactly(&ours, limits, 0).await;
        fixture.proxy.freeze();
        ambiguous_hits(&ours, limits, 3).await;
        fixture.proxy.thaw();

        charged_exactly(&ours, limits, 0).await;
        assert_eq!(charged_later(), before, "{limits}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hits_that_timed_out_in_the_queue_are_charged_once() {
    let fixture = Fixture::start(&[]).await;
    // Six calls time out: without batches the circuit breaker would open, and the replies were lost.
    let config = fixture.config().timeout(AT_ONCE).connect_timeout(PATIENCE);
    let ours = ours(config.unbatched_calls(1), FailureMode::Local).await;
    let limits = LIMITS[0];
    charged_exactly(&ours, limits, 0).await;
    let before = charged_later();
    for round in 1..=3 {
        fixture.proxy.freeze();
        // One call by itself, and four batches of 64 at most. The others are in the queue until they time out.
        ambiguous_hits(&ours, limits, 300).await;
        fixture.proxy.thaw();

        eventually("charged", async || {
            left(&ours, limits).await == 1_000 - (charged_later() - before)
        })
        .await;
        charged_exactly(&ours, limits, charged_later() - before).await;
        println!(
            "{} of {} were charged later",
            charged_later() - before,
            300 * round
        );
        assert!(charged_later() - before <= 300 * round);
    }
    assert!(
        charged_later() > before,
        "a hit that was not sent is charged later"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deadline_of_the_caller_ends_the_wait_and_leaves_the_connection() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Local).await;
    let limits = LIMITS[0];
    let (limit, key) = (policy("late", limits), key(limits));
    charged_exactly(&ours, limits, 0).await;

    fixture.proxy.freeze();
    for _ in 0..10 {
        let asked = Instant::now();
        let hit = Hit::new(&limit, &key).deadline(asked + Duration::from_millis(5));
        let verdict = ours.limiter.check_hit(hit).await;
        assert!(!is_checked(&verdict) && verdict.is_allowed(), "{verdict:?}");
        assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    }
    fixture.proxy.thaw();

    // Ten calls in a row without a reply in the time of the store would have opened the circuit breaker.
    let verdict = ours.limiter.peek(&limit, &key).await;
    assert!(matches!(verdict, Verdict::Checked(_)), "{verdict:?}");
    charged_exactly(&ours, limits, 0).await;
    let past = Hit::new(&limit, &key).deadline(Instant::now());
    assert!(!is_checked(&ours.limiter.check_hit(past).await));
    charged_exactly(&ours, limits, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_silent_server_is_down_also_for_callers_with_short_deadlines() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config(), FailureMode::Open).await;
    let limit = policy("late", LIMITS[0]);
    fixture.proxy.freeze();

    eventually("no connection", async || {
        let deadline = Instant::now() + TIME_OUT / 5;
        let hit = key("k");
        let hit = Hit::new(&limit, &hit).deadline(deadline);
        assert!(!is_checked(&ours.limiter.check_hit(hit).await));
        !ours.store.wait_connected(Duration::ZERO).await
    })
    .await;
}
