//! One algorithm with its numbers.

mod parse;

use std::{fmt, time::Duration};

pub use self::parse::ParseLimitError;
#[cfg(feature = "redis")]
use crate::{algorithm::WireState, decision::LimitDecision};
use crate::{
    algorithm::{
        Algorithm, Concurrency, Demand, Effect, Fit, FixedWindow, InvalidLimit, LeakyBucket,
        PenaltyBox, Period, Refund, SlidingWindowCounter, SlidingWindowLog, State, Step,
        StepResult, TokenBucket,
    },
    time::Timestamp,
};

/// One algorithm with its numbers, made from one of the algorithms or from its text.
///
/// The text is `[algorithm] N/PERIOD [burst N | queue N] [police] [count-denied]`, a period being
/// `ms`, `s`, `min`, `h` or `d` with an optional number before it. Without a name it is a token bucket.
/// A concurrency limit is `concurrency N [lease D]`, a penalty box `penalty_box N/PERIOD for D [growing]`.
///
/// ```
/// use ratelimit_core::{Limit, TokenBucket};
/// use std::time::Duration;
///
/// let limit: Limit = "token_bucket 10/s burst 100".parse()?;
/// assert_eq!(limit, TokenBucket::new(100, 10, Duration::from_secs(1))?.into());
///
/// let mistake = "10/fortnight".parse::<Limit>().unwrap_err();
/// assert_eq!(
///     mistake.to_string(),
///     "expected a period such as s, 15min or 1h (units: ms, s, min, h, d) at column 4 of \"10/fortnight\""
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Refills steadily, lets bursts through until it is empty.
    TokenBucket(TokenBucket),
    /// A queue that lets one out at a time.
    LeakyBucket(LeakyBucket),
    /// So many in each window of the clock.
    FixedWindow(FixedWindow),
    /// So many in any window, remembered one by one.
    SlidingWindowLog(SlidingWindowLog),
    /// So many in any window, estimated from two counts.
    SlidingWindowCounter(SlidingWindowCounter),
    /// So many at once, each on a lease.
    Concurrency(Concurrency),
    /// Who is denied too often is refused for a while.
    PenaltyBox(PenaltyBox),
}

/// Runs `$body` with `$step` bound to the limit's arithmetic.
macro_rules! with_step {
    ($limit:expr, $step:ident => $body:expr) => {
        match $limit {
            Limit::TokenBucket(TokenBucket { bucket: $step })
            | Limit::LeakyBucket(LeakyBucket { bucket: $step }) => $body,
            Limit::FixedWindow($step) => $body,
            Limit::SlidingWindowLog($step) => $body,
            Limit::SlidingWindowCounter($step) => $body,
            Limit::Concurrency($step) => $body,
            Limit::PenaltyBox($step) => $body,
        }
    };
}

impl Limit {
    /// How it counts.
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

    /// The most that can be spent at once: a bucket's capacity, a window's limit, the slots.
    pub fn capacity(&self) -> u64 {
        with_step!(self, step => step.limit())
    }

    /// The time in which a bucket gains its refill, a window's length, or a lease.
    pub const fn period(&self) -> Duration {
        self.period_ticks().duration()
    }

    /// What is gained in each period: a bucket's refill, a window's limit.
    pub fn per_period(&self) -> u64 {
        match self {
            Limit::TokenBucket(bucket) => bucket.refill(),
            Limit::LeakyBucket(bucket) => bucket.outflow(),
            _ => self.capacity(),
        }
    }

    /// Whether a hit spends as many units of it as it costs.
    pub fn counts_units(&self) -> bool {
        with_step!(self, step => step.counts_units())
    }

    /// Whether it remembers denied hits.
    pub(crate) const fn records_denials(&self) -> bool {
        match self {
            Limit::SlidingWindowLog(log) => log.counts_denied(),
            Limit::PenaltyBox(_) => true,
            _ => false,
        }
    }

    /// Whether a denied hit is written: it is remembered, or the stored time is set right.
    pub(crate) fn stores_denial(&self, state: Option<&State>, now: Timestamp) -> bool {
        with_step!(self, step => {
            let snapshot = step.advance(step.state(state), now, Demand::PEEK);
            clock_was_repaired(step, snapshot) || step.records_denials(snapshot)
        })
    }

    pub(crate) const fn period_ticks(&self) -> Period {
        with_step!(self, step => step.period)
    }

    pub(crate) fn fit(&self, state: Option<&State>, now: Timestamp, demand: Demand) -> Fit {
        with_step!(self, step => {
            let snapshot = step.advance(step.state(state), now, demand);
            step.fit(snapshot, demand)
        })
    }

    /// Whether it can ever hold what is asked.
    pub(crate) fn can_ever_fit(&self, demand: Demand) -> bool {
        with_step!(self, step => step.can_ever_fit(demand))
    }

    /// How long until what can fit does.
    pub(crate) fn time_until_fit(
        &self,
        state: Option<&State>,
        now: Timestamp,
        demand: Demand,
    ) -> Duration {
        with_step!(self, step => {
            let snapshot = step.advance(step.state(state), now, demand);
            match step.fit(snapshot, demand) {
                Fit::Later => step.retry_after(snapshot, demand, now),
                Fit::Now | Fit::Never => Duration::ZERO,
            }
        })
    }

    /// Applies a hit to the state, once `spend` has said what it does that fits so, and reports what
    /// is left.
    #[inline]
    pub(crate) fn step(
        &self,
        state: &mut Option<State>,
        now: Timestamp,
        demand: Demand,
        spend: impl FnOnce(Fit) -> Effect,
    ) -> StepResult {
        with_step!(self, step => step.step(state, now, demand, spend))
    }

    /// Gives part of an earlier charge back, and tells whether that changed anything.
    pub(crate) fn refund(&self, state: &mut Option<State>, refund: Refund) -> bool {
        with_step!(self, step => refund_state(step, state, refund))
    }

    /// Charges as many of `units` as there is room for, and tells how long that means something.
    pub(crate) fn charge_more(
        &self,
        state: &mut Option<State>,
        units: u64,
        now: Timestamp,
    ) -> Option<Duration> {
        with_step!(self, step => step.charge_more(state, units, now))
    }

    /// What a script's numbers mean, `charged` having been spent, and `before` by hits that came
    /// between; nothing if they cannot be true.
    #[cfg(feature = "redis")]
    pub(crate) fn report(
        &self,
        words: WireState,
        before: u64,
        now: Timestamp,
        demand: Demand,
        charged: u64,
    ) -> Option<LimitDecision> {
        with_step!(self, step => {
            let snapshot = match before {
                0 => step.decode_wire(words)?,
                _ => step.with_charge(step.decode_wire(words)?, before),
            };
            let fit = step.fit(snapshot, demand);
            let possible = charged == 0 || fit == Fit::Now;
            possible.then(|| step.report(snapshot, fit, demand, charged, now))
        })
    }

    /// The same limit with room for `extra` more.
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
            Limit::PenaltyBox(_) => *self,
        })
    }
}

/// Gives back what a state of `step`'s algorithm holds; any other keeps what it has.
fn refund_state<S: Step>(step: &S, state: &mut Option<State>, refund: Refund) -> bool {
    let own = state.as_mut().and_then(|state| step.state_of_mut(state));
    refund.mark.debt != 0 && own.is_some_and(|own| step.refund(own, refund))
}

fn clock_was_repaired<S: Step>(_step: &S, snapshot: S::Snapshot) -> bool {
    S::clock_was_repaired(snapshot)
}

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
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Limit::Concurrency(slots) = self {
            write!(f, "concurrency {} lease ", slots.limit())?;
            return parse::write_span(f, slots.lease());
        }
        write!(f, "{} {}/", self.algorithm(), self.per_period())?;
        parse::write_period(f, self.period_ticks().micros())?;
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
                parse::write_span(f, penalty.block_duration())?;
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
