//! Prefetching: the request for units beyond a hit, the grant, and how many units a store gives.
//!
//! Lua twin: `lua/prefetch.lua` computes the same numbers in the same order.

use std::{error::Error, fmt, time::Duration};

use smallvec::SmallVec;

use crate::{
    algorithm::WireState,
    decision::{Charged, Decision},
    limit::Limit,
    policy::EffectiveLimit,
    time::{MAX_EXACT, Timestamp, micros},
};

/// The most units of one request, 2^24. Products with it stay below 2^53.
pub(crate) const MAX_WANT: u64 = 1 << 24;
/// Shares above this are scaled down before they are multiplied with a request.
const MAX_FACTOR: u64 = 1 << 26;
/// The longest horizon: 1 s.
const MAX_HORIZON: u64 = 1_000_000;
/// The fewest units that are given; fewer are not worth a call.
const MIN_GRANT: u64 = 4;
/// The factor by which a scarce budget is divided less carefully.
const SCARCE_FACTOR: u64 = 4;

/// The units that a [`Store::prefetch`](crate::store::Store::prefetch) call asks for beyond its hit.
///
/// A store gives at most the share of each limit, and less when less than the share is left.
///
/// ```
/// use ratelimit_core::store::PrefetchRequest;
/// use std::time::Duration;
///
/// let request = PrefetchRequest::new(500, 5).horizon(Duration::from_millis(50));
/// assert_eq!((request.want(), request.share_percent()), (500, 5));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchRequest {
    want: u64,
    share_percent: u32,
    horizon: u64,
    min_life: u64,
    scarcity: u64,
}

impl PrefetchRequest {
    /// A request for `want` units, at most `share_percent` of each limit. More than 2^24 units are cut to as many.
    pub fn new(want: u64, share_percent: u32) -> PrefetchRequest {
        PrefetchRequest {
            want: want.min(MAX_WANT),
            share_percent: share_percent.min(100),
            horizon: MAX_HORIZON,
            min_life: 0,
            scarcity: 1,
        }
    }

    /// Sets the time in which the units are expected to be spent, from 1 us to 1 s; 1 s unless set.
    ///
    /// A bucket that is nearly full gives back what a slice holds; the store adds units until the slice outlives the
    /// horizon. A window that ends earlier gives a part.
    #[must_use]
    pub fn horizon(self, horizon: Duration) -> PrefetchRequest {
        self.horizon_micros(micros(horizon))
    }

    /// Sets the time that the units must live to be worth a call; 0 unless set. Two round trips are a good value.
    #[must_use]
    pub fn min_life(self, min_life: Duration) -> PrefetchRequest {
        self.min_life_micros(micros(min_life))
    }

    /// Sets whether the budget has been nearly empty for a while. The store then gives up to four times as much of
    /// the rest, because the caller asks less often.
    #[must_use]
    pub const fn scarce(mut self, is_scarce: bool) -> PrefetchRequest {
        self.scarcity = if is_scarce { SCARCE_FACTOR } else { 1 };
        self
    }

    /// The units that are asked for.
    pub const fn want(&self) -> u64 {
        self.want
    }

    /// The share of each limit that may be given, in percent.
    pub const fn share_percent(&self) -> u32 {
        self.share_percent
    }

    /// Returns the request with the time that the units should last, in microseconds.
    pub(crate) fn horizon_micros(mut self, horizon: u64) -> PrefetchRequest {
        self.horizon = horizon.clamp(1, MAX_HORIZON);
        self
    }

    /// Returns the request with the shortest time that units must live to be of use, in microseconds.
    pub(crate) fn min_life_micros(mut self, min_life: u64) -> PrefetchRequest {
        self.min_life = min_life.min(MAX_HORIZON);
        self
    }

    /// The numbers of the message to the scripts: want, scarcity, horizon and shortest life (microseconds).
    #[cfg(feature = "redis")]
    pub(crate) const fn wire_numbers(&self) -> [u64; 4] {
        [self.want, self.scarcity, self.horizon, self.min_life]
    }

    /// The share of a capacity, in units, rounded down.
    pub(crate) fn cap_of(capacity: u64, share_percent: u32) -> u64 {
        let share = u128::from(capacity) * u128::from(share_percent) / 100;
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// The answer of [`Store::prefetch`](crate::store::Store::prefetch): the decision of the hit, and the units that were
/// charged beyond it.
///
/// The limiter spends the units later, each until the limit would have given it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefetchGrant {
    charged: Charged,
    units: u64,
    states: LimitStates,
}

/// The state of each limit before the hit, in the order of the policy.
pub(crate) type LimitStates = SmallVec<[WireState; 1]>;

impl PrefetchGrant {
    /// The answer to a hit with `units` for later. `states` are those of the limits after both.
    pub(crate) const fn new(charged: Charged, units: u64, states: LimitStates) -> PrefetchGrant {
        PrefetchGrant {
            charged,
            units,
            states,
        }
    }

    /// The decision of the hit, as if nothing had been prefetched.
    pub const fn decision(&self) -> &Decision {
        &self.charged.decision
    }

    /// The answer to the hit, with the marks of its charge.
    #[cfg(feature = "tokio")]
    pub(crate) const fn charged(&self) -> &Charged {
        &self.charged
    }

    /// The units that were charged beyond the hit; 0 when the hit was denied.
    pub const fn units(&self) -> u64 {
        self.units
    }

    /// The state of each limit before the hit: the tick, and the numbers that `lua/README.md` lists for its algorithm.
    pub fn states(&self) -> &[[u64; 4]] {
        &self.states
    }
}

/// The numbers of a limit that decide how much it gives; the script gets the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitShare {
    /// The share of the plain limit, in units.
    pub(crate) cap: u64,
    /// Units of headroom that are never prefetched.
    pub(crate) extra: u64,
    /// The debt that a bucket forgives within the horizon, at most the debt of an empty bucket; 0 for windows.
    pub(crate) horizon_debt: u64,
    /// The debt that a bucket forgives within the shortest life; 0 for windows.
    pub(crate) min_debt: u64,
}

impl LimitShare {
    /// The numbers of a limit for a request.
    pub(crate) fn new(effective: &EffectiveLimit, request: &PrefetchRequest) -> LimitShare {
        let limit = &effective.limit;
        let extra = effective.headroom();
        let plain = limit.capacity() - extra;
        let forgiven_in = |span: u64| match limit {
            Limit::TokenBucket(_) | Limit::LeakyBucket(_) => {
                let period = limit.period_ticks();
                let ticks = span / period.grain.micros();
                let empty = limit.capacity() * period.ticks;
                ticks.saturating_mul(limit.per_period()).min(empty)
            }
            _ => 0,
        };
        LimitShare {
            cap: PrefetchRequest::cap_of(plain, request.share_percent),
            extra,
            horizon_debt: forgiven_in(request.horizon),
            min_debt: forgiven_in(request.min_life),
        }
    }

    /// The units that this limit gives at `now`, with `cost` units of the hit charged to `state`.
    ///
    /// A state ahead of the clock gives nothing: the age of its charges would be unknown.
    pub(crate) fn grant(
        &self,
        limit: &Limit,
        state: WireState,
        cost: u64,
        now: Timestamp,
        request: &PrefetchRequest,
    ) -> LimitGrant {
        let period = limit.period_ticks();
        let [at, a, b, _] = state;
        if at != period.tick(now) {
            return LimitGrant::NONE;
        }
        let plain = limit.capacity() - self.extra;
        match limit {
            Limit::TokenBucket(_) | Limit::LeakyBucket(_) => {
                let unit = period.ticks;
                let debt = a + cost * unit;
                let left = (plain * unit).saturating_sub(debt) / unit;
                let top_up = self.horizon_debt.saturating_sub(debt) / unit;
                let want = request.want.max(top_up.min(MAX_WANT));
                LimitGrant {
                    units: self.shrunk(want, left, request),
                    // The first number of units whose last one outlives the shortest life.
                    least: match self.min_debt.checked_sub(debt) {
                        Some(missing) => missing / unit + 1,
                        None => 0,
                    },
                }
            }
            Limit::FixedWindow(_) | Limit::SlidingWindowCounter(_) => {
                let carried = match limit {
                    Limit::SlidingWindowCounter(_) => {
                        (a * (period.ticks - at % period.ticks)).div_ceil(period.ticks) + b
                    }
                    _ => a,
                };
                let left = plain.saturating_sub(carried + cost);
                let life = period.window_end(at).as_micros() - now.as_micros();
                if life <= request.min_life {
                    return LimitGrant::NONE;
                }
                // As many as are spent before the window ends.
                let spendable = if life < request.horizon {
                    request.want * life / request.horizon
                } else {
                    request.want
                };
                LimitGrant {
                    units: self.shrunk(request.want, left, request).min(spendable),
                    least: 0,
                }
            }
            _ => LimitGrant::NONE,
        }
    }

    /// The part of `want` that is given while `left` units remain: all of it while more than the share is left, and
    /// in proportion below.
    fn shrunk(&self, want: u64, left: u64, request: &PrefetchRequest) -> u64 {
        let want = want.min(self.cap);
        let units = want.min(left);
        if self.cap == 0 || left >= self.cap.div_ceil(request.scarcity) {
            return units;
        }
        let scale = self.cap.div_ceil(MAX_FACTOR);
        let (left, cap) = (left / scale, self.cap.div_ceil(scale));
        units.min(request.scarcity * want * left / cap)
    }
}

/// The units that one limit gives, and the fewest that would live long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitGrant {
    units: u64,
    least: u64,
}

impl LimitGrant {
    const NONE: LimitGrant = LimitGrant { units: 0, least: 0 };

    /// The units that all limits give together: the least of them, or none if they are not worth a call.
    pub(crate) fn combine(grants: impl Iterator<Item = LimitGrant>) -> u64 {
        let (units, least) = grants.fold((MAX_EXACT, MIN_GRANT), |(units, least), grant| {
            (units.min(grant.units), least.max(grant.least))
        });
        if units < least || units == MAX_EXACT {
            0
        } else {
            units
        }
    }
}

/// The source of the error of a store or a policy without [`Store::prefetch`](crate::store::Store::prefetch).
#[derive(Debug)]
pub(crate) struct CannotPrefetch;

impl fmt::Display for CannotPrefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this store prefetches nothing for these keys")
    }
}

impl Error for CannotPrefetch {}
