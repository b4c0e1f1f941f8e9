//! Penalty box: who is denied too often is refused for a while.

use std::time::Duration;

use super::{
    period::{Grain, InvalidLimit, Period},
    state::{State, own_state},
    step::{Ask, Step, Words},
};
use crate::{decision::Mark, time::Timestamp};

const MOST_DENIALS: u64 = 10_000;
/// Growing stops here, far beyond the longest refusal.
const HIGHEST_LEVEL: u8 = 40;
const LONGEST: u64 = 366 * 86_400 * 1_000;

/// Who is denied so often within a time is refused for a while, whatever else is free.
///
/// It stands beside the real limits of a policy, counts what they deny, and speaks only when it
/// refuses.
///
/// ```
/// use ratelimit_core::{PenaltyBox, Policy};
/// use std::time::Duration;
///
/// let minute = Duration::from_secs(60);
/// let login = Policy::parse("login", "5/min")?
///     .and(PenaltyBox::after(10, 5 * minute, 15 * minute)?.growing())?;
/// assert_eq!(login, Policy::parse("login", "5/min; penalty_box 10/5min for 15min growing")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PenaltyBox {
    denials: u64,
    pub(crate) period: Period,
    /// How long the first refusal is, in ticks.
    refusal: u64,
    grows: bool,
}

impl PenaltyBox {
    /// Refuses for `refused_for` after `denials` within `within`.
    ///
    /// # Errors
    ///
    /// When `denials` is not 1 to 10,000, or a time is not whole milliseconds up to 366 days.
    pub const fn after(
        denials: u64,
        within: Duration,
        refused_for: Duration,
    ) -> Result<PenaltyBox, InvalidLimit> {
        if denials == 0 {
            return Err(InvalidLimit::Zero);
        }
        if denials > MOST_DENIALS {
            return Err(InvalidLimit::TooManyDenials { denials });
        }
        let (Some(ticks), Some(refusal)) = (whole_millis(within), whole_millis(refused_for)) else {
            return Err(InvalidLimit::Penalty {
                within,
                refused_for,
            });
        };
        let grain = Grain::Millisecond;
        Ok(PenaltyBox {
            denials,
            period: Period { ticks, grain },
            refusal,
            grows: false,
        })
    }

    /// Each refusal is twice as long as the one before, until a key behaves for one period.
    #[must_use]
    pub const fn growing(self) -> PenaltyBox {
        PenaltyBox {
            grows: true,
            ..self
        }
    }

    /// Whether each refusal is longer than the one before.
    pub const fn is_growing(&self) -> bool {
        self.grows
    }

    /// How many denials are one too many.
    pub const fn denials(&self) -> u64 {
        self.denials
    }

    /// Within which time.
    pub const fn period(&self) -> Duration {
        self.period.duration()
    }

    /// How long the first refusal is.
    pub const fn refused_for(&self) -> Duration {
        Duration::from_millis(self.refusal)
    }

    /// What the script needs to know of refusals, in one number.
    #[cfg(feature = "redis")]
    pub(crate) const fn rate(&self) -> u64 {
        2 * self.refusal + self.grows as u64
    }

    /// How many ticks the refusal of that level lasts.
    fn refusal(&self, level: u8) -> u64 {
        if !self.grows {
            return self.refusal;
        }
        let doublings = level.clamp(1, HIGHEST_LEVEL) - 1;
        let grown = u128::from(self.refusal) << doublings;
        u64::try_from(grown).unwrap_or(LONGEST).min(LONGEST)
    }
}

const fn whole_millis(span: Duration) -> Option<u64> {
    let millis = span.as_millis();
    if millis == 0 || millis > LONGEST as u128 || !span.subsec_nanos().is_multiple_of(1_000_000) {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, reason = "at most LONGEST")]
    Some(millis as u64)
}

/// What a penalty box remembers; times in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct Denials {
    first: u64,
    until: u64,
    count: u16,
    level: u8,
}

/// The denials that count at the present moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rolled {
    at: u64,
    stored: Denials,
    repaired: bool,
}

impl Rolled {
    const fn is_boxed(self) -> bool {
        self.at < self.stored.until
    }
}

impl Step for PenaltyBox {
    type State = Denials;
    type Rolled = Rolled;

    fn limit(&self) -> u64 {
        self.denials
    }

    fn roll(&self, stored: Option<&Denials>, now: Timestamp, _ask: Ask) -> Rolled {
        let at = self.period.tick(now);
        let mut state = stored.copied().unwrap_or(Denials {
            count: 0,
            first: at,
            until: 0,
            level: 0,
        });
        let latest = at + self.refusal(state.level);
        let repaired = state.first > at + self.period.ticks || state.until > latest;
        if state.first > at + self.period.ticks {
            state.first = at;
        }
        state.until = { state.until }.min(latest);
        if state.first + self.period.ticks <= at {
            (state.count, state.first) = (0, at);
        }
        if at >= state.until && state.until + self.period.ticks <= at {
            (state.level, state.until) = (0, 0);
        }
        Rolled {
            at,
            stored: state,
            repaired,
        }
    }

    fn read(&self, [at, count_and_level, first, until]: Words) -> Option<Rolled> {
        let count = u16::try_from(count_and_level / 64).ok()?;
        let level = u8::try_from(count_and_level % 64).ok()?;
        let is_possible = u64::from(count) <= MOST_DENIALS && level <= HIGHEST_LEVEL;
        is_possible.then_some(Rolled {
            at,
            stored: Denials {
                first,
                until,
                count,
                level,
            },
            repaired: false,
        })
    }

    /// Each hit is decided by itself.
    fn charged(&self, rolled: Rolled, _units: u64) -> Rolled {
        rolled
    }

    fn is_possible(&self, _ask: Ask) -> bool {
        true
    }

    fn fits(&self, rolled: Rolled, _ask: Ask) -> bool {
        !rolled.is_boxed()
    }

    fn retry_after(&self, rolled: Rolled, _ask: Ask, now: Timestamp) -> Duration {
        self.period.until(rolled.stored.until, now)
    }

    fn remaining(&self, rolled: Rolled, _charged: u64) -> u64 {
        if rolled.is_boxed() {
            0
        } else {
            self.denials.saturating_sub(rolled.stored.count.into())
        }
    }

    fn reset_after(&self, rolled: Rolled, _charged: u64, now: Timestamp) -> Duration {
        let Denials {
            count,
            first,
            until,
            ..
        } = rolled.stored;
        if rolled.is_boxed() {
            self.period.until(until, now)
        } else if count > 0 {
            self.period.until(first + self.period.ticks, now)
        } else {
            Duration::ZERO
        }
    }

    fn need(&self, rolled: Rolled, _charged: u64, now: Timestamp) -> Option<Duration> {
        let Denials {
            count,
            first,
            until,
            level,
        } = rolled.stored;
        let period = self.period.ticks;
        let counted = if count > 0 { first + period } else { 0 };
        let boxed = if level > 0 { until + period } else { 0 };
        Some(self.period.until(counted.max(boxed), now))
    }

    fn was_repaired(rolled: Rolled) -> bool {
        rolled.repaired
    }

    fn store(&self, slot: &mut Option<State>, rolled: Rolled, _charged: u64) {
        *slot = Some(State::PenaltyBox(rolled.stored));
    }

    fn counts_denied(&self, rolled: Rolled) -> bool {
        !rolled.is_boxed()
    }

    fn count_denied(&self, slot: &mut Option<State>, rolled: Rolled, _ask: Ask) -> Rolled {
        let mut state = rolled.stored;
        if state.count == 0 {
            state.first = rolled.at;
        }
        state.count += 1;
        if u64::from(state.count) >= self.denials {
            state.level = (state.level + 1).min(HIGHEST_LEVEL);
            state.until = rolled.at + self.refusal(state.level);
            state.count = 0;
        }
        *slot = Some(State::PenaltyBox(state));
        Rolled {
            stored: state,
            ..rolled
        }
    }

    fn mark(&self, _rolled: Rolled, _charged: u64, _now: Timestamp) -> Mark {
        Mark::NONE
    }

    /// Nobody gets denials back.
    fn has_units(&self) -> bool {
        false
    }

    fn is_silent(&self) -> bool {
        true
    }

    own_state!(PenaltyBox(Denials));
}
