//! The task that samples once a second.

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::FutureExt as _;
use metrics::counter;
use ratelimit_core::metrics::TASK_RESTARTS;
use tokio::time::Instant;

use super::messages::Tick;
use crate::{app::App, live_feed::LiveTick};

/// A sample that comes sooner after the last one is left out: its second is not over.
const MIN_SPAN: Duration = Duration::from_millis(100);

/// Samples the metrics at the start of each second of the system clock; never returns.
///
/// It runs whether or not somebody watches, so that a viewer sees the last 300 seconds at once. The JSON of a tick is written
/// only for viewers. A second call for the same server returns at once. After a panic the sampling starts again.
pub(crate) async fn sample(app: App) {
    let Some(_guard) = app.live().start_sampling() else {
        return;
    };
    restart_on_panic(|| sample_seconds(&app)).await;
}

/// Runs a task until it completes, again after each panic, with a line in the log and in `rate_limiter_task_restarts_total`.
async fn restart_on_panic<F: Future<Output = ()>>(mut task: impl FnMut() -> F) {
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        tracing::error!("the sampling of live numbers panicked, and starts again");
        counter!(TASK_RESTARTS).increment(1);
    }
}

async fn sample_seconds(app: &App) {
    let mut seconds = Seconds::starting_at(Instant::now());
    loop {
        tokio::time::sleep(until_next_second(since_epoch())).await;
        let Some((at, elapsed)) = seconds.end(Instant::now(), since_epoch()) else {
            continue;
        };
        app.sampler().sample(at, elapsed);
        app.live().publish(|| LiveTick {
            at,
            json: Tick::new(app).to_json().into(),
        });
    }
}

/// Gives each sample the second that it ends, and the time since the one before.
struct Seconds {
    last: Instant,
    /// The second of the last sample; 0 before the first one.
    at: u64,
}

impl Seconds {
    const fn starting_at(last: Instant) -> Seconds {
        Seconds { last, at: 0 }
    }

    /// Ends the second that `clock`, the time of the system clock, has reached at the moment `now`.
    ///
    /// `None` if the last sample has ended it already: after a late sample, or one that came a little before its second. Its
    /// checks count in the next sample.
    fn end(&mut self, now: Instant, clock: Duration) -> Option<(u64, Duration)> {
        let elapsed = now.duration_since(self.last);
        // A clock that is slewed can be a little before the second that was waited for.
        let at = (clock + MIN_SPAN).as_secs();
        if elapsed < MIN_SPAN || at == self.at {
            return None;
        }
        (self.last, self.at) = (now, at);
        Some((at, elapsed))
    }
}

fn since_epoch() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

fn until_next_second(now: Duration) -> Duration {
    Duration::from_nanos(1_000_000_000 - u64::from(now.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_due_at_the_start_of_the_next_second() {
        let cases = [(0, 1_000), (1_250, 750), (7_999, 1)];
        for (now, expected) in cases {
            let wait = until_next_second(Duration::from_millis(now));
            assert_eq!(wait, Duration::from_millis(expected));
        }
    }

    #[test]
    fn sampling_that_panics_starts_again_and_is_counted() {
        let recorder = crate::metrics::recorder("test");
        let mut starts = 0;
        let task = || {
            starts += 1;
            let panics = starts < 3;
            async move { assert!(!panics, "on purpose") }
        };

        metrics::with_local_recorder(&recorder, || restart_on_panic(task).now_or_never()).unwrap();

        assert_eq!(starts, 3);
        let text = recorder.handle().render();
        let restarts = "rate_limiter_task_restarts_total{application=\"test\"} 2\n";
        assert!(text.contains(restarts), "{text}");
    }

    /// The clock stands at 1,000 seconds when the sampling starts.
    fn ends(millis: &[u64]) -> Vec<Option<(u64, u128)>> {
        let start = Instant::now();
        let mut seconds = Seconds::starting_at(start);
        let mut end = |millis: &u64| {
            let passed = Duration::from_millis(*millis);
            let ended = seconds.end(start + passed, Duration::from_secs(1_000) + passed);
            ended.map(|(at, elapsed)| (at, elapsed.as_millis()))
        };
        millis.iter().map(&mut end).collect()
    }

    #[test]
    fn a_second_is_ended_once_however_late_its_sample_is() {
        assert_eq!(
            ends(&[1_000, 2_950, 3_000, 4_000]),
            [
                Some((1_001, 1_000)),
                Some((1_003, 1_950)),
                None,
                Some((1_004, 1_050)),
            ]
        );
        // So late that the next second has its own sample 120 ms later, under the same label.
        assert_eq!(
            ends(&[1_000, 2_901, 3_021, 4_000]),
            [
                Some((1_001, 1_000)),
                Some((1_003, 1_901)),
                None,
                Some((1_004, 1_099)),
            ]
        );
    }
}
