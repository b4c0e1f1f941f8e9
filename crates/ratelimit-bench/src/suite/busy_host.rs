//! How many decisions miss their time-out on a host whose processors are busy with other work.
//!
//! `docs/decisions/0015-time-out.md` chooses the default time-out by these rows.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ratelimit_core::{FailureMode, Key, Limiter, Policy, RedisConfig, RedisStore, Verdict};
use tokio::runtime::Runtime;

use super::{Plan, duration::exact, load::TIMEOUT};
use crate::{
    report::{Report, Row, Spread},
    server::RedisServer,
};

const TIMEOUTS_MS: [u64; 3] = [25, 50, 100];
/// Threads for each processor that only spin, beside the instances and Redis.
const SPINNERS_PER_CORE: [usize; 4] = [1, 4, 8, 16];
/// Each instance has a runtime of its own, with a thread for each processor.
const INSTANCES: usize = 2;
/// Requests that an instance serves at once.
const TASKS: usize = 64;
/// Processor time of a request beside its check.
const WORK: Duration = Duration::from_micros(100);
/// The shortest turn with thousands of decisions.
const SHORTEST_TURN: Duration = Duration::from_secs(1);

pub(super) fn run(plan: Plan, report: &mut Report) {
    let server = RedisServer::start(&[]);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for per_core in SPINNERS_PER_CORE {
        let _spinning = Spinners::start(per_core * cores);
        let instances = TIMEOUTS_MS.map(|timeout| BusyInstances::connected(&server, timeout));
        let mut missed = TIMEOUTS_MS.map(|_| Vec::new());
        for _ in 0..plan.rounds() {
            // In turn, because the load by others changes.
            for (missed, instances) in missed.iter_mut().zip(&instances) {
                missed.push(instances.missed_percent(plan.turn().max(SHORTEST_TURN)));
            }
        }
        for (timeout, missed) in TIMEOUTS_MS.into_iter().zip(missed) {
            let what = format!(
                "busy host, {per_core} spinning threads for each core, time-out {timeout} ms, \
                 left to the failure mode"
            );
            report.rows.push(Row::new(what, "%", Spread::of(&missed)));
        }
    }
}

/// Threads that keep processors busy until this is dropped.
struct Spinners {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    fn start(count: usize) -> Spinners {
        let is_over = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|_| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || spin_until(|| is_over.load(Ordering::Relaxed)))
        });
        Spinners {
            threads: threads.collect(),
            is_over,
        }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Keeps a processor busy.
fn spin_until(is_over: impl Fn() -> bool) {
    while !is_over() {
        std::hint::spin_loop();
    }
}

/// Instances of a service with one time-out, each with its runtime.
struct BusyInstances(Vec<(Runtime, Limiter)>);

/// Decisions of a turn.
#[derive(Default)]
struct Decided {
    all: AtomicUsize,
    unchecked: AtomicUsize,
}

impl BusyInstances {
    fn connected(server: &RedisServer, timeout_ms: u64) -> BusyInstances {
        let instance = |_| {
            let runtime = Runtime::new().expect("a runtime");
            let limiter = runtime.block_on(async {
                let config = RedisConfig::new(&server.url()).expect("an address of Redis");
                let store = RedisStore::new(config.timeout(Duration::from_millis(timeout_ms)));
                assert!(store.wait_connected(TIMEOUT).await, "Redis does not answer");
                Limiter::new(store).failure_mode(FailureMode::Open)
            });
            (runtime, limiter)
        };
        BusyInstances((0..INSTANCES).map(instance).collect())
    }

    /// The percentage of decisions that the failure mode made, while all instances serve requests.
    fn missed_percent(&self, lasting: Duration) -> f64 {
        let until = Instant::now() + lasting;
        let decided = Arc::new(Decided::default());
        let policy = Policy::parse("bench", "1000000/s").expect("limits that are well formed");
        let mut tasks = Vec::new();
        for (instance, (runtime, limiter)) in self.0.iter().enumerate() {
            for task in 0..TASKS {
                let key = Key::new(format!("user:{instance}-{task}")).expect("a valid key");
                let (limiter, policy) = (limiter.clone(), policy.clone());
                let decided = Arc::clone(&decided);
                let task = runtime.spawn(async move {
                    while Instant::now() < until {
                        let verdict = limiter.check(&policy, &key).await;
                        let is_unchecked = !matches!(verdict, Verdict::Checked(_));
                        decided.all.fetch_add(1, Ordering::Relaxed);
                        let (count, started) = (usize::from(is_unchecked), Instant::now());
                        decided.unchecked.fetch_add(count, Ordering::Relaxed);
                        spin_until(|| started.elapsed() >= WORK);
                        tokio::task::yield_now().await;
                    }
                });
                tasks.push((runtime, task));
            }
        }
        for (runtime, task) in tasks {
            runtime.block_on(task).expect("no task panics");
        }
        let count = |counter: &AtomicUsize| exact(counter.load(Ordering::Relaxed));
        100.0 * count(&decided.unchecked) / count(&decided.all)
    }
}
