//! The task that samples once a second.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::messages::Tick;
use crate::{app::App, live_feed::LiveTick};

/// A sample that comes sooner after the last one is left out: its second is not over.
const MIN_SPAN: Duration = Duration::from_millis(100);

/// Samples the metrics at the start of each second of the system clock; never returns.
///
/// It runs whether or not somebody watches, so that a viewer sees the last 300 seconds at once. The JSON of a tick is written
/// only for viewers. A second call for the same server returns at once.
pub(crate) async fn sample(app: App) {
    let Some(_guard) = app.live().start_sampling() else {
        return;
    };
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(until_next_second(since_epoch())).await;
        let elapsed = last.elapsed();
        if elapsed < MIN_SPAN {
            continue;
        }
        last += elapsed;
        // A clock that is slewed can be a little before the second that was waited for.
        let at = (since_epoch() + MIN_SPAN).as_secs();
        app.sampler().sample(at, elapsed);
        app.live().publish(|| LiveTick {
            at,
            json: Tick::new(&app).to_json().into(),
        });
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
}
