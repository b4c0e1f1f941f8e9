//! Keys that vanish, keys without number, and memory that must not grow.

use std::{
    env,
    time::{Duration, Instant},
};

use ratelimit_core::{
    Clock, FailureMode, Key, Limiter, MemoryStore, Timestamp,
    store::{Hit, Store as _},
};
use ratelimit_tests::chaos::{
    Expected, Fixture, Kind, Observations, PATIENCE, endless, eventually, ours,
    scenario::ScenarioRun, serial,
};
use tokio::task::block_in_place;

use crate::harness::{heals, is_checked, key, policy, remaining, resident};

const MEBIBYTE: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_11_emptied_data_gives_each_key_one_fresh_budget() {
    let run = ScenarioRun::start(Kind::Ours).await;

    run.fixture.command("FLUSHALL");
    let healed = run.healed(Instant::now()).await;

    let expected = Expected {
        row: 11,
        fault: "FLUSHALL",
        healed,
        dead_phases: Vec::new(),
        budgets: 3,
    };
    run.report(expected).await.assert_survived();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_12_a_key_that_expires_changes_no_answer() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Closed).await;
    let limit = policy(
        "expiring",
        "5/s; fixed_window 9/1500ms; sliding_window_log 7/900ms; sliding_window_counter 20/700ms",
    );
    let clock = Clock::manual(Timestamp::default());
    let twin = MemoryStore::new().clock(clock.clone());
    let mut expired = 0;

    for pause in [0, 1, 400, 990, 1_010, 2_000, 3_100, 5, 5, 1_500] {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        expired += u64::from(fixture.info("expired_keys") > expired);
        for _ in 0..4 {
            let verdict = ours.limiter.check(&limit, &key("k")).await;
            let decision = verdict.decision().unwrap();
            clock.set(decision.now);
            let same = twin.hit(Hit::new(&limit, &key("k"))).await.unwrap();

            assert!(is_checked(&verdict));
            assert_eq!(*decision, same.decision);
        }
    }
    println!("row 12 expiry: 40 answers as without, expired at least {expired} times");
    assert!(expired > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_17_a_server_that_evicts_is_warned_about_and_evictions_are_seen() {
    let observed = Observations::listen();
    let bounded = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"];
    let fixture = Fixture::start(&bounded).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Closed).await;
    let limit = policy("crowd", "fixed_window 10/366d");

    let warned = observed.lines("volatile-lru");
    for n in 0..500 {
        let _ = ours.limiter.check(&limit, &key(&format!("k{n}"))).await;
    }
    let used = fixture.info("used_memory") - 40_000;
    fixture.command(&format!("CONFIG SET maxmemory {used}"));
    heals(&ours).await;

    println!(
        "row 17 eviction: {warned:?}; {} evicted",
        fixture.info("evicted_keys")
    );
    assert!(!warned.is_empty(), "no warning at connect");
    assert!(fixture.info("evicted_keys") > 0);
    eventually("evictions are exported", async || {
        observed.names().iter().any(|name| name.contains("evict"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_is_almost_full_is_warned_about() {
    let observed = Observations::listen();
    let bounded = ["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"];
    let fixture = Fixture::start(&bounded).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Closed).await;
    heals(&ours).await;
    let gauge = || {
        observed
            .names()
            .iter()
            .any(|name| name.contains("memory_used"))
    };
    eventually("the used memory is exported", async || gauge()).await;
    assert!(observed.lines("Redis is almost full").is_empty());

    let almost = fixture.info("used_memory") * 100 / 95;
    fixture.command(&format!("CONFIG SET maxmemory {almost}"));

    eventually("a warning", async || {
        !observed.lines("Redis is almost full").is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_29_five_million_keys_stay_within_the_bound_and_forgive_nobody() {
    const BOUND: usize = 1 << 17;
    const EXHAUSTED: usize = 1_000;
    let _serial = serial().await;
    let store = MemoryStore::new().capacity(BOUND);
    let limiter = Limiter::new(store.clone());
    let once = policy("once", "fixed_window 1/366d");
    let several = policy("several", "fixed_window 5/366d");
    let named = |n: usize| Key::new(format!("exhausted-{n}")).unwrap();
    for n in 0..EXHAUSTED {
        assert!(limiter.check(&once, &named(n)).await.is_allowed());
    }

    let before = resident();
    for n in 0..5_000_000_u32 {
        let _ = limiter
            .check(&several, &Key::new(n.to_le_bytes()).unwrap())
            .await;
    }
    let grown = resident().saturating_sub(before) / MEBIBYTE;

    let mut forgiven = 0;
    for n in 0..EXHAUSTED {
        forgiven += usize::from(limiter.check(&once, &named(n)).await.is_allowed());
    }
    let keys = store.stats().keys;
    println!("row 29 five million keys: {keys} held, {grown} MiB more, {forgiven} forgiven");
    assert!(keys <= BOUND);
    assert!(grown < 64, "{grown} MiB");
    assert_eq!(forgiven, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_29_every_key_in_redis_expires() {
    let fixture = Fixture::start(&[]).await;
    let direct = fixture.config_at(&fixture.server.url()).timeout(PATIENCE);
    let ours = ours(direct, FailureMode::Closed).await;
    let texts = [
        "1/s",
        "leaky_bucket 1/s",
        "fixed_window 2/366d",
        "sliding_window_log 3/min",
    ];
    for (place, text) in texts.into_iter().enumerate() {
        let limit = policy(&format!("p{place}"), text);
        for n in 0..1_000 {
            let _ = ours.limiter.check(&limit, &key(&format!("k{n}"))).await;
        }
    }

    let keyspace: String =
        block_in_place(|| fixture.server.command(&["INFO", "keyspace"])).unwrap();
    let number = |name: &str| -> u64 {
        let (_, rest) = keyspace.split_once(name).unwrap_or(("", "=0"));
        let digits = rest.trim_start_matches('=');
        let end = digits.find(|c: char| !c.is_ascii_digit());
        digits[..end.unwrap_or(digits.len())].parse().unwrap()
    };

    println!(
        "row 29 keys in Redis: {} of {} expire",
        number("expires"),
        number("keys")
    );
    assert!(number("keys") >= 2_000);
    assert_eq!(number("keys"), number("expires"));
}

/// Fifteen seconds in the suite; `RATELIMIT_CHAOS_SOAK_SECONDS=180` is the long run.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_outage_under_load_takes_no_memory_and_few_attempts() {
    const TASKS: u64 = 34;
    const PACE: Duration = Duration::from_millis(5);
    let seconds = env::var("RATELIMIT_CHAOS_SOAK_SECONDS");
    let seconds: u64 = seconds.map_or(15, |text| text.parse().unwrap());
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config(), FailureMode::Local).await;
    fixture.proxy.turn_away();
    fixture.proxy.reset();
    // The store of the process fills up to its working size before the measurement.
    soak(&ours.limiter, TASKS, PACE, Duration::from_secs(3)).await;

    let (before, broken) = (resident(), Instant::now());
    let (calls, slow) = soak(&ours.limiter, TASKS, PACE, Duration::from_secs(seconds)).await;
    let grown = resident().saturating_sub(before) / MEBIBYTE;
    let attempts = fixture.proxy.attempts_since(broken) as u64;

    println!(
        "outage of {seconds} s: {}/s, p99 {slow:?}, {grown} MiB more, {attempts} attempts",
        calls / seconds
    );
    assert!(grown <= 16, "{grown} MiB");
    assert!(attempts <= 4 * seconds, "{attempts}");
    assert!(slow < Duration::from_millis(100), "{slow:?}");
}

/// Calls on a thousand keys, and tells how many and how long 99 of 100 took at most.
async fn soak(limiter: &Limiter, tasks: u64, pace: Duration, span: Duration) -> (u64, Duration) {
    // As many spans as are ever kept, so that the measurement itself takes no memory.
    let (mut calls, mut spans) = (0, Vec::with_capacity(100_000));
    let callers: Vec<_> = (0..tasks)
        .map(|task| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let (started, policy) = (Instant::now(), endless());
                let (mut calls, mut spans) = (0, Vec::with_capacity(4_000));
                while started.elapsed() < span {
                    let key = key(&format!("soak-{task}-{}", calls % 40));
                    let asked = Instant::now();
                    let _ = limiter.check(&policy, &key).await;
                    if spans.len() < spans.capacity() {
                        spans.push(asked.elapsed());
                    }
                    calls += 1;
                    tokio::time::sleep(pace).await;
                }
                (calls, spans)
            })
        })
        .collect();
    for caller in callers {
        let (made, took) = caller.await.expect("a caller");
        calls += made;
        spans.extend(took);
    }
    spans.sort_unstable();
    (calls, spans[spans.len() - 1 - spans.len() / 100])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_reset_in_an_outage_says_that_it_did_not_happen() {
    let fixture = Fixture::start(&[]).await;
    let ours = ours(fixture.config().timeout(PATIENCE), FailureMode::Local).await;
    let limit = policy("reset", "fixed_window 2/366d");
    let _ = ours.limiter.check(&limit, &key("k")).await;

    fixture.proxy.turn_away();
    fixture.proxy.reset();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let refused = ours.limiter.reset(&limit, &key("k")).await;
    fixture.proxy.behave();
    heals(&ours).await;

    assert!(refused.is_err());
    assert_eq!(remaining(&ours.limiter.peek(&limit, &key("k")).await), 1);
}
