//! More than the store can hold.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ratelimit_core::{FailureMode, Limiter};
use ratelimit_tests::chaos::{Bench, Ours, PATIENCE, endless, ours};

use crate::instance::{AT_ONCE, heals, is_checked, key, policy, resident};

const MEBIBYTE: u64 = 1 << 20;

/// What `tasks` callers without a pause get out of a limiter.
struct Goodput {
    checked: u64,
    unchecked: u64,
    slow: Duration,
    longest: Duration,
}

async fn goodput(limiter: &Limiter, tasks: usize, span: Duration) -> Goodput {
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let until = Instant::now() + span;
    let callers: Vec<_> = (0..tasks)
        .map(|task| {
            let (limiter, counts) = (limiter.clone(), Arc::clone(&counts));
            tokio::spawn(async move {
                let (policy, key) = (endless(), key(&format!("task-{task}")));
                let mut spans = Vec::new();
                while Instant::now() < until {
                    let asked = Instant::now();
                    let checked = is_checked(&limiter.check(&policy, &key).await);
                    spans.push(asked.elapsed());
                    let count = if checked { &counts.0 } else { &counts.1 };
                    count.fetch_add(1, Ordering::Relaxed);
                    if !checked {
                        // A caller that is not limited does its work instead.
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                spans
            })
        })
        .collect();
    let mut spans = Vec::new();
    for caller in callers {
        spans.extend(caller.await.expect("a caller"));
    }
    spans.sort_unstable();
    Goodput {
        checked: counts.0.load(Ordering::Relaxed),
        unchecked: counts.1.load(Ordering::Relaxed),
        slow: spans[spans.len() - 1 - spans.len() / 100],
        longest: spans[spans.len() - 1],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn row_27_ten_times_the_load_is_shed_and_not_queued() {
    let bench = Bench::start(&[]).await;
    let direct = bench.config_at(&bench.server.url());
    let ours = ours(direct, FailureMode::Open).await;

    let peak = goodput(&ours.limiter, 512, Duration::from_secs(2)).await;
    heals(&ours).await;
    let before = resident();
    let over = goodput(&ours.limiter, 5_120, Duration::from_secs(4)).await;
    let grown = resident().saturating_sub(before) / MEBIBYTE;
    heals(&ours).await;

    println!(
        "row 27 ten times the load: {}/s by the store at first, {}/s and {}/s without it under \
         ten times the callers; p99 {:?}, longest {:?}, {grown} MiB more",
        peak.checked / 2,
        over.checked / 4,
        over.unchecked / 4,
        over.slow,
        over.longest,
    );
    assert!(over.checked > 0, "the store was given up under load");
    assert!(over.slow < AT_ONCE && over.longest < 3 * AT_ONCE);
    assert!(grown < 128, "{grown} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_28_one_hot_key_is_exact_under_512_tasks() {
    let bench = Bench::start(&[]).await;
    let direct = bench.config_at(&bench.server.url()).time_budget(PATIENCE);
    let ours: Ours = ours(direct, FailureMode::Closed).await;
    let limit = policy("hot", "fixed_window 1000/366d");
    let asked = Instant::now();
    let tasks = (0..512).map(|_| {
        let (limiter, limit) = (ours.limiter.clone(), limit.clone());
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..8 {
                let verdict = limiter.check(&limit, &key("hot")).await;
                assert!(is_checked(&verdict), "{verdict:?}");
                admitted += u64::from(verdict.is_allowed());
            }
            admitted
        })
    });

    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += task.await.unwrap();
    }

    println!(
        "row 28 one hot key: {admitted} of 4096 admitted in {:?}",
        asked.elapsed()
    );
    assert_eq!(admitted, 1_000);
}
