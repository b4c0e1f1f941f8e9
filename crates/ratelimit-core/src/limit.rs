//! One algorithm with its numbers, and the text form of both.
//!
//! [`Limit`] dispatches to the [`Step`] of its algorithm. It has no arithmetic of its own, reads no
//! clock and stores nothing: the state is the caller's.

mod parse;
mod prefetch;
mod units;

use std::{fmt, time::Duration};

pub use self::{parse::ParseLimitError, prefetch::NotPrefetchable};
#[cfg(feature = "redis")]
use crate::{
    algorithm::WireState,
    decision::{LimitDecision, RefundMark},
};
use crate::{
    algorithm::{
        self, Algorithm, Concurrency, Demand, Effect, Fit, FixedWindow, InvalidLimit, LeakyBucket,
        PenaltyBox, Period, Refund, SlidingWindowCounter, SlidingWindowLog, State, Step,
        StepResult, TokenBucket, step_limit,
    },
    time::Timestamp,
};

/// One algorithm with its numbers. A [`Policy`](crate::Policy) holds one to eight of them.
///
/// A limit is made from an algorithm's type, such as [`TokenBucket`], or parsed from its text:
///
/// ```text
/// [token_bucket] N/PERIOD [burst N]
/// leaky_bucket N/PERIOD [queue N] [police]
/// fixed_window N/PERIOD
/// sliding_window_log N/PERIOD [count-denied]
/// sliding_window_counter N/PERIOD
/// concurrency N [lease SPAN]
/// penalty_box N/PERIOD for SPAN [growing]
/// ```
///
/// - `PERIOD` is a unit (`ms`, `s`, `min`, `h`, `d`, or `second`, `minute`, `hour`, `day` and their
///   plurals) with an optional number before it: `s`,
///   `15min`. `SPAN` is the same with the number required: `30s`.
/// - A limit without a name is a token bucket. Without `burst` or `queue` the capacity is `N`.
/// - An unknown name or option is an error and never a default.
/// - `Display` writes a text that parses to an equal limit.
///
/// ```
/// use ratelimit_core::{Limit, TokenBucket};
/// use std::time::Duration;
///
/// let limit: Limit = "10/s burst 100".parse()?;
/// assert_eq!(limit, TokenBucket::new(100, 10, Duration::from_secs(1))?.into());
/// assert_eq!(limit.to_string(), "token_bucket 10/s burst 100");
///
/// let mistake = "10/fortnight".parse::<Limit>().unwrap_err();
/// assert_eq!(
///     mistake.to_string(),
///     "expected a period such as s, 15min or 1h (units: ms, s, min, h, d) at column 4 of \"10/fortnight\""
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "quota")]
#[doc(alias = "rate")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Steady refill, bursts up to the capacity. Twin: `lua/token_bucket.lua`.
    TokenBucket(TokenBucket),
    /// A queue that drains steadily and delays the hits in it. Twin: `lua/token_bucket.lua`.
    LeakyBucket(LeakyBucket),
    /// One count for each window of the clock. Twin: `lua/fixed_window.lua`.
    FixedWindow(FixedWindow),
    /// Exact over any span of one period: one timestamp for each unit. Twin:
    /// `lua/sliding_window_log.lua`.
    SlidingWindowLog(SlidingWindowLog),
    /// An estimate over a sliding window, from two counts. Twin: `lua/sliding_window_counter.lua`.
    SlidingWindowCounter(SlidingWindowCounter),
    /// Slots for requests in progress, each on a lease. Twin: `lua/concurrency.lua`.
    Concurrency(Concurrency),
    /// A block after too many denials by the other limits. Twin: `lua/penalty_box.lua`.
    PenaltyBox(PenaltyBox),
}

/// Runs `$body` with `$step` bound to the [`Step`] of the limit. `$body` is compiled once for each
/// algorithm: static dispatch, so that the arithmetic of a hot limit is inlined.
macro_rules! with_step {
    ($limit:expr, $step:ident => $body:expr) => {
        match $limit {
            Limit::TokenBucket($crate::algorithm::TokenBucket { bucket: $step })
            | Limit::LeakyBucket($crate::algorithm::LeakyBucket { bucket: $step }) => $body,
            Limit::FixedWindow($step) => $body,
            Limit::SlidingWindowLog($step) => $body,
            Limit::SlidingWindowCounter($step) => $body,
            Limit::Concurrency($step) => $body,
            Limit::PenaltyBox($step) => $body,
        }
    };
}

impl Limit {
    /// The algorithm of this limit.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Limit::TokenBucket(_) => Algorithm::TokenBucket,
            Limit::LeakyBucket(_) => Algorithm::LeakyBucket,
            Limit::FixedWindow(_) => Algorithm::FixedWindow,
            Limit::SlidingWindowLog(_) => Algorithm::SlidingWindowLog,
            Limit::SlidingWindowCounter(_) => Algorithm::SlidingWindowCounter,
            Limit::Concurrency(_) => Algorithm::Concurrency,
            Limit::PenaltyBox(_) => Algorithm::PenaltyBox,
        }
    }

    /// The most units that can be spent at once: the capacity of a bucket, the limit of a window,
    /// the slots of a concurrency limit, the denials of a penalty box.
    #[doc(alias = "burst")]
    pub fn capacity(&self) -> u64 {
        with_step!(self, step => step.limit())
    }

    /// The time in which a bucket gains its refill, the length of a window, the lease of a slot, or
    /// the span in which a penalty box counts denials.
    pub const fn period(&self) -> Duration {
        self.period_ticks().duration()
    }

    /// The units gained in each period: the refill of a bucket, otherwise the
    /// [capacity](Limit::capacity).
    ///
    /// ```
    /// use ratelimit_core::Limit;
    ///
    /// let limit: Limit = "10/s burst 100".parse()?;
    /// assert_eq!((limit.per_period(), limit.capacity()), (10, 100));
    /// # Ok::<(), ratelimit_core::ParseLimitError>(())
    /// ```
    pub fn per_period(&self) -> u64 {
        match self {
            Limit::TokenBucket(bucket) => bucket.refill(),
            Limit::LeakyBucket(bucket) => bucket.outflow(),
            _ => self.capacity(),
        }
    }

    /// Whether a hit spends its cost in units of this limit. A concurrency limit takes one slot
    /// whatever the cost, and a penalty box counts denials.
    ///
    /// ```
    /// use ratelimit_core::Limit;
    ///
    /// assert!("10/s".parse::<Limit>()?.counts_units());
    /// assert!(!"concurrency 5".parse::<Limit>()?.counts_units());
    /// # Ok::<(), ratelimit_core::ParseLimitError>(())
    /// ```
    pub const fn counts_units(&self) -> bool {
        !matches!(self, Limit::Concurrency(_) | Limit::PenaltyBox(_))
    }

    /// The most entries that a state of this limit has: the stamps of a log, the slots of a concurrency limit. A store
    /// reads and writes all of them with each hit.
    pub(crate) fn max_entries(&self) -> u64 {
        match self {
            Limit::SlidingWindowLog(_) | Limit::Concurrency(_) => self.capacity(),
            _ => 0,
        }
    }

    /// Whether this limit counts denied hits. Hits under such a limit are neither batched nor
    /// coalesced, and their denials are not cached.
    pub(crate) const fn records_denials(&self) -> bool {
        match self {
            Limit::SlidingWindowLog(log) => log.counts_denied(),
            Limit::PenaltyBox(_) => true,
            _ => false,
        }
    }

    /// The period in ticks of the grain of this limit. A grain is 1, 1,000 or 1,000,000
    /// microseconds.
    pub(crate) const fn period_ticks(&self) -> Period {
        with_step!(self, step => step.period)
    }

    /// Whether the demand fits into this state at `now`. It changes nothing; `None` is a key that
    /// has spent nothing.
    pub(crate) fn fit(&self, state: Option<&State>, now: Timestamp, demand: Demand) -> Fit {
        with_step!(self, step => algorithm::fit(step, step.advance(state, now, demand), demand))
    }

    /// Whether the demand can ever fit; the state does not matter. A hit for which it cannot is
    /// `Impossible`.
    pub(crate) fn can_ever_fit(&self, demand: Demand) -> bool {
        demand.total() <= self.capacity()
    }

    /// The time until the demand fits, exact to the microsecond; zero if it fits now or never.
    pub(crate) fn time_until_fit(
        &self,
        state: Option<&State>,
        now: Timestamp,
        demand: Demand,
    ) -> Duration {
        with_step!(self, step => {
            let snapshot = step.advance(state, now, demand);
            match algorithm::fit(step, snapshot, demand) {
                Fit::Later => step.retry_after(snapshot, demand, now),
                Fit::Now | Fit::Never => Duration::ZERO,
            }
        })
    }

    /// Applies one hit to the state: `spend` maps its fit to the effect. See [`step_limit`].
    ///
    /// With several limits the caller has compared all of them with [`fit`](Limit::fit) before, and
    /// `spend` returns the same effect for each.
    #[inline(always)]
    pub(crate) fn step(
        &self,
        state: &mut Option<State>,
        now: Timestamp,
        demand: Demand,
        spend: impl FnOnce(Fit) -> Effect,
    ) -> StepResult {
        with_step!(self, step => step_limit(step, state, now, demand, spend))
    }

    /// Gives back part of an earlier charge. Returns whether the state changed.
    ///
    /// It credits at most what time has left of that charge. The expiry of the budget is not moved.
    /// A mark of zero belongs to a charge that cannot be refunded.
    pub(crate) fn refund(&self, state: &mut Option<State>, refund: Refund) -> bool {
        let is_refunded = |state| with_step!(self, step => step.refund(state, refund));
        refund.mark.debt != 0 && state.as_mut().is_some_and(is_refunded)
    }

    /// Charges up to `units` later than the hit, as far as there is capacity. Returns how long the
    /// state is needed, `None` if nothing was charged.
    ///
    /// - Units that do not fit are forgiven: a debt beyond the limit would break that `remaining` is
    ///   at least 0.
    /// - A state of another algorithm stays as it is: another version of the policy may read it
    ///   again.
    pub(crate) fn charge_more(
        &self,
        state: &mut Option<State>,
        units: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        if !self.counts_units() || state.as_ref().is_some_and(|state| !self.wrote(state)) {
            return None;
        }
        with_step!(self, step => {
            let snapshot = step.advance(state.as_ref(), now, Demand::PEEK);
            let units = units.min(step.remaining(snapshot));
            (units > 0).then(|| {
                let charged = step.charge(snapshot, units);
                step.write(state, charged);
                step.ttl(charged, now)
            })
        })
    }

    /// Gives up to `units` back, whichever hits spent them. Returns how long the state is needed,
    /// `None` if nothing was given back.
    ///
    /// - The state is brought to the present first, so units that time has restored are not given
    ///   back again.
    /// - A state of another algorithm stays as it is.
    pub(crate) fn credit(
        &self,
        state: &mut Option<State>,
        units: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        let own = state.as_ref().filter(|state| self.wrote(state))?;
        with_step!(self, step => {
            let snapshot = step.advance(Some(own), now, Demand::PEEK);
            let credited = step.credit(snapshot, units)?;
            step.write(state, credited);
            Some(step.ttl(credited, now))
        })
    }

    /// Whether a limit of this algorithm wrote the state.
    fn wrote(&self, state: &State) -> bool {
        state.algorithm() == self.algorithm()
    }

    /// The units that are spent in this state: the limit without what remains. 0 for a limit that counts no units.
    pub(crate) fn spent(&self, state: Option<&State>, now: Timestamp) -> u64 {
        if !self.counts_units() {
            return 0;
        }
        with_step!(self, step => {
            let snapshot = step.advance(state, now, Demand::PEEK);
            step.limit().saturating_sub(step.remaining(snapshot))
        })
    }

    /// Builds the decision and the mark of the charge from the numbers of a script's reply; `None` if
    /// the numbers cannot be true.
    ///
    /// - `words` are the numbers of this limit before the hit.
    /// - `before` are the units that earlier hits of the same batch were charged.
    /// - `charged` are the units that this hit was charged. A charge that does not fit contradicts
    ///   the reply.
    #[cfg(feature = "redis")]
    pub(crate) fn report(
        &self,
        words: WireState,
        before: u64,
        now: Timestamp,
        demand: Demand,
        charged: u64,
    ) -> Option<(LimitDecision, RefundMark)> {
        let (decision, mark) = with_step!(self, step => {
            let snapshot = match before {
                0 => step.decode(words)?,
                _ => step.charge(step.decode(words)?, before),
            };
            let fit = algorithm::fit(step, snapshot, demand);
            // A reply that reports a charge which does not fit contradicts itself.
            if charged > 0 && fit != Fit::Now {
                return None;
            }
            let (after, mark) = if charged > 0 {
                let after = step.charge(snapshot, charged);
                (after, step.mark(after, now))
            } else {
                (snapshot, RefundMark::NONE)
            };
            (algorithm::report(step, snapshot, after, fit, demand, now), mark)
        });
        Some((decision, mark))
    }

    /// The same limit with a capacity that is higher by `extra` units: the ceiling of a soft or
    /// elastic throttle. Rate, period and options stay.
    ///
    /// A penalty box is not raised: it counts denials, and headroom for denials has no meaning.
    ///
    /// # Errors
    ///
    /// [`InvalidLimit`] of the algorithm's constructor, which checks the raised numbers again: they
    /// can be too large to be counted exactly, or exceed the bound of a log or of slots.
    pub(crate) fn raised(&self, extra: u64) -> Result<Limit, InvalidLimit> {
        if extra == 0 {
            return Ok(*self);
        }
        let period = self.period();
        let ceiling = self.capacity().saturating_add(extra);
        Ok(match self {
            Limit::TokenBucket(bucket) => {
                TokenBucket::new(ceiling, bucket.refill(), period)?.into()
            }
            Limit::LeakyBucket(bucket) => {
                let raised = LeakyBucket::new(ceiling, bucket.outflow(), period)?;
                if bucket.is_policing() {
                    raised.without_delay().into()
                } else {
                    raised.into()
                }
            }
            Limit::FixedWindow(_) => FixedWindow::new(ceiling, period)?.into(),
            Limit::SlidingWindowLog(log) => {
                let raised = SlidingWindowLog::new(ceiling, period)?;
                if log.counts_denied() {
                    raised.counting_denied().into()
                } else {
                    raised.into()
                }
            }
            Limit::SlidingWindowCounter(_) => SlidingWindowCounter::new(ceiling, period)?.into(),
            Limit::Concurrency(slots) => Concurrency::new(ceiling, slots.lease())?.into(),
            // Denials have no headroom.
            Limit::PenaltyBox(_) => *self,
        })
    }
}

/// Implements `From` of each algorithm's type for [`Limit`].
macro_rules! from_algorithm {
    ($($name:ident)*) => { $(
        impl From<$name> for Limit {
            fn from(algorithm: $name) -> Limit {
                Limit::$name(algorithm)
            }
        }
    )* };
}
from_algorithm!(TokenBucket LeakyBucket FixedWindow SlidingWindowLog SlidingWindowCounter);
from_algorithm!(Concurrency PenaltyBox);

impl fmt::Display for Limit {
    /// Writes the canonical text, which parses to an equal limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Limit::Concurrency(slots) = self {
            write!(f, "concurrency {} lease ", slots.limit())?;
            return units::write_span(f, slots.lease());
        }
        write!(f, "{} {}/", self.algorithm(), self.per_period())?;
        units::write_period(f, self.period_ticks().micros())?;
        // A capacity equal to the rate is the default and is left out.
        if self.capacity() != self.per_period() {
            let capacity = if matches!(self, Limit::LeakyBucket(_)) {
                "queue"
            } else {
                "burst"
            };
            write!(f, " {capacity} {}", self.capacity())?;
        }
        match self {
            Limit::LeakyBucket(bucket) if bucket.is_policing() => f.write_str(" police"),
            Limit::SlidingWindowLog(log) if log.counts_denied() => f.write_str(" count-denied"),
            Limit::PenaltyBox(penalty) => {
                f.write_str(" for ")?;
                units::write_span(f, penalty.block_duration())?;
                f.write_str(if penalty.is_doubling() {
                    " growing"
                } else {
                    ""
                })
            }
            _ => Ok(()),
        }
    }
}
