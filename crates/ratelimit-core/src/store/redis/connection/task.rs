//! A background task that is restarted, on another runtime if need be, while its owner lives.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use tokio::{runtime::Handle, task::JoinHandle};

use crate::{metrics, sync::lock, time::micros};

/// The task is polled at least this often while its runtime is driven.
const PULSE: Duration = Duration::from_millis(100);
/// A task that was not polled for this long is suspected to be stuck.
const SILENCE: Duration = Duration::from_millis(500);
/// A suspected task is restarted if it is not polled for this much longer.
const GRACE: Duration = Duration::from_millis(100);

/// A task that is started by the first caller that needs it, and lives on that caller's runtime.
///
/// - It is restarted when it has ended, because it panicked or its runtime was dropped.
/// - It moves to the runtime of the next caller when its own has not polled it for half a second: a blocked
///   worker, or a runtime that is kept but not driven. A thread of its own would never stop, but costs 20 to
///   30 % of the checks a second (`docs/decisions/0013-tasks-move.md`).
#[derive(Debug, Default)]
pub(in crate::store::redis) struct RespawningTask(Mutex<Option<RunningTask>>);

#[derive(Debug)]
struct RunningTask {
    task: JoinHandle<()>,
    pulse: Arc<Pulse>,
    /// When the suspicion began, and the last poll by then.
    suspected: Option<(Instant, u64)>,
}

impl RespawningTask {
    /// Starts the task unless it runs. Does nothing outside of a runtime.
    pub(in crate::store::redis) fn ensure_running<F>(&self, start: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = lock(&self.0);
        if running.as_mut().is_some_and(RunningTask::is_alive) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if let Some(stopped) = running.take() {
            stopped.task.abort();
            metrics::task_restarted();
        }
        let pulse = Arc::new(Pulse::new());
        let task = runtime.spawn(with_pulse(Arc::clone(&pulse), start()));
        *running = Some(RunningTask {
            task,
            pulse,
            suspected: None,
        });
    }
}

impl Drop for RespawningTask {
    fn drop(&mut self) {
        let running = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running {
            running.task.abort();
        }
    }
}

impl RunningTask {
    fn is_alive(&mut self) -> bool {
        if self.task.is_finished() {
            return false;
        }
        if self.pulse.age() < SILENCE {
            self.suspected = None;
            return true;
        }
        // After a pause of the whole process or runtime, the task is polled as soon as it goes on, within the grace
        // period. A worker that computes between its checks is silent each time, but is polled in between, so each
        // silence has a grace period of its own.
        let beat = self.pulse.beat.load(Ordering::Relaxed);
        let since = match self.suspected {
            Some((since, suspected)) if suspected == beat => since,
            _ => Instant::now(),
        };
        self.suspected = Some((since, beat));
        since.elapsed() < GRACE
    }
}

/// The time of the last poll of a task.
#[derive(Debug)]
struct Pulse {
    start: Instant,
    /// Microseconds since `start`.
    beat: AtomicU64,
}

impl Pulse {
    fn new() -> Pulse {
        Pulse {
            start: Instant::now(),
            beat: AtomicU64::new(0),
        }
    }

    fn beat(&self) {
        self.beat
            .store(micros(self.start.elapsed()), Ordering::Relaxed);
    }

    fn age(&self) -> Duration {
        let beat = Duration::from_micros(self.beat.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(beat)
    }
}

/// Runs `work` and records each poll. A timer polls it at least every [`PULSE`].
async fn with_pulse(pulse: Arc<Pulse>, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let mut tick = pin!(tokio::time::sleep(PULSE));
    poll_fn(|cx| {
        pulse.beat();
        while tick.as_mut().poll(cx).is_ready() {
            tick.as_mut().reset(tokio::time::Instant::now() + PULSE);
        }
        match work.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
}
