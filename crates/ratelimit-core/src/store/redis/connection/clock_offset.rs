//! The offset of the server's clock, so that a call can carry a deadline in the server's time, and the length of the
//! link.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    sync::lock,
    time::{Timestamp, micros},
};

/// A sample counts for at least this long, and at most twice as long while replies arrive.
///
/// Shorter windows would lose the best sample, which is the reply with the least delay on its way
/// back. Longer ones would follow a drifting clock too late.
const SAMPLE_WINDOW: Duration = Duration::from_secs(5);

/// A lower bound of the server's time minus the local time.
///
/// - A script ran before its reply was received. So the server's time in the reply, minus the local
///   time of receipt, is never more than the true offset. The largest of these samples is close to
///   it.
/// - A deadline that is converted with a lower bound is never later than the caller's, so a hit is
///   never charged after its caller gave up.
/// - Samples are kept in two windows of five seconds, so a clock that drifts is followed.
/// - A server clock that is set back is noticed with the first reply: its time is then below the
///   lower bound, even by the local time of sending.
/// - A server clock that is set forward makes deadlines too early until the next reply. The script
///   replies `REPLY_TOO_LATE`, which carries the new time, and the call is sent again.
/// - The idle probe keeps the samples of our own connections young. A connection of the application
///   has no probe: after a pause its first call uses the last sample, however old.
/// - The same samples give the [shortest round trip](Self::min_round_trip).
///
/// The lock is held for a few comparisons and is never held across an await.
#[derive(Debug)]
pub(in crate::store::redis) struct ClockOffset {
    /// The zero of the local time. It is monotonic: steps of the local wall clock have no effect.
    start: Instant,
    /// Written for each reply, read for each call.
    samples: Mutex<OffsetSamples>,
    /// The shortest round trip in microseconds; `u64::MAX` before the first reply. Outside of the lock, because every
    /// batched hit reads it.
    min_round_trip_us: AtomicU64,
}

/// The best sample of each window. All numbers are server time minus local time, in microseconds.
#[derive(Debug)]
struct OffsetSamples {
    /// The largest sample of the current window, in microseconds. `None` before its first reply.
    recent: Option<i64>,
    /// The largest sample of the window before. It bridges the start of a window, which has few
    /// samples.
    older: Option<i64>,
    /// The local time at which the current window started.
    window_start: Instant,
}

impl ClockOffset {
    /// An offset without samples. Calls carry no deadline until the first reply is recorded.
    pub(in crate::store::redis) fn new() -> ClockOffset {
        let start = Instant::now();
        ClockOffset {
            start,
            samples: Mutex::new(OffsetSamples {
                recent: None,
                older: None,
                window_start: start,
            }),
            min_round_trip_us: AtomicU64::new(u64::MAX),
        }
    }

    /// Records that a call, sent and received at these local times, read `now` from the server's clock.
    pub(in crate::store::redis) fn record(&self, now: Timestamp, sent: Instant, received: Instant) {
        let round_trip = micros(received.saturating_duration_since(sent));
        self.min_round_trip_us
            .fetch_min(round_trip, Ordering::Relaxed);
        // The server read its clock between `sent` and `received`, so the true offset is between
        // these two.
        let at_least = offset(now, self.local_micros(received));
        let at_most = offset(now, self.local_micros(sent));
        let mut samples = self.samples();
        if samples.lower_bound().is_some_and(|bound| bound > at_most) {
            // The server's clock was set back, so no earlier sample holds.
            (samples.recent, samples.older) = (None, None);
        }
        if received.saturating_duration_since(samples.window_start) > SAMPLE_WINDOW {
            samples.older = samples.recent.take();
            samples.window_start = received;
        }
        samples.recent = samples.recent.max(Some(at_least));
    }

    /// The server's time at `moment`, or a little less. `None` before the first reply.
    pub(in crate::store::redis) fn server_time(&self, moment: Instant) -> Option<Timestamp> {
        let offset = self.samples().lower_bound()?;
        let server = self.local_micros(moment).checked_add_signed(offset)?;
        Some(Timestamp::from_micros(server))
    }

    /// The shortest round trip of all replies. Zero before the first one.
    ///
    /// It tells a far server from a slow one: the replies of an overloaded server take longer, but the shortest round
    /// trip stays. A link that becomes longer is noticed when the connection is replaced.
    pub(in crate::store::redis) fn min_round_trip(&self) -> Duration {
        match self.min_round_trip_us.load(Ordering::Relaxed) {
            u64::MAX => Duration::ZERO,
            round_trip => Duration::from_micros(round_trip),
        }
    }

    /// A local time in microseconds since this value was made.
    fn local_micros(&self, moment: Instant) -> u64 {
        micros(moment.saturating_duration_since(self.start))
    }

    /// Locks the samples.
    fn samples(&self) -> MutexGuard<'_, OffsetSamples> {
        lock(&self.samples)
    }
}

impl OffsetSamples {
    /// The larger bound of the two windows. `None` is less than any sample.
    fn lower_bound(&self) -> Option<i64> {
        self.recent.max(self.older)
    }
}

/// Server time minus local time, in microseconds. Negative only for a server clock near the epoch.
fn offset(server: Timestamp, local: u64) -> i64 {
    let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    signed(server.as_micros()) - signed(local)
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
    fn the_shortest_round_trip_stays_when_the_server_becomes_slow() {
        let clock = ClockOffset::new();
        let start = clock.start;
        let now = Timestamp::from_secs(100);
        assert_eq!(clock.min_round_trip(), Duration::ZERO);

        for round_trip in [MILLI * 30, MILLI * 20, MILLI * 500] {
            clock.record(now, start, start + round_trip);
        }

        assert_eq!(clock.min_round_trip(), MILLI * 20);
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
