//! Nobody over-admits: eight processes on one Redis, replayed against the exact model (law 10).

use std::{
    collections::HashMap,
    process::{Command, Stdio},
    sync::Arc,
};

use ratelimit_core::{
    Clock, MemoryStore, Policy,
    store::{Hit, Store},
};
use ratelimit_tests::{
    model::{Answer, Model, Spec},
    redis::TestRedis,
};

use crate::stores::{key, policy};

const PROCESSES: u64 = 8;
const HITS_PER_TASK: u64 = 25;

const BUCKET: Spec = Spec::TokenBucket {
    capacity: 100,
    refill: 100,
    period_us: 1_000_000,
};

struct Answered {
    now_us: u64,
    cost: u64,
    allowed: bool,
}

/// Runs the processes, and gives every answer by key, in the order of the server's clock.
fn run_processes(redis: &TestRedis, text: &str) -> HashMap<String, Vec<Answered>> {
    let prefix = format!("rate_limiter:oracle-{}", text.len());
    let running: Vec<_> = (0..PROCESSES)
        .map(|seed| {
            Command::new(env!("CARGO_BIN_EXE_oracle"))
                .args([redis.url(), &prefix, &seed.to_string(), text])
                .arg(HITS_PER_TASK.to_string())
                .stdout(Stdio::piped())
                .spawn()
                .expect("the oracle's process")
        })
        .collect();
    let mut answers: HashMap<String, Vec<Answered>> = HashMap::new();
    for process in running {
        let output = process.wait_with_output().expect("its output");
        assert!(output.status.success());
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let [key, now, cost, allowed] = *line.split(' ').collect::<Vec<_>>() else {
                panic!("not an answer: {line}");
            };
            answers.entry(key.to_owned()).or_default().push(Answered {
                now_us: now.parse().unwrap(),
                cost: cost.parse().unwrap(),
                allowed: allowed.parse().unwrap(),
            });
        }
    }
    for log in answers.values_mut() {
        // At one microsecond, what passed came first: the model would admit no more either way.
        log.sort_by_key(|answer| (answer.now_us, !answer.allowed));
    }
    answers
}

/// Replays a log, and counts what passed although the model refuses it, and the reverse.
fn replay(limits: &[Spec], log: &[Answered]) -> (u64, u64) {
    let mut model = Model::new();
    let (mut over, mut under) = (0, 0);
    for (place, answer) in log.iter().enumerate() {
        let expected = model.hit(limits, answer.now_us, answer.cost);
        let fits = matches!(expected.overall.answer, Answer::Allowed { .. });
        let alone = place == 0 || log[place - 1].now_us < answer.now_us;
        over += u64::from(answer.allowed && !fits);
        under += u64::from(!answer.allowed && fits && alone);
    }
    (over, under)
}

async fn no_over_admission(text: &str, limits: &[Spec]) {
    no_over_admission_on(&TestRedis::start().await, text, limits);
}

fn no_over_admission_on(redis: &TestRedis, text: &str, limits: &[Spec]) {
    let answers = run_processes(redis, text);

    let decisions: usize = answers.values().map(Vec::len).sum();
    assert_eq!(decisions as u64, PROCESSES * 64 * HITS_PER_TASK);
    let mut passed = 0;
    for log in answers.values() {
        passed += log.iter().filter(|answer| answer.allowed).count();
        assert_eq!(replay(limits, log), (0, 0), "{text}");
    }
    println!("{text}: {decisions} decisions, {passed} passed, none over, none under");
    assert!(passed > 0 && passed < decisions);
    redis.assert_every_key_expires();
}

#[tokio::test]
async fn eight_processes_never_over_admit_a_token_bucket() {
    no_over_admission("token_bucket 100/s", &[BUCKET]).await;
}

/// Eight processes on a token bucket.
pub(crate) fn eight_processes_on_a_bucket(redis: &TestRedis) {
    no_over_admission_on(redis, "token_bucket 100/s", &[BUCKET]);
}

#[tokio::test]
async fn eight_processes_never_over_admit_a_mixed_policy() {
    let limits = [
        Spec::SlidingWindowLog {
            limit: 50,
            period_us: 500_000,
            count_denied: false,
        },
        Spec::SlidingWindowCounter {
            limit: 200,
            period_us: 1_000_000,
        },
        Spec::FixedWindow {
            limit: 300,
            period_us: 60_000_000,
        },
    ];
    let text = "sliding_window_log 50/500ms; sliding_window_counter 200/s; fixed_window 300/min";
    no_over_admission(text, &limits).await;
}

/// How many of `tasks` hits at once pass.
async fn admitted_at_once(store: Arc<dyn Store>, limit: &Policy, tasks: usize) -> usize {
    let hits: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, limit) = (Arc::clone(&store), limit.clone());
            tokio::spawn(async move { store.hit(Hit::new(&limit, &key("hot"))).await })
        })
        .collect();
    let mut admitted = 0;
    for hit in hits {
        admitted += usize::from(hit.await.unwrap().unwrap().is_allowed());
    }
    admitted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_hits_at_once_exactly_the_limit_passes() {
    exactly_the_limit_passes_at_once(&TestRedis::start().await).await;
}

/// A thousand hits at once on limits of 100.
pub(crate) async fn exactly_the_limit_passes_at_once(redis: &TestRedis) {
    for text in [
        "100/d",
        "leaky_bucket 100/d",
        "fixed_window 100/366d",
        "sliding_window_log 100/d",
        "sliding_window_counter 100/366d",
        "100/d; sliding_window_log 150/d; fixed_window 200/366d",
    ] {
        let limit = policy("at-once", text);
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let shared: Arc<dyn Store> = Arc::new(redis.store(Clock::system()).await);

        assert_eq!(admitted_at_once(memory, &limit, 1_000).await, 100, "{text}");
        assert_eq!(admitted_at_once(shared, &limit, 1_000).await, 100, "{text}");
    }
}
