//! A background task that is restarted, on another runtime if need be, while its owner lives.
//!
//! | the runtime of the task | noticed by | after |
//! |---|---|---|
//! | is driven | the pulse, at least every 100 ms | |
//! | was dropped, or the task panicked | the next caller: the join handle is finished | at once |
//! | is blocked, or kept and not driven | callers that see no pulse | 500 ms of silence, and 100 ms of grace |
//!
//! There is no watchdog thread. A store that no caller uses is not repaired until a caller needs
//! it.

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

/// The task is polled at least this often while its runtime is driven: a fifth of [`SILENCE`], so
/// that a busy runtime that polls late is not suspected.
const PULSE: Duration = Duration::from_millis(100);
/// A task that was not polled for this long is suspected to be stuck. Callers lose Redis for about
/// this long when a worker blocks.
const SILENCE: Duration = Duration::from_millis(500);
/// A suspected task is restarted if it is not polled for this much longer. A process that was
/// stopped as a whole (SIGSTOP, a suspended machine) finds every task silent when it goes on; its
/// tasks are polled within this time.
const GRACE: Duration = Duration::from_millis(100);

/// A task that is started by the first caller that needs it, and lives on that caller's runtime.
///
/// - It is restarted when it has ended, because it panicked or its runtime was dropped.
/// - It moves to the runtime of the next caller when its own has not polled it for half a second: a
///   blocked worker, or a runtime that is kept but not driven. A thread of its own would never
///   stop, but costs 20 to 30 % of the checks a second (`docs/decisions/0013-tasks-move.md`).
/// - Each restart increments `rate_limiter_task_restarts_total`. The first start does not.
/// - The lock is held for a few loads in each call, and while a task is spawned. It is the
///   outermost lock: `start` may take the locks of its owner, and the task itself never takes this
///   one.
#[derive(Debug, Default)]
pub(in crate::store::redis) struct RespawningTask(Mutex<Option<RunningTask>>);

/// A task that was spawned, and the evidence that it is polled.
#[derive(Debug)]
struct RunningTask {
    /// Aborts the task, and shows whether it has ended. Dropping it would only detach the task.
    task: JoinHandle<()>,
    /// Shared with the task, which records its polls here.
    pulse: Arc<Pulse>,
    /// When the suspicion began, and the last poll by then. A newer poll ends the suspicion,
    /// whether or not a caller saw it.
    suspected: Option<(Instant, u64)>,
}

impl RespawningTask {
    /// Starts the task unless it runs. Does nothing outside of a runtime.
    ///
    /// `start` makes the future of the task and undoes what an earlier one left behind, such as a
    /// connection on a dead runtime. It runs under the lock, so no two callers start a task.
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
            // An abort takes effect when the old runtime polls next. Until then both tasks exist,
            // and a runtime that is never driven keeps the old one until it is dropped.
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
    /// Aborts the task. It ends at its next await point, and drops its clone of the shared state
    /// then.
    fn drop(&mut self) {
        let running = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = running {
            running.task.abort();
        }
    }
}

impl RunningTask {
    /// Whether the task runs, or may still show a pulse within its grace period. Records the
    /// suspicion.
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

/// The time of the last poll of a task. One atomic: the task records its polls without the lock of
/// [`RespawningTask`].
#[derive(Debug)]
struct Pulse {
    /// The origin of `beat`.
    start: Instant,
    /// Microseconds since `start`.
    beat: AtomicU64,
}

impl Pulse {
    /// A pulse that counts as polled now: a new task has [`SILENCE`] to be polled first.
    fn new() -> Pulse {
        Pulse {
            start: Instant::now(),
            beat: AtomicU64::new(0),
        }
    }

    /// Records a poll.
    fn beat(&self) {
        self.beat
            .store(micros(self.start.elapsed()), Ordering::Relaxed);
    }

    /// The time since the last poll.
    fn age(&self) -> Duration {
        let beat = Duration::from_micros(self.beat.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(beat)
    }
}

/// Runs `work` and records each poll. A timer polls it at least every [`PULSE`].
///
/// The pulse shows that the runtime polls this task, not that `work` makes progress: a connect that
/// hangs has timeouts of its own.
async fn with_pulse(pulse: Arc<Pulse>, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let mut tick = pin!(tokio::time::sleep(PULSE));
    poll_fn(|cx| {
        pulse.beat();
        // The loop polls the timer again after each reset. Without that the new deadline has no
        // waker.
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
