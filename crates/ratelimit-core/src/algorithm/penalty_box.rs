//! Penalty box: who is denied too often is refused for a while.

use std::time::Duration;

use crate::algorithm::{
    period::{Grain, InvalidLimit, Period},
    state::{State, own_state},
    step::{Demand, Step, WireState},
};
use crate::{decision::RefundMark, time::Timestamp};

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
///     .with_limit(PenaltyBox::new(10, 5 * minute, 15 * minute)?.doubling())?;
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
    pub const fn new(
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
    pub const fn doubling(self) -> PenaltyBox {
        PenaltyBox {
            grows: true,
            ..self
        }
    }

    /// Whether each refusal is longer than the one before.
    pub const fn is_doubling(&self) -> bool {
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
    pub const fn block_duration(&self) -> Duration {
        Duration::from_millis(self.refusal)
    }

    /// What the script needs to know of refusals, in one number.
    #[cfg(feature = "redis")]
    pub(crate) const fn rate(&self) -> u64 {
        2 * self.refusal + self.grows as u64
    }

    /// How many ticks the refusal of that level lasts.
    fn block_millis(&self, level: u8) -> u64 {
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
pub(crate) struct PenaltyState {
    first: u64,
    until: u64,
    count: u16,
    level: u8,
}

/// The denials that count at the present moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PenaltySnapshot {
    at: u64,
    stored: PenaltyState,
    repaired: bool,
}

impl PenaltySnapshot {
    const fn is_blocking(self) -> bool {
        self.at < self.stored.until
    }
}

impl Step for PenaltyBox {
    type State = PenaltyState;
    type Snapshot = PenaltySnapshot;

    fn limit(&self) -> u64 {
        self.denials
    }

    fn advance(
        &self,
        stored: Option<&PenaltyState>,
        now: Timestamp,
        _ask: Demand,
    ) -> PenaltySnapshot {
        let at = self.period.tick(now);
        let mut state = stored.copied().unwrap_or(PenaltyState {
            count: 0,
            first: at,
            until: 0,
            level: 0,
        });
        let latest = at + self.block_millis(state.level);
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
        PenaltySnapshot {
            at,
            stored: state,
            repaired,
        }
    }

    fn decode_wire(
        &self,
        [at, count_and_level, first, until]: WireState,
    ) -> Option<PenaltySnapshot> {
        let count = u16::try_from(count_and_level / 64).ok()?;
        let level = u8::try_from(count_and_level % 64).ok()?;
        let is_possible = u64::from(count) <= MOST_DENIALS && level <= HIGHEST_LEVEL;
        is_possible.then_some(PenaltySnapshot {
            at,
            stored: PenaltyState {
                first,
                until,
                count,
                level,
            },
            repaired: false,
        })
    }

    /// Each hit is decided by itself.
    fn with_charge(&self, snapshot: PenaltySnapshot, _units: u64) -> PenaltySnapshot {
        snapshot
    }

    fn can_ever_fit(&self, _ask: Demand) -> bool {
        true
    }

    fn fits(&self, snapshot: PenaltySnapshot, _ask: Demand) -> bool {
        !snapshot.is_blocking()
    }

    fn retry_after(&self, snapshot: PenaltySnapshot, _ask: Demand, now: Timestamp) -> Duration {
        self.period.until(snapshot.stored.until, now)
    }

    fn remaining(&self, snapshot: PenaltySnapshot, _charged: u64) -> u64 {
        if snapshot.is_blocking() {
            0
        } else {
            self.denials.saturating_sub(snapshot.stored.count.into())
        }
    }

    fn reset_after(&self, snapshot: PenaltySnapshot, _charged: u64, now: Timestamp) -> Duration {
        let PenaltyState {
            count,
            first,
            until,
            ..
        } = snapshot.stored;
        if snapshot.is_blocking() {
            self.period.until(until, now)
        } else if count > 0 {
            self.period.until(first + self.period.ticks, now)
        } else {
            Duration::ZERO
        }
    }

    fn ttl(&self, snapshot: PenaltySnapshot, _charged: u64, now: Timestamp) -> Option<Duration> {
        let PenaltyState {
            count,
            first,
            until,
            level,
        } = snapshot.stored;
        let period = self.period.ticks;
        let counted = if count > 0 { first + period } else { 0 };
        let boxed = if level > 0 { until + period } else { 0 };
        Some(self.period.until(counted.max(boxed), now))
    }

    fn clock_was_repaired(snapshot: PenaltySnapshot) -> bool {
        snapshot.repaired
    }

    fn write(&self, slot: &mut Option<State>, snapshot: PenaltySnapshot, _charged: u64) {
        *slot = Some(State::PenaltyBox(snapshot.stored));
    }

    fn records_denials(&self, snapshot: PenaltySnapshot) -> bool {
        !snapshot.is_blocking()
    }

    fn record_denial(
        &self,
        slot: &mut Option<State>,
        snapshot: PenaltySnapshot,
        _ask: Demand,
    ) -> PenaltySnapshot {
        let mut state = snapshot.stored;
        if state.count == 0 {
            state.first = snapshot.at;
        }
        state.count += 1;
        if u64::from(state.count) >= self.denials {
            state.level = (state.level + 1).min(HIGHEST_LEVEL);
            state.until = snapshot.at + self.block_millis(state.level);
            state.count = 0;
        }
        *slot = Some(State::PenaltyBox(state));
        PenaltySnapshot {
            stored: state,
            ..snapshot
        }
    }

    fn refund_mark(&self, _rolled: PenaltySnapshot, _charged: u64, _now: Timestamp) -> RefundMark {
        RefundMark::NONE
    }

    /// Nobody gets denials back.
    fn counts_units(&self) -> bool {
        false
    }

    fn reports_only_denials(&self) -> bool {
        true
    }

    own_state!(PenaltyBox(PenaltyState));
}
