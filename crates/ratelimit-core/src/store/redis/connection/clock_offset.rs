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
pub(in crate::store::redis) struct ClockOffset {
    start: Instant,
    samples: Mutex<OffsetSamples>,
}

#[derive(Debug)]
struct OffsetSamples {
    recent: Option<i64>,
    older: Option<i64>,
    turned: Instant,
}

impl ClockOffset {
    pub(in crate::store::redis) fn new() -> ClockOffset {
        let start = Instant::now();
        ClockOffset {
            start,
            samples: Mutex::new(OffsetSamples {
                recent: None,
                older: None,
                turned: start,
            }),
        }
    }

    /// Takes in that a call sent and received at these moments found the server's clock at `now`.
    pub(in crate::store::redis) fn record(&self, now: Timestamp, sent: Instant, received: Instant) {
        let at_least = offset(now, self.local_micros(received));
        let at_most = offset(now, self.local_micros(sent));
        let mut samples = self.samples();
        if samples
            .effective()
            .is_some_and(|effective| effective > at_most)
        {
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
    pub(in crate::store::redis) fn server_time(&self, moment: Instant) -> Option<Timestamp> {
        let effective = self.samples().effective()?;
        let there = self.local_micros(moment).checked_add_signed(effective)?;
        Some(Timestamp::from_micros(there))
    }

    fn local_micros(&self, moment: Instant) -> u64 {
        micros(moment.saturating_duration_since(self.start))
    }

    fn samples(&self) -> std::sync::MutexGuard<'_, OffsetSamples> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OffsetSamples {
    fn effective(&self) -> Option<i64> {
        self.recent.max(self.older)
    }
}

fn offset(there: Timestamp, ours: u64) -> i64 {
    let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    signed(there.as_micros()) - signed(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn a_deadline_is_never_told_too_late_and_hardly_too_early() {
        let clock = ClockOffset::new();
        let start = clock.start;
        let there = |ours: Duration| Timestamp::from_secs(1_000) + ours;

        clock.record(there(MILLI * 5), start, start + MILLI * 10);
        assert_eq!(
            clock.server_time(start + MILLI * 100),
            Some(there(MILLI * 95))
        );

        clock.record(there(MILLI * 21), start + MILLI * 20, start + MILLI * 22);
        assert_eq!(
            clock.server_time(start + MILLI * 100),
            Some(there(MILLI * 99))
        );
    }

    #[test]
    fn a_server_clock_that_is_set_back_is_believed_at_once() {
        let clock = ClockOffset::new();
        let start = clock.start;
        clock.record(Timestamp::from_secs(5_000), start, start + MILLI);

        clock.record(
            Timestamp::from_secs(1_400),
            start + MILLI,
            start + MILLI * 2,
        );

        let shown = clock.server_time(start + MILLI * 2).unwrap();
        assert_eq!(shown, Timestamp::from_secs(1_400));
    }

    #[test]
    fn old_samples_are_forgotten() {
        let clock = ClockOffset::new();
        let start = clock.start;
        let second = Duration::from_secs(1);
        clock.record(Timestamp::from_secs(100), start, start);
        for at in 1..20 {
            // The server's clock runs slow by a millisecond a second.
            let shown = Timestamp::from_secs(100) + MILLI * 999 * at;
            clock.record(
                shown,
                start + MILLI * 500 * (2 * at - 1),
                start + second * at,
            );
        }

        let late = clock.server_time(start + second * 19).unwrap();

        assert!(late <= Timestamp::from_secs(100) + MILLI * (19_000 - 9));
    }
}
