//! The machine's clock, told by the processor's counter between two looks at it.

use std::{
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

/// So long is the counter believed; a clock that was set shows after that.
const CALIBRATION_INTERVAL: u64 = 100_000_000;
/// A look that took longer says nothing: the thread may have been put aside in the middle of it.
const MAX_CALIBRATION: u64 = 2_000;
/// One in so many nanoseconds may the counter be wrong by; a larger error is a counter that cannot be
/// used, or a clock that was set.
const MAX_DRIFT: u64 = 4_096;

/// Microseconds since the Unix epoch.
#[inline]
pub(super) fn now_micros() -> u64 {
    static CLOCK: OnceLock<TscClock> = OnceLock::new();
    CLOCK.get_or_init(TscClock::new).now() / 1_000
}

/// A clock that is looked at ten times a second, and counts in between.
///
/// Reading the counter takes a third of the time that reading the clock does.
struct TscClock {
    counter: quanta::Clock,
    start: u64,
    /// What makes a count the time, for a while from `trusted_from` on.
    offset: AtomicU64,
    trusted_from: AtomicU64,
    last: Mutex<Option<Calibration>>,
}

/// What the clock showed at a count, both in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Calibration {
    count: u64,
    wall: u64,
}

impl Calibration {
    const fn offset(self) -> u64 {
        self.wall.wrapping_sub(self.count)
    }

    /// Whether count and clock went on alike since an earlier look.
    const fn agrees_with(self, earlier: Calibration) -> bool {
        let counted = self.count.saturating_sub(earlier.count);
        let drifted = self.offset().wrapping_sub(earlier.offset());
        // The count is slow by twice as much on purpose.
        let wanted = counted / MAX_DRIFT * 2;
        drifted.abs_diff(wanted) <= counted / MAX_DRIFT + MAX_CALIBRATION
    }
}

impl TscClock {
    fn new() -> TscClock {
        let counter = quanta::Clock::new();
        TscClock {
            start: counter.raw(),
            counter,
            offset: AtomicU64::new(0),
            trusted_from: AtomicU64::new(u64::MAX),
            last: Mutex::new(None),
        }
    }

    /// Nanoseconds since the epoch.
    #[inline]
    fn now(&self) -> u64 {
        let count = self.count();
        if self.is_calibrated(count) {
            return count.wrapping_add(self.offset.load(Ordering::Relaxed));
        }
        self.calibrate()
    }

    /// Whether a count lies in the time for which the counter is believed, and not before it: a machine
    /// that was asleep may begin to count anew.
    #[inline]
    fn is_calibrated(&self, count: u64) -> bool {
        let from = self.trusted_from.load(Ordering::Acquire);
        count >= from && count - from < CALIBRATION_INTERVAL
    }

    /// Nanoseconds since the start, somewhat fewer than there are: so the time that is told falls behind
    /// until the next look, and that one never sets it back.
    #[inline]
    fn count(&self) -> u64 {
        let nanos = self.counter.delta_as_nanos(self.start, self.counter.raw());
        nanos - nanos / (MAX_DRIFT / 2)
    }

    /// Reads the clock, and believes the counter for a while if both went on alike since the last look.
    #[cold]
    fn calibrate(&self) -> u64 {
        let Ok(mut last) = self.last.try_lock() else {
            return wall_nanos();
        };
        let before = self.count();
        let wall = wall_nanos();
        let count = self.count();
        let is_due = last.is_none_or(|last| count.abs_diff(last.count) >= CALIBRATION_INTERVAL);
        if is_due && count.abs_diff(before) <= MAX_CALIBRATION {
            let latest = Calibration { count, wall };
            if last.is_some_and(|last| latest.agrees_with(last)) {
                self.offset.store(latest.offset(), Ordering::Relaxed);
                self.trusted_from.store(count, Ordering::Release);
            }
            *last = Some(latest);
        }
        wall
    }
}

fn wall_nanos() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.map_or(0, |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A second later by a count that errs by `ppm` besides being slow, and a clock that was set by `set`.
    fn later(look: Calibration, ppm: i64, set: i64) -> Calibration {
        let counted = (SECOND - SECOND / (MAX_DRIFT / 2)).saturating_add_signed(ppm * 1_000);
        Calibration {
            count: look.count + counted,
            wall: (look.wall + SECOND).saturating_add_signed(set),
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
        // Not all machines have a counter that can be believed.
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
        *clock.last.lock().unwrap() = Some(Calibration {
            count: count + 3_600 * SECOND,
            wall: wall_nanos(),
        });
        assert!(clock.now().abs_diff(wall_nanos()) < SECOND);
    }

    #[test]
    fn a_counter_that_errs_and_a_clock_that_was_set_are_not_believed() {
        let first = Calibration {
            count: 5 * SECOND,
            wall: 1_700_000_000 * SECOND,
        };

        for ppm in [-200, -20, 0, 20, 200] {
            assert!(later(first, ppm, 0).agrees_with(first), "{ppm} ppm");
        }
        for ppm in [-500_000, -300, 300, 500_000] {
            assert!(!later(first, ppm, 0).agrees_with(first), "{ppm} ppm");
        }
        for millis in [-3_600_000, -1, 1, 3_600_000] {
            let set = later(first, 0, millis * 1_000_000);
            assert!(!set.agrees_with(first), "set by {millis} ms");
            assert!(later(set, 0, 0).agrees_with(set));
        }
    }
}
