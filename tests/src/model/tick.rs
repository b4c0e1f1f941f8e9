//! Now, as one limit sees it.

use super::spec::Spec;

/// The clock in the ticks of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitClock {
    /// The real time.
    pub(super) now_us: u128,
    /// The microseconds in a tick.
    pub(super) grain: u128,
    /// The tick of the real time.
    pub(super) now: u128,
    /// The ticks in a period.
    pub(super) period: u128,
}

/// The time that a limit goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effective {
    /// When the state was last charged; the real time after a repair.
    pub(super) at: u128,
    /// The later of `at` and the real time.
    pub(super) t: u128,
    /// Whether the stored time lay more than one period ahead.
    pub(super) repaired: bool,
}

impl Effective {
    /// Whether the clock stepped back to before the last charge.
    pub(super) fn is_ahead(&self, clock: &LimitClock) -> bool {
        self.at > clock.now
    }
}

impl LimitClock {
    pub(super) fn new(spec: &Spec, percent: u64, now_us: u64) -> Self {
        let grain = spec
            .throttled_grain_us(percent)
            .expect("the model runs on limits that the design accepts");
        let (now_us, grain) = (u128::from(now_us), u128::from(grain));
        Self {
            now_us,
            grain,
            now: now_us / grain,
            period: u128::from(spec.period_us()) / grain,
        }
    }

    /// Turns a tick of another grain into one of this limit's.
    pub(super) fn convert(&self, tick: u128, grain: u128) -> u128 {
        tick * grain / self.grain
    }

    /// Law 8: stored time stands still for up to one period, and further ahead becomes now.
    pub(super) fn effective(&self, at: u128) -> Effective {
        if at > self.now + self.period {
            Effective {
                at: self.now,
                t: self.now,
                repaired: true,
            }
        } else {
            Effective {
                at,
                t: at.max(self.now),
                repaired: false,
            }
        }
    }

    /// The effective time of a limit that has no state.
    pub(super) fn fresh(&self) -> Effective {
        Effective {
            at: self.now,
            t: self.now,
            repaired: false,
        }
    }

    /// The time from now until a tick begins, 0 when it has begun.
    pub(super) fn until(&self, tick: u128) -> u128 {
        (tick * self.grain).saturating_sub(self.now_us)
    }

    /// The first tick after the window that holds a tick.
    pub(super) fn window_end(&self, tick: u128) -> u128 {
        (tick / self.period + 1) * self.period
    }
}
