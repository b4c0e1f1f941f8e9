//! Callers that keep asking while things break.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ratelimit_core::Policy;
use tokio::task::JoinHandle;

use super::{
    layer::{CallOutcome, Layer},
    ledger::{Entry, Ledger},
};

/// What the key that all callers share may spend.
pub const COMMON_LIMIT: u64 = 50;

const TASKS: usize = 16;
const PACE: Duration = Duration::from_millis(5);
/// Every so many calls of a task, one spends of the key that all share.
const COMMON_EVERY: usize = 8;

/// A policy that never denies, to count what was spent.
///
/// # Panics
///
/// Never: the text is valid.
pub fn endless() -> Policy {
    Policy::parse("endless", "fixed_window 1000000/366d").expect("a valid policy")
}

/// The policy of the key that all callers share.
///
/// # Panics
///
/// Never: the text is valid.
pub fn common() -> Policy {
    let text = format!("fixed_window {COMMON_LIMIT}/366d");
    Policy::parse("common", &text).expect("a valid policy")
}

/// Callers that ask until they are told to stop.
///
/// Every call has a key of its own, so that what it spent can be read afterwards; now and then a call
/// spends of one key that all share, so that what they admit together can be held against a limit.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    layer: Arc<dyn Layer>,
    endless: Policy,
    common: Policy,
    phase: AtomicUsize,
    stops: AtomicBool,
    ledger: Mutex<Ledger>,
    /// What each task is waiting for.
    waiting: Vec<Mutex<Option<Entry>>>,
}

impl Load {
    /// Starts calling.
    pub fn start(layer: Arc<dyn Layer>) -> Load {
        let shared = Arc::new(Shared {
            layer,
            endless: endless(),
            common: common(),
            phase: AtomicUsize::new(0),
            stops: AtomicBool::new(false),
            ledger: Mutex::new(Ledger::default()),
            waiting: (0..TASKS).map(|_| Mutex::new(None)).collect(),
        });
        let tasks = (0..TASKS)
            .map(|task| tokio::spawn(Arc::clone(&shared).call(task)))
            .collect();
        Load { shared, tasks }
    }

    /// Lets the callers call for a while.
    pub async fn run(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Begins a new phase, and waits a moment until calls of the phases before are answered.
    pub async fn phase(&self) -> usize {
        let phase = self.shared.phase.fetch_add(1, Ordering::SeqCst) + 1;
        let asked = Instant::now();
        while asked.elapsed() < Duration::from_secs(1) && self.waits_since_before(phase) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        phase
    }

    fn waits_since_before(&self, phase: usize) -> bool {
        let mut waiting = self.shared.waiting.iter();
        waiting.any(|entry| locked(entry).as_ref().is_some_and(|e| e.phase < phase))
    }

    /// Waits until the store decides again a call made after `since`, and tells how long it took.
    pub async fn healed(&self, since: Instant, within: Duration) -> Option<Duration> {
        while since.elapsed() < within {
            let healed = locked(&self.shared.ledger).healed_after(since);
            if healed.is_some() {
                return healed;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        None
    }

    /// Ends the calls, waits a moment for those under way, and tells what was told.
    pub async fn stop(self) -> Ledger {
        self.shared.stops.store(true, Ordering::SeqCst);
        let asked = Instant::now();
        for task in self.tasks {
            let left = Duration::from_secs(2).saturating_sub(asked.elapsed());
            let abort = task.abort_handle();
            if tokio::time::timeout(left, task).await.is_err() {
                abort.abort();
            }
        }
        let mut ledger = std::mem::take(&mut *locked(&self.shared.ledger));
        for entry in &self.shared.waiting {
            if let Some(mut entry) = locked(entry).take() {
                entry.took = entry.began.elapsed();
                ledger.add(entry);
            }
        }
        ledger
    }
}

impl Shared {
    async fn call(self: Arc<Shared>, task: usize) {
        for round in 0.. {
            if self.stops.load(Ordering::SeqCst) {
                return;
            }
            let phase = self.phase.load(Ordering::SeqCst);
            let key = (round % COMMON_EVERY > 0).then(|| format!("own-{phase}-{task}-{round}"));
            let mut entry = Entry {
                phase,
                key,
                began: Instant::now(),
                took: Duration::ZERO,
                told: CallOutcome::Nothing,
            };
            *locked(&self.waiting[task]) = Some(entry.clone());
            entry.told = match &entry.key {
                Some(own) => self.layer.hit(&self.endless, own).await,
                None => self.layer.hit(&self.common, "common").await,
            };
            entry.took = entry.began.elapsed();
            *locked(&self.waiting[task]) = None;
            locked(&self.ledger).add(entry);
            tokio::time::sleep(PACE).await;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
