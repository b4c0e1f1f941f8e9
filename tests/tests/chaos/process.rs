//! Redis that dies, stands still, or is not there.

use std::time::{Duration, Instant};

use ratelimit_core::FailureMode;
use ratelimit_tests::chaos::{
    Expected, Fixture, Kind, Layer as _, Load, Observations, Ours, Report, endless, eventually,
    ours, scenario,
};
use tokio::task::block_in_place;

use crate::harness::{AT_ONCE, heals, key, policy, remaining};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_01_nobody_waits_for_a_redis_that_was_killed() {
    let observed = Observations::listen();

    let before = observed.counter("rate_limiter_unchecked_total", "mode=local");
    let report = scenario::killed(Kind::Ours).await;

    report.assert_survived();
    let unchecked = observed.counter("rate_limiter_unchecked_total", "mode=local") - before;
    assert_eq!(unchecked, report.unchecked as u64);
    assert!(observed.counter("rate_limiter_reconnects_total", "") > 0);
    assert!(
        !observed.lines("").is_empty(),
        "no log line tells the observed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_02_a_service_starts_without_redis_and_joins_it_later() {
    let observed = Observations::listen();
    let mut fixture = Fixture::start(&[]).await;
    block_in_place(|| fixture.server.kill());
    let ours = std::sync::Arc::new(Ours::new(fixture.config(), FailureMode::Local));

    let load = Load::start(ours);
    load.run(Duration::from_secs(2)).await;
    let before = load.phase().await;
    block_in_place(|| fixture.server.restart());
    let healed = load.healed(Instant::now(), Duration::from_secs(10)).await;
    load.run(Duration::from_millis(300)).await;
    // The store ends with the load, and has no value afterwards.
    let server = fixture.proxy.port().to_string();
    eventually("store_up", async || {
        observed.gauge("rate_limiter_store_up", &server) == Some(1.0)
    })
    .await;
    let ledger = load.stop().await;

    let expected = Expected {
        row: 2,
        fault: "absent at start",
        healed,
        dead_phases: vec![before - 1],
        budgets: 2,
    };
    let report = Report::new(expected, &ledger, &*fixture.audit(Kind::Ours).await).await;
    report.assert_survived();
    assert!(ledger.phase(before - 1).all(|call| !call.told.is_checked()));
    assert_eq!(observed.gauge("rate_limiter_breaker_open", &server), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_03_nothing_that_timed_out_is_counted_when_redis_goes_on() {
    scenario::stopped(Kind::Ours).await.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_04_nothing_that_timed_out_is_counted_when_writes_go_on() {
    scenario::paused(Kind::Ours).await.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn case_24_a_paused_redis_is_answered_for_within_the_budget() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config(), FailureMode::Open).await;
    let connections = fixture.info("connected_clients");
    fixture.command("CLIENT PAUSE 2000 ALL");

    let asked = Instant::now();
    let answers = (0..50).map(|n| {
        let ours = ours.clone();
        tokio::spawn(async move { ours.hit(&endless(), &format!("paused-{n}")).await })
    });
    for answer in answers.collect::<Vec<_>>() {
        assert!(answer.await.unwrap().is_allowed());
    }
    let waited = asked.elapsed();

    println!("case 24 a paused Redis: 50 calls answered in {waited:?}");
    assert!(waited < AT_ONCE);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(fixture.info("connected_clients") <= connections + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_comes_back_with_its_data_goes_on_counting() {
    let mut fixture = Fixture::start(&[]).await;
    let config = fixture.config().timeout(AT_ONCE);
    let ours = ours(config, FailureMode::Closed).await;
    let limit = policy("kept", "fixed_window 10/366d");

    let before = ours.limiter.check(&limit, &key("a")).await;
    fixture.command("SAVE");
    block_in_place(|| fixture.server.restart());
    heals(&ours).await;
    let after = ours.limiter.check(&limit, &key("a")).await;

    assert_eq!((remaining(&before), remaining(&after)), (9, 8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_tasks_of_a_store_end_when_it_is_dropped() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config(), FailureMode::Open).await;
    assert!(fixture.proxy.open() > 0);

    drop(ours);

    eventually("no connection", async || fixture.proxy.open() == 0).await;
    let made = fixture.proxy.attempts().len();
    fixture.proxy.reset();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(fixture.proxy.attempts().len(), made);
}
