//! Penalty box: blocks a key after too many denials.

use std::time::Duration;

use crate::algorithm::{
    State,
    period::{Grain, InvalidLimit, Period},
    step::{Demand, Step, WireState},
};
use crate::time::Timestamp;

/// The most denials that a box counts to; the stored count has 16 bits.
const MAX_DENIALS: u64 = 10_000;
/// The block length stops doubling at this level, far beyond the longest block. The level also has
/// to stay below 64, because a script returns `64 x count + level` as one number.
const MAX_LEVEL: u8 = 40;
/// The longest period and the longest block: 366 days, in milliseconds.
const MAX_MILLIS: u64 = 366 * 86_400 * 1_000;

/// Blocks a key for a while after `denials` denied hits within `period`, whatever other limits have
/// left.
///
/// - It counts the denials of the other limits of its policy, so a policy needs at least one other
///   limit.
/// - The denial that completes the count starts the block, and reports its length as `retry_after`.
/// - Denials during a block are neither counted nor written.
/// - [`doubling`](PenaltyBox::doubling) doubles each block, up to 366 days. After one `period`
///   without a block the next one has the first length again.
/// - Its numbers appear in a decision only while it blocks.
///
/// `fixed_window 1/min; penalty_box 2/min for 10min`:
///
/// | at | decision | reported limit |
/// |---|---|---|
/// | 0:00 | allowed | fixed window |
/// | 0:01 | denied, retry after 59 s | fixed window |
/// | 0:02 | denied, retry after 10 min | penalty box |
/// | 1:00 | denied, retry after 9 min 2 s | penalty box |
/// | 10:02 | allowed | fixed window |
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
///
/// The page is `docs/algorithms/penalty_box.md`, the Lua twin `lua/penalty_box.lua`.
#[doc(alias = "ban")]
#[doc(alias = "block")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias("cooldown", "fail2ban"))]
pub struct PenaltyBox {
    denials: u64,
    /// The span in which denials count, in milliseconds.
    pub(crate) period: Period,
    /// The length of the first block, in milliseconds.
    refusal: u64,
    /// Whether each block is twice as long as the one before.
    grows: bool,
}

impl PenaltyBox {
    /// Blocks a key for `refused_for` after `denials` denials within `within`.
    ///
    /// # Errors
    ///
    /// - [`InvalidLimit::Zero`] when `denials` is 0
    /// - [`InvalidLimit::TooManyDenials`] when `denials` is above 10,000
    /// - [`InvalidLimit::Penalty`] when a time is not a whole number of milliseconds from 1 ms to
    ///   366 days
    pub const fn new(
        denials: u64,
        within: Duration,
        refused_for: Duration,
    ) -> Result<PenaltyBox, InvalidLimit> {
        if denials == 0 {
            return Err(InvalidLimit::Zero);
        }
        if denials > MAX_DENIALS {
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

    /// Doubles each block, until the key has had one period without a block.
    #[doc(alias = "growing")]
    #[must_use]
    pub const fn doubling(self) -> PenaltyBox {
        PenaltyBox {
            grows: true,
            ..self
        }
    }

    /// Whether each block is twice as long as the one before.
    pub const fn is_doubling(&self) -> bool {
        self.grows
    }

    /// The number of denials that starts a block.
    pub const fn denials(&self) -> u64 {
        self.denials
    }

    /// The span in which denials count.
    pub const fn period(&self) -> Duration {
        self.period.duration()
    }

    /// The length of the first block.
    pub const fn block_duration(&self) -> Duration {
        Duration::from_millis(self.refusal)
    }

    /// The `rate` argument of the script: twice the first block in milliseconds, plus 1 if blocks
    /// double.
    #[cfg(feature = "redis")]
    pub(crate) const fn rate(&self) -> u64 {
        2 * self.refusal + self.grows as u64
    }

    /// The length of the block of that level in milliseconds; level 1 is the first block.
    fn block_millis(&self, level: u8) -> u64 {
        if !self.grows {
            return self.refusal;
        }
        // A block is below 2^35 ms, and 39 doublings bring it to 2^74, which 128 bits hold.
        let doublings = level.clamp(1, MAX_LEVEL) - 1;
        let grown = u128::from(self.refusal) << doublings;
        u64::try_from(grown).unwrap_or(MAX_MILLIS).min(MAX_MILLIS)
    }
}

/// The milliseconds of `span`, if it is a whole number of them from 1 ms to 366 days.
const fn whole_millis(span: Duration) -> Option<u64> {
    let millis = span.as_millis();
    if millis == 0 || millis > MAX_MILLIS as u128 || !span.subsec_nanos().is_multiple_of(1_000_000)
    {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX_MILLIS")]
    Some(millis as u64)
}

/// The stored denials and the block of one key; times are ticks of 1 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed)]
pub(crate) struct PenaltyState {
    /// The tick of the first denial that counts.
    first: u64,
    /// The end of the last block; 0 if there was none.
    until: u64,
    /// The denials since `first`, below the number that starts a block.
    count: u16,
    /// The number of consecutive blocks, which selects the length of a doubling block.
    level: u8,
}

/// The state at the present moment, without expired denials and levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PenaltySnapshot {
    /// The present tick. The clock rule moves `first` and `until` instead.
    at: u64,
    /// The state as it would be written.
    stored: PenaltyState,
    /// Whether a stored time lay too far ahead.
    repaired: bool,
}

impl PenaltySnapshot {
    /// Whether the key is blocked now.
    const fn is_blocking(self) -> bool {
        self.at < self.stored.until
    }
}

impl Step for PenaltyBox {
    type Snapshot = PenaltySnapshot;

    /// The number of denials that starts a block. It is the `limit` of a decision in which the box
    /// is reported.
    fn limit(&self) -> u64 {
        self.denials
    }

    /// Repairs times that lie too far ahead, then drops denials and levels that are older than one
    /// period.
    ///
    /// No key stays blocked for longer than one block from now, whatever the clock did.
    fn advance(&self, stored: Option<&State>, now: Timestamp, _demand: Demand) -> PenaltySnapshot {
        let at = self.period.tick(now);
        let mut state = match stored {
            Some(State::PenaltyBox(state)) => *state,
            _ => PenaltyState {
                count: 0,
                first: at,
                until: 0,
                level: 0,
            },
        };
        // An end is at most one block ahead of the write. A later one shows that the clock stepped
        // back, or that the block was shortened.
        let latest = at + self.block_millis(state.level);
        let repaired = state.first > at + self.period.ticks || state.until > latest;
        if state.first > at + self.period.ticks {
            state.first = at;
        }
        state.until = { state.until }.min(latest);
        if state.first + self.period.ticks <= at {
            (state.count, state.first) = (0, at);
        }
        // The level outlives its block by one period: a key that offends again in it gets a longer
        // block.
        if at >= state.until && state.until + self.period.ticks <= at {
            (state.level, state.until) = (0, 0);
        }
        PenaltySnapshot {
            at,
            stored: state,
            repaired,
        }
    }

    fn is_repaired(snapshot: PenaltySnapshot) -> bool {
        snapshot.repaired
    }

    /// A box denies every hit during a block, and none otherwise.
    fn fits(&self, snapshot: PenaltySnapshot, _demand: Demand) -> bool {
        !snapshot.is_blocking()
    }

    fn retry_after(&self, snapshot: PenaltySnapshot, _demand: Demand, now: Timestamp) -> Duration {
        self.period.until(snapshot.stored.until, now)
    }

    /// A hit that passes changes nothing.
    fn charge(&self, snapshot: PenaltySnapshot, _units: u64) -> PenaltySnapshot {
        snapshot
    }

    /// The denials until the next block; 0 during a block.
    fn remaining(&self, snapshot: PenaltySnapshot) -> u64 {
        if snapshot.is_blocking() {
            0
        } else {
            self.denials.saturating_sub(snapshot.stored.count.into())
        }
    }

    fn reset_after(&self, snapshot: PenaltySnapshot, now: Timestamp) -> Duration {
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

    /// The state is needed for one period after the first denial, and for one period after the
    /// block, in which the level still counts.
    fn ttl(&self, snapshot: PenaltySnapshot, now: Timestamp) -> Duration {
        let PenaltyState {
            count,
            first,
            until,
            level,
        } = snapshot.stored;
        let period = self.period.ticks;
        let counted = if count > 0 { first + period } else { 0 };
        let boxed = if level > 0 { until + period } else { 0 };
        self.period.until(counted.max(boxed), now)
    }

    fn write(&self, slot: &mut Option<State>, snapshot: PenaltySnapshot) {
        *slot = Some(State::PenaltyBox(snapshot.stored));
    }

    /// Counts a denial. The one that completes the count starts the block and resets the count.
    ///
    /// Denials during a block do not count: they would prolong it for a client that only retries.
    fn record_denial(
        &self,
        slot: &mut Option<State>,
        snapshot: PenaltySnapshot,
        _demand: Demand,
    ) -> Option<PenaltySnapshot> {
        if snapshot.is_blocking() {
            return None;
        }
        let mut state = snapshot.stored;
        // The period begins with the first denial that counts, not at a time of the clock.
        if state.count == 0 {
            state.first = snapshot.at;
        }
        state.count += 1;
        if u64::from(state.count) >= self.denials {
            state.level = (state.level + 1).min(MAX_LEVEL);
            state.until = snapshot.at + self.block_millis(state.level);
            state.count = 0;
        }
        let counted = PenaltySnapshot {
            stored: state,
            ..snapshot
        };
        self.write(slot, counted);
        Some(counted)
    }

    /// Reads `at`, `64 x count + level`, `first` and `until`.
    fn decode(&self, [at, count_and_level, first, until]: WireState) -> Option<PenaltySnapshot> {
        let count = u16::try_from(count_and_level / 64).ok()?;
        let level = u8::try_from(count_and_level % 64).ok()?;
        let is_possible = u64::from(count) <= MAX_DENIALS && level <= MAX_LEVEL;
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
}
