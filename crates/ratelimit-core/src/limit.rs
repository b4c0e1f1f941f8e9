//! One algorithm with its numbers.

mod text;

use std::{fmt, time::Duration};

pub use self::text::InvalidText;
#[cfg(feature = "redis")]
use crate::{algorithm::Words, decision::LimitDecision};
use crate::{
    algorithm::{
        Algorithm, Ask, Concurrency, Fit, FixedWindow, InvalidLimit, LeakyBucket, PenaltyBox,
        Period, Refund, SlidingWindowCounter, SlidingWindowLog, Spend, State, Step, Stepped,
        TokenBucket,
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
    pub fn limit(&self) -> u64 {
        with_step!(self, step => step.limit())
    }

    /// The time in which a bucket gains its refill, a window's length, or a lease.
    pub const fn period(&self) -> Duration {
        self.ticks().duration()
    }

    /// What is gained in each period: a bucket's refill, a window's limit.
    pub fn per_period(&self) -> u64 {
        match self {
            Limit::TokenBucket(bucket) => bucket.refill(),
            Limit::LeakyBucket(bucket) => bucket.outflow(),
            _ => self.limit(),
        }
    }

    /// Whether a hit spends as many units of it as it costs.
    pub(crate) fn has_units(&self) -> bool {
        with_step!(self, step => step.has_units())
    }

    /// Whether it remembers denied hits.
    pub(crate) const fn counts_denied(&self) -> bool {
        match self {
            Limit::SlidingWindowLog(log) => log.is_counting_denied(),
            Limit::PenaltyBox(_) => true,
            _ => false,
        }
    }

    /// Whether a denied hit is written: it is remembered, or the stored time is set right.
    pub(crate) fn writes_denied(&self, state: Option<&State>, now: Timestamp) -> bool {
        with_step!(self, step => {
            let rolled = step.roll(step.own(state), now, Ask::NOTHING);
            was_repaired(step, rolled) || step.counts_denied(rolled)
        })
    }

    pub(crate) const fn ticks(&self) -> Period {
        with_step!(self, step => step.period)
    }

    pub(crate) fn fit(&self, state: Option<&State>, now: Timestamp, ask: Ask) -> Fit {
        with_step!(self, step => {
            let rolled = step.roll(step.own(state), now, ask);
            step.fit(rolled, ask)
        })
    }

    /// Whether it can ever hold what is asked.
    pub(crate) fn is_possible(&self, ask: Ask) -> bool {
        with_step!(self, step => step.is_possible(ask))
    }

    /// How long until what can fit does.
    pub(crate) fn wait(&self, state: Option<&State>, now: Timestamp, ask: Ask) -> Duration {
        with_step!(self, step => {
            let rolled = step.roll(step.own(state), now, ask);
            match step.fit(rolled, ask) {
                Fit::Later => step.retry_after(rolled, ask, now),
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
        ask: Ask,
        spend: impl FnOnce(Fit) -> Spend,
    ) -> Stepped {
        with_step!(self, step => step.step(state, now, ask, spend))
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
        words: Words,
        before: u64,
        now: Timestamp,
        ask: Ask,
        charged: u64,
    ) -> Option<LimitDecision> {
        with_step!(self, step => {
            let rolled = match before {
                0 => step.read(words)?,
                _ => step.charged(step.read(words)?, before),
            };
            let fit = step.fit(rolled, ask);
            let possible = charged == 0 || fit == Fit::Now;
            possible.then(|| step.report(rolled, fit, ask, charged, now))
        })
    }

    /// The same limit with room for `extra` more.
    pub(crate) fn raised(&self, extra: u64) -> Result<Limit, InvalidLimit> {
        if extra == 0 {
            return Ok(*self);
        }
        let period = self.period();
        let ceiling = self.limit().saturating_add(extra);
        Ok(match self {
            Limit::TokenBucket(bucket) => {
                TokenBucket::new(ceiling, bucket.refill(), period)?.into()
            }
            Limit::LeakyBucket(bucket) => {
                let raised = LeakyBucket::new(ceiling, bucket.outflow(), period)?;
                if bucket.is_policing() {
                    raised.police().into()
                } else {
                    raised.into()
                }
            }
            Limit::FixedWindow(_) => FixedWindow::new(ceiling, period)?.into(),
            Limit::SlidingWindowLog(log) => {
                let raised = SlidingWindowLog::new(ceiling, period)?;
                if log.is_counting_denied() {
                    raised.count_denied().into()
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
    let own = state.as_mut().and_then(|state| step.of_mut(state));
    refund.mark.debt != 0 && own.is_some_and(|own| step.refund(own, refund))
}

fn was_repaired<S: Step>(_step: &S, rolled: S::Rolled) -> bool {
    S::was_repaired(rolled)
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
            return text::write_span(f, slots.lease());
        }
        write!(f, "{} {}/", self.algorithm(), self.per_period())?;
        text::write_period(f, self.ticks().micros())?;
        if self.limit() != self.per_period() {
            let capacity = if matches!(self, Limit::LeakyBucket(_)) {
                "queue"
            } else {
                "burst"
            };
            write!(f, " {capacity} {}", self.limit())?;
        }
        match self {
            Limit::LeakyBucket(bucket) if bucket.is_policing() => f.write_str(" police"),
            Limit::SlidingWindowLog(log) if log.is_counting_denied() => {
                f.write_str(" count-denied")
            }
            Limit::PenaltyBox(penalty) => {
                f.write_str(" for ")?;
                text::write_span(f, penalty.refused_for())?;
                f.write_str(if penalty.is_growing() { " growing" } else { "" })
            }
            _ => Ok(()),
        }
    }
}
