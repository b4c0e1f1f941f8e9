//! More than the store can hold.

use std::time::{Duration, Instant};

use ratelimit_core::{FailureMode, Limiter};
use ratelimit_tests::chaos::{Fixture, Ours, PATIENCE, endless, ours};

use crate::harness::{AT_ONCE, heals, is_checked, key, policy, resident};

const MEBIBYTE: u64 = 1 << 20;

/// Places for calls under way, and how long one takes: the store holds 1,600 calls a second.
const IN_FLIGHT: usize = 16;
const ROUND_TRIP: Duration = Duration::from_millis(10);

/// What callers get out of a limiter.
#[derive(Debug, Default)]
struct Goodput {
    checked: usize,
    unchecked: usize,
    spans: Vec<Duration>,
}

impl Goodput {
    /// How long 99 of 100 took at most.
    fn slow(&mut self) -> Duration {
        self.spans.sort_unstable();
        self.spans[self.spans.len() - 1 - self.spans.len() / 100]
    }
}

/// Lets `tasks` callers ask, each again after what a round trip takes.
async fn goodput(limiter: &Limiter, tasks: usize, span: Duration) -> Goodput {
    let until = Instant::now() + span;
    let callers = (0..tasks).map(|task| {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            let (policy, key) = (endless(), key(&format!("task-{task}")));
            let mut goodput = Goodput::default();
            while Instant::now() < until {
                let asked = Instant::now();
                if is_checked(&limiter.check(&policy, &key).await) {
                    goodput.checked += 1;
                    goodput.spans.push(asked.elapsed());
                } else {
                    goodput.unchecked += 1;
                    goodput.spans.push(asked.elapsed());
                    tokio::time::sleep(ROUND_TRIP).await;
                }
            }
            goodput
        })
    });
    let mut all = Goodput::default();
    for caller in callers.collect::<Vec<_>>() {
        let one = caller.await.expect("a caller");
        all.checked += one.checked;
        all.unchecked += one.unchecked;
        all.spans.extend(one.spans);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_27_ten_times_the_load_is_shed_and_not_queued() {
    let fixture = Fixture::start(&[]).await;
    // The bound of hits in flight sheds the load, not the timeout.
    let config = fixture.config().timeout(AT_ONCE / 2);
    let ours = ours(config.max_in_flight(IN_FLIGHT), FailureMode::Open).await;
    fixture.proxy.delay(ROUND_TRIP);

    let peak = goodput(&ours.limiter, IN_FLIGHT, Duration::from_secs(3)).await;
    heals(&ours).await;
    let before = resident();
    let mut over = goodput(&ours.limiter, 10 * IN_FLIGHT, Duration::from_secs(3)).await;
    let grown = resident().saturating_sub(before) / MEBIBYTE;

    let slow = over.slow();
    println!(
        "row 27 ten times the load: {} a second by the store at its peak; under ten times that {} \
         and {} without it, p99 {slow:?}, {grown} MiB more",
        peak.checked / 3,
        over.checked / 3,
        over.unchecked / 3,
    );
    assert!(over.unchecked > over.checked, "that was no overload");
    assert!(over.checked * 2 > peak.checked, "the store was given up");
    assert!(slow < AT_ONCE, "{slow:?}");
    assert!(grown < 32, "{grown} MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_28_one_hot_key_is_exact_under_512_tasks() {
    let fixture = Fixture::start(&[]).await;
    let direct = fixture.config_at(&fixture.server.url()).timeout(PATIENCE);
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
