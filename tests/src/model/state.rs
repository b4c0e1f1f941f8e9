//! What is stored for one limit, and what can be asked of it at a moment.

use super::{
    bucket::{Bucket, BucketState},
    concurrency::{Concurrency, ConcurrencyState},
    fixed_window::{FixedWindow, FixedWindowState},
    hit::ModelHit,
    penalty_box::{PenaltyBox, PenaltyBoxState},
    sliding_window_counter::{SlidingWindowCounter, SlidingWindowCounterState},
    sliding_window_log::{SlidingWindowLog, SlidingWindowLogState},
    spec::Spec,
    tick::LimitClock,
};

/// What is stored for one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    TokenBucket(BucketState),
    LeakyBucket(BucketState),
    FixedWindow(FixedWindowState),
    SlidingWindowLog(SlidingWindowLogState),
    SlidingWindowCounter(SlidingWindowCounterState),
    Concurrency(ConcurrencyState),
    PenaltyBox(PenaltyBoxState),
}

impl State {
    /// Whether a limit reads this state; another algorithm's counts for nothing.
    pub(super) fn is_of(&self, spec: &Spec) -> bool {
        matches!(
            (self, spec),
            (Self::TokenBucket(_), Spec::TokenBucket { .. })
                | (Self::LeakyBucket(_), Spec::LeakyBucket { .. })
                | (Self::FixedWindow(_), Spec::FixedWindow { .. })
                | (Self::SlidingWindowLog(_), Spec::SlidingWindowLog { .. })
                | (
                    Self::SlidingWindowCounter(_),
                    Spec::SlidingWindowCounter { .. }
                )
                | (Self::Concurrency(_), Spec::Concurrency { .. })
                | (Self::PenaltyBox(_), Spec::PenaltyBox { .. })
        )
    }
}

/// A limit's state as it stands at a moment: converted, repaired and rolled forward.
pub(super) trait Standing {
    /// Whether law 8 took its time back to now.
    fn repaired(&self) -> bool;
    /// Whether the clock stepped back to before the last charge.
    fn is_ahead(&self) -> bool {
        false
    }
    /// Whether what a possible hit needs is there.
    fn fits(&self, needs: u128) -> bool;
    /// The wait of a hit of any cost before its turn.
    fn delay_us(&self) -> u128 {
        0
    }
    /// The time until a need that does not fit does.
    fn retry_after_us(&self, needs: u128) -> u128;
    fn remaining(&self) -> u128;
    fn reset_after_us(&self) -> u128;
    /// The time until this state means nothing.
    fn need_us(&self) -> u128;
    fn charge(&mut self, cost: u128);
    /// What a receipt notes of a charge that was just made.
    fn mark(&self) -> u128 {
        1
    }
    /// The tokens that a bucket has refunded, which a receipt notes too.
    fn refunded(&self) -> u128 {
        0
    }
    /// Whether the value must not expire earlier than it would have before.
    fn keeps_expiry(&self) -> bool {
        self.refunded() > 0
    }
    /// Remembers a denied hit, and says whether this limit does such a thing.
    fn count_denied(&mut self, _cost: u128) -> bool {
        false
    }
    fn store(&self) -> State;
}

/// The stored state when it is of one algorithm, else nothing.
macro_rules! stored_as {
    ($stored:ident, $algorithm:ident) => {
        match $stored {
            Some(State::$algorithm(state)) => Some(state),
            _ => None,
        }
    };
}

/// Reads a state for the limit as it is now; one of another algorithm counts for nothing.
pub(super) fn stand(
    spec: &Spec,
    stored: Option<&State>,
    now_us: u64,
    asked: &ModelHit,
) -> Box<dyn Standing> {
    let clock = LimitClock::new(spec, asked.percent, now_us);
    let ceiling = spec.ceiling(asked.percent);
    match *spec {
        Spec::TokenBucket { refill, .. } => {
            let state = stored_as!(stored, TokenBucket);
            Box::new(Bucket::read(clock, ceiling, refill, state).token())
        }
        Spec::LeakyBucket { refill, police, .. } => {
            let state = stored_as!(stored, LeakyBucket);
            Box::new(Bucket::read(clock, ceiling, refill, state).leaky(police))
        }
        Spec::FixedWindow { .. } => {
            let state = stored_as!(stored, FixedWindow);
            Box::new(FixedWindow::read(clock, ceiling, state))
        }
        Spec::SlidingWindowLog { count_denied, .. } => {
            let state = stored_as!(stored, SlidingWindowLog);
            Box::new(SlidingWindowLog::read(clock, ceiling, count_denied, state))
        }
        Spec::SlidingWindowCounter { .. } => {
            let state = stored_as!(stored, SlidingWindowCounter);
            Box::new(SlidingWindowCounter::read(clock, ceiling, state))
        }
        Spec::Concurrency { .. } => {
            let state = stored_as!(stored, Concurrency);
            Box::new(Concurrency::read(clock, ceiling, asked.slot, state))
        }
        Spec::PenaltyBox {
            denials,
            refusal_us,
            growing,
            ..
        } => {
            let state = stored_as!(stored, PenaltyBox);
            let numbers = (denials, refusal_us, growing);
            Box::new(PenaltyBox::read(clock, numbers, state))
        }
    }
}
