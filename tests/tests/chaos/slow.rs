//! A Redis that answers, but later than callers wait (F2, H8, H9).

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ratelimit_core::{FailureMode, Limiter, Policy, store::Hit};
use ratelimit_tests::chaos::{
    Fixture, Observations, Ours, PATIENCE, TIME_OUT, endless, eventually, ours,
};

use crate::harness::{AT_ONCE, heals, is_checked, key, policy};

/// What a slow server needs for an answer.
const SLOW: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_slower_than_the_time_out_is_down_and_the_log_says_why() {
    let observed = Observations::listen();
    let fixture = Fixture::start(&[]).await;
    let server = fixture.proxy.port().to_string();
    let config = fixture.config().connect_timeout(PATIENCE);
    let ours = ours(config, FailureMode::Local).await;
    let slow_before = observed.slow_samples("rate_limiter_round_trip_seconds");
    let lines_before = observed.lines(&server).len();

    fixture.proxy.delay(SLOW);
    let slow_since = Instant::now();
    let (mut made, mut waited, mut up, mut looks) = (0, 0, 0, 0);
    while slow_since.elapsed() < Duration::from_secs(5) {
        let asked = Instant::now();
        let verdict = ours.limiter.check(&endless(), &key("slow")).await;
        assert!(!is_checked(&verdict), "no answer can be in time");
        // The first second is what it takes to notice.
        if slow_since.elapsed() > Duration::from_secs(1) {
            made += 1;
            waited += u64::from(asked.elapsed() >= TIME_OUT);
            looks += 1;
            up += u64::from(observed.gauge("rate_limiter_store_up", &server) != Some(0.0));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let named = observed.lines("slower than 25 ms");
    let lines = observed.lines(&server).split_off(lines_before);
    let slow_calls = observed.counter("rate_limiter_slow_calls_total", &server);
    let in_histogram = observed.slow_samples("rate_limiter_round_trip_seconds") - slow_before;
    fixture.proxy.behave();
    let healed = heals(&ours).await;

    println!(
        "slow Redis: {waited} of {made} calls waited for the time-out, store_up was 1 in {up} of \
         {looks} looks, {} lines, {slow_calls} slow calls counted, {in_histogram} in the histogram, \
         healed in {healed:?}",
        lines.len()
    );
    assert!(slow_calls > 0, "no metric counts slow calls");
    assert!(
        in_histogram > 0,
        "no timed-out call is beyond its time-out in the histogram"
    );
    assert!(!named.is_empty(), "no line names the cause: {lines:#?}");
    assert!(lines.len() <= 10, "{lines:#?}");
    assert_eq!(up, 0, "store_up flaps");
    assert!(waited * 10 <= made, "{waited} of {made} calls waited");
}

/// On one worker, so that a call is filled when all hits are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_call_with_many_hits_that_times_out_does_not_open_the_breaker() {
    let fixture = Fixture::start(&[]).await;
    let config = fixture.config().timeout(Duration::from_millis(100));
    let ours = ours(config.unbatched_calls(1), FailureMode::Closed).await;
    let many = policy("many", "fixed_window 100000/366d");
    let mut tried = Vec::new();
    // How many calls the hits are spread over depends on when they come: at most four may time out.
    for hits in [64, 64, 48, 32, 24, 17] {
        heals(&ours).await;
        let _ = ours.limiter.check(&many, &key("warm")).await;
        fixture.proxy.overhear();
        fixture.proxy.delay(Duration::from_millis(400));
        let before = Instant::now();
        let (limiter, limit) = (ours.limiter.clone(), many.clone());
        let checks = async move {
            let checks = (0..hits).map(async |number| {
                // Hits that come one after another do not time out at the same moment.
                std::thread::sleep(Duration::from_micros(200));
                limiter.check(&limit, &key(&format!("k{number}"))).await
            });
            join_all(checks).await
        };
        let verdicts = tokio::spawn(checks).await.expect("verdicts");
        let calls = calls_heard(&fixture);
        fixture.proxy.behave();
        // The late answers arrive, and whoever has given the connection up has replaced it.
        tokio::time::sleep(Duration::from_millis(700)).await;
        let next = ours.limiter.check(&many, &key("next")).await;
        let replaced = fixture.proxy.attempts_since(before);
        tried.push((hits, calls, replaced));

        assert!(verdicts.iter().all(|verdict| !is_checked(verdict)));
        if calls < 5 {
            println!("{hits} hits in {calls} calls timed out, {replaced} connections made since");
            assert!(is_checked(&next), "{hits} hits in {calls} calls: {next:?}");
            assert_eq!(replaced, 0, "{hits} hits in {calls} calls");
            return;
        }
    }
    panic!("the hits never shared calls: {tried:?}");
}

/// How many calls of scripts the proxy heard.
fn calls_heard(fixture: &Fixture) -> usize {
    let heard = fixture.proxy.heard();
    let is_call = |words: &&Vec<Vec<u8>>| {
        let name = words.first().map(Vec::as_slice);
        name.is_some_and(|name| name.starts_with(b"EVAL"))
    };
    heard.iter().filter(is_call).count()
}

/// Waits until all slots are free, or for [`PATIENCE`], and tells how many are.
async fn free_slots(fixture: &Fixture, policy: &Policy, all: u64) -> u64 {
    let audit = fixture.config_at(&fixture.server.url()).timeout(PATIENCE);
    let audit = ours(audit.connect_timeout(PATIENCE), FailureMode::Closed).await;
    let since = Instant::now();
    loop {
        let look = audit.limiter.peek(policy, &key("held")).await;
        let free = look.decision().expect("a look").remaining;
        if free == all || since.elapsed() > PATIENCE {
            println!("{free} of {all} slots are free after {:?}", since.elapsed());
            return free;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asks for slots through a slow network; nobody gets one.
async fn ask_for_slots(limiter: &Limiter, slots: &Policy, callers: usize, leave: Duration) {
    let held = key("held");
    for _ in 0..callers {
        let charging = limiter.reserve(Hit::new(slots, &held));
        if let Ok((verdict, _)) = tokio::time::timeout(leave, charging).await {
            assert!(!is_checked(&verdict), "no answer can be in time");
        }
    }
}

async fn slow(config_time_out: Duration, slots: &Policy) -> (Fixture, Ours) {
    let fixture = Fixture::start(&[]).await;
    let config = fixture.config().timeout(config_time_out);
    let ours = ours(config, FailureMode::Closed).await;
    // A server that does not know the script yet would do nothing in time.
    eventually("a slot", async || {
        let other = key("other");
        is_checked(&ours.limiter.reserve(Hit::new(slots, &other)).await.0)
    })
    .await;
    fixture.proxy.delay(Duration::from_millis(150));
    (fixture, ours)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn callers_that_leave_while_they_ask_for_a_slot_hold_none() {
    let slots = policy("left", "concurrency 5 lease 10min");
    let (fixture, ours) = slow(PATIENCE, &slots).await;

    ask_for_slots(&ours.limiter, &slots, 5, Duration::from_millis(50)).await;
    fixture.proxy.behave();

    assert_eq!(free_slots(&fixture, &slots, 5).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_for_a_slot_that_time_out_hold_none() {
    let slots = policy("late", "concurrency 4 lease 10min");
    let (fixture, ours) = slow(Duration::from_millis(50), &slots).await;

    ask_for_slots(&ours.limiter, &slots, 4, PATIENCE).await;
    fixture.proxy.behave();

    assert_eq!(free_slots(&fixture, &slots, 4).await, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slots_are_released_when_the_connection_was_replaced_meanwhile() {
    let slots = policy("given-up", "concurrency 12 lease 10min");
    let (fixture, ours) = slow(Duration::from_millis(50), &slots).await;
    let before = Instant::now();

    // More than the breaker takes before it gives the connection up.
    ask_for_slots(&ours.limiter, &slots, 12, PATIENCE).await;
    fixture.proxy.behave();
    eventually("another connection", async || {
        fixture.proxy.attempts_since(before) > 0
    })
    .await;

    assert_eq!(free_slots(&fixture, &slots, 12).await, 12);
    assert!(heals(&ours).await < AT_ONCE * 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn holders_that_end_while_redis_is_away_leave_no_slot_behind() {
    let slots = policy("away", "concurrency 5 lease 10min");
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Closed).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let (_, charge) = ours.limiter.reserve(Hit::new(&slots, &key("held"))).await;
        held.push(charge.expect("a free slot"));
    }
    fixture.proxy.turn_away();
    fixture.proxy.reset();
    eventually("no connection", async || {
        !is_checked(&ours.limiter.check(&endless(), &key("other")).await)
    })
    .await;

    drop(held);
    fixture.proxy.behave();
    heals(&ours).await;

    assert_eq!(free_slots(&fixture, &slots, 5).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_that_cannot_be_given_back_is_logged() {
    let observed = Observations::listen();
    let slots = policy("kept", "concurrency 5 lease 10min");
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(AT_ONCE), FailureMode::Closed).await;
    let (_, held) = ours.limiter.reserve(Hit::new(&slots, &key("held"))).await;
    assert!(held.is_some(), "a free slot");
    fixture.proxy.turn_away();
    fixture.proxy.reset();
    eventually("no connection", async || {
        !is_checked(&ours.limiter.check(&endless(), &key("other")).await)
    })
    .await;

    drop(held);

    eventually("a log line", async || {
        !observed.lines("could not be given back").is_empty()
    })
    .await;
}
