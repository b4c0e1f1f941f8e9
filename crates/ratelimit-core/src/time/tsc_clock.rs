//! The system clock, interpolated with the timestamp counter of the processor (TSC).
//!
//! A read of the TSC takes a third of the time of a read of the system clock, and every hit reads
//! the time. The counter is calibrated against the system clock ten times a second and used only
//! while both agree.

use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// Nanoseconds for which a calibration is valid. A change of the system time takes effect after at
/// most this.
const CALIBRATION_INTERVAL: u64 = 100_000_000;
/// Nanoseconds that a calibration may take. A longer one is not trusted: the thread may have been
/// descheduled between its reads, so that count and time do not belong together.
const MAX_CALIBRATION: u64 = 2_000;
/// The counter may drift from the system clock by one nanosecond in this many (244 ppm). A larger
/// difference is an unusable counter, or a system time that was set.
const MAX_DRIFT: u64 = 4_096;

/// Microseconds since the Unix epoch.
#[inline]
pub(super) fn now_micros() -> u64 {
    static CLOCK: OnceLock<TscClock> = OnceLock::new();
    CLOCK.get_or_init(TscClock::new).now() / 1_000
}

/// A clock that reads the counter, and the system clock once in each [`CALIBRATION_INTERVAL`].
///
/// - The two atomics are published together: `offset` is stored before `trusted_from`, which is
///   stored with `Release` and loaded with `Acquire`.
/// - Time never goes back at a calibration, because [`count`](TscClock::count) runs slow on
///   purpose; it does when the system time is set back.
/// - One thread calibrates; all others read the system clock meanwhile instead of waiting.
struct TscClock {
    /// The counter, with its frequency.
    counter: quanta::Clock,
    /// The raw count at the start.
    start: u64,
    /// System time minus count, in nanoseconds, as of the last good calibration.
    offset: AtomicU64,
    /// The count of the last good calibration; `u64::MAX` before the first.
    trusted_from: AtomicU64,
    /// The last calibration, good or not, with which the next one is compared.
    last: Mutex<Calibration>,
}

/// A count and the system time that was read with it, both in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Calibration {
    count: u64,
    wall: u64,
    /// Whether it took at most [`MAX_CALIBRATION`].
    is_exact: bool,
}

impl Calibration {
    /// The number that turns a count into the time. It wraps, because the count may exceed the
    /// time.
    const fn offset(self) -> u64 {
        self.wall.wrapping_sub(self.count)
    }

    /// Before the first calibration. The next one is due at any count.
    const NONE: Calibration = Calibration {
        count: u64::MAX,
        wall: 0,
        is_exact: false,
    };

    /// Whether both are exact, and count and system time advanced alike since `earlier`, within the
    /// drift and the length of a calibration.
    const fn agrees_with(self, earlier: Calibration) -> bool {
        let counted = self.count.saturating_sub(earlier.count);
        let drifted = self.offset().wrapping_sub(earlier.offset());
        // `count` runs slow by twice the drift, so that much difference is expected.
        let wanted = counted / MAX_DRIFT * 2;
        let is_alike = drifted.abs_diff(wanted) <= counted / MAX_DRIFT + MAX_CALIBRATION;
        self.is_exact && earlier.is_exact && is_alike
    }
}

impl TscClock {
    /// An uncalibrated clock; its first reads are of the system clock.
    fn new() -> TscClock {
        let counter = quanta::Clock::new();
        TscClock {
            start: counter.raw(),
            counter,
            offset: AtomicU64::new(0),
            trusted_from: AtomicU64::new(u64::MAX),
            last: Mutex::new(Calibration::NONE),
        }
    }

    /// Nanoseconds since the epoch. Fast path: one counter read and two loads, a third of the time of the
    /// system clock. A check reads the clock once, and that read is a fifth of its instructions.
    #[inline]
    fn now(&self) -> u64 {
        let count = self.count();
        if self.is_calibrated(count) {
            return count.wrapping_add(self.offset.load(Ordering::Relaxed));
        }
        self.calibrate(count)
    }

    /// Whether the last good calibration is valid at this count. A count before it is not: after a
    /// suspend the counter may begin at zero.
    #[inline]
    fn is_calibrated(&self, count: u64) -> bool {
        let from = self.trusted_from.load(Ordering::Acquire);
        count >= from && count - from < CALIBRATION_INTERVAL
    }

    /// Nanoseconds since the start, slow by 1 in 2,048. The time falls behind by about 50 us until
    /// the next calibration, which then moves it forward and never back.
    #[inline]
    fn count(&self) -> u64 {
        let nanos = self.counter.delta_as_nanos(self.start, self.counter.raw());
        nanos - nanos / (MAX_DRIFT / 2)
    }

    /// Reads the system clock. If a calibration is due, it trusts the counter for an interval if both
    /// agree since the last one.
    #[cold]
    fn calibrate(&self, before: u64) -> u64 {
        let Ok(mut last) = self.last.try_lock() else {
            return wall_nanos();
        };
        let wall = wall_nanos();
        if before.abs_diff(last.count) < CALIBRATION_INTERVAL {
            return wall;
        }
        // The counter is read on both sides of the system clock: the distance bounds the error of
        // the pair.
        let count = self.count();
        let latest = Calibration {
            count,
            wall,
            is_exact: count.abs_diff(before) <= MAX_CALIBRATION,
        };
        if latest.agrees_with(*last) {
            self.offset.store(latest.offset(), Ordering::Relaxed);
            self.trusted_from.store(count, Ordering::Release);
        }
        // A long calibration is tried again at once, unless none was ever short enough.
        if latest.is_exact || !last.is_exact {
            *last = latest;
        }
        wall
    }
}

/// The system time in nanoseconds since the epoch; 0 before it.
fn wall_nanos() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A calibration one second later: the counter errs by `ppm`, and the system time was set by `set`.
    fn later(look: Calibration, ppm: i64, set: i64) -> Calibration {
        let counted = (SECOND - SECOND / (MAX_DRIFT / 2)).saturating_add_signed(ppm * 1_000);
        Calibration {
            count: look.count + counted,
            wall: (look.wall + SECOND).saturating_add_signed(set),
            is_exact: true,
        }
    }

    #[test]
    fn it_is_never_a_millisecond_behind_the_clock_nor_ahead_of_it_and_never_goes_back() {
        let clock = TscClock::new();
        let (start, mut last, mut trusted) = (wall_nanos(), 0, 0_u64);

        while last < start + SECOND / 2 {
            let before = wall_nanos();
            let now = clock.now();
            let after = wall_nanos();

            assert!(now + 1_000_000 > before, "{now} is behind {before}");
            assert!(now <= after, "{now} is ahead of {after}");
            assert!(now >= last, "{now} came after {last}");
            trusted += u64::from(clock.is_calibrated(clock.count()));
            last = now;
        }
        // Some machines have no usable counter, so the number is not asserted.
        println!("the counter told the time {trusted} times");
    }

    #[test]
    fn a_counter_that_begins_anew_is_not_believed() {
        let clock = TscClock::new();
        let count = clock.count();
        clock.trusted_from.store(count, Ordering::Relaxed);
        assert!(clock.is_calibrated(count + CALIBRATION_INTERVAL / 2));

        assert!(!clock.is_calibrated(count + CALIBRATION_INTERVAL));
        clock.trusted_from.store(count + SECOND, Ordering::Relaxed);
        assert!(!clock.is_calibrated(count));
        *clock.last.lock().unwrap() = Calibration {
            count: count + 3_600 * SECOND,
            wall: wall_nanos(),
            is_exact: true,
        };
        assert!(clock.now().abs_diff(wall_nanos()) < SECOND);
    }

    #[test]
    fn a_counter_that_errs_and_a_clock_that_was_set_are_not_believed() {
        let first = Calibration {
            count: 5 * SECOND,
            wall: 1_700_000_000 * SECOND,
            is_exact: true,
        };

        for ppm in [-200, -20, 0, 20, 200] {
            assert!(later(first, ppm, 0).agrees_with(first), "{ppm} ppm");
        }
        for ppm in [-500_000, -300, 300, 500_000] {
            assert!(!later(first, ppm, 0).agrees_with(first), "{ppm} ppm");
        }
        let long = Calibration {
            is_exact: false,
            ..later(first, 0, 0)
        };
        assert!(!long.agrees_with(first) && !later(long, 0, 0).agrees_with(long));
        for millis in [-3_600_000, -1, 1, 3_600_000] {
            let set = later(first, 0, millis * 1_000_000);
            assert!(!set.agrees_with(first), "set by {millis} ms");
            assert!(later(set, 0, 0).agrees_with(set));
        }
    }
}
