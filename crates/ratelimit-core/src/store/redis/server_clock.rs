//! What the server's clock shows, told from ours, so that a call can carry a deadline.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::time::{Timestamp, micros};

/// How long a sample counts at the least; at the most it is twice that.
const HALF_MEMORY: Duration = Duration::from_secs(5);

/// The distance between the server's clock and ours, as a lower bound.
///
/// A script ran before its answer was received, so the server's time in it, less our time of receipt,
/// is never more than the true distance. The largest of such samples is close to it, and a deadline
/// that is told with it is never later than the caller meant.
#[derive(Debug)]
pub(super) struct ServerClock {
    start: Instant,
    samples: Mutex<Samples>,
}

#[derive(Debug)]
struct Samples {
    recent: Option<i64>,
    older: Option<i64>,
    turned: Instant,
}

impl ServerClock {
    pub(super) fn new() -> ServerClock {
        let start = Instant::now();
        ServerClock {
            start,
            samples: Mutex::new(Samples {
                recent: None,
                older: None,
                turned: start,
            }),
        }
    }

    /// Takes in that a call sent and received at these moments found the server's clock at `now`.
    pub(super) fn learn(&self, now: Timestamp, sent: Instant, received: Instant) {
        let at_least = distance(now, self.ours(received));
        let at_most = distance(now, self.ours(sent));
        let mut samples = self.samples();
        if samples.bound().is_some_and(|bound| bound > at_most) {
            // The server's clock was set back: nothing learned before holds.
            (samples.recent, samples.older) = (None, None);
        }
        if received.saturating_duration_since(samples.turned) > HALF_MEMORY {
            samples.older = samples.recent.take();
            samples.turned = received;
        }
        samples.recent = samples.recent.max(Some(at_least));
    }

    /// What the server's clock shows at `moment`, or a little less; nothing before the first answer.
    pub(super) fn at(&self, moment: Instant) -> Option<Timestamp> {
        let bound = self.samples().bound()?;
        let there = self.ours(moment).checked_add_signed(bound)?;
        Some(Timestamp::from_micros(there))
    }

    fn ours(&self, moment: Instant) -> u64 {
        micros(moment.saturating_duration_since(self.start))
    }

    fn samples(&self) -> std::sync::MutexGuard<'_, Samples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Samples {
    fn bound(&self) -> Option<i64> {
        self.recent.max(self.older)
    }
}

fn distance(there: Timestamp, ours: u64) -> i64 {
    let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    signed(there.as_micros()) - signed(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn a_deadline_is_never_told_too_late_and_hardly_too_early() {
        let clock = ServerClock::new();
        let start = clock.start;
        let there = |ours: Duration| Timestamp::from_secs(1_000) + ours;

        clock.learn(there(MILLI * 5), start, start + MILLI * 10);
        assert_eq!(clock.at(start + MILLI * 100), Some(there(MILLI * 95)));

        clock.learn(there(MILLI * 21), start + MILLI * 20, start + MILLI * 22);
        assert_eq!(clock.at(start + MILLI * 100), Some(there(MILLI * 99)));
    }

    #[test]
    fn a_server_clock_that_is_set_back_is_believed_at_once() {
        let clock = ServerClock::new();
        let start = clock.start;
        clock.learn(Timestamp::from_secs(5_000), start, start + MILLI);

        clock.learn(
            Timestamp::from_secs(1_400),
            start + MILLI,
            start + MILLI * 2,
        );

        let shown = clock.at(start + MILLI * 2).unwrap();
        assert_eq!(shown, Timestamp::from_secs(1_400));
    }

    #[test]
    fn old_samples_are_forgotten() {
        let clock = ServerClock::new();
        let start = clock.start;
        let second = Duration::from_secs(1);
        clock.learn(Timestamp::from_secs(100), start, start);
        for at in 1..20 {
            // The server's clock runs slow by a millisecond a second.
            let shown = Timestamp::from_secs(100) + MILLI * 999 * at;
            clock.learn(
                shown,
                start + MILLI * 500 * (2 * at - 1),
                start + second * at,
            );
        }

        let late = clock.at(start + second * 19).unwrap();

        assert!(late <= Timestamp::from_secs(100) + MILLI * (19_000 - 9));
    }
}
