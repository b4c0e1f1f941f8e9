//! What is stored for one limit, and what can be asked of it at a moment.

use super::{
    bucket::{Bucket, BucketState},
    fixed_window::{FixedWindow, FixedWindowState},
    moment::Moment,
    sliding_window_counter::{SlidingWindowCounter, SlidingWindowCounterState},
    sliding_window_log::{SlidingWindowLog, SlidingWindowLogState},
    spec::Spec,
};

/// What is stored for one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    TokenBucket(BucketState),
    LeakyBucket(BucketState),
    FixedWindow(FixedWindowState),
    SlidingWindowLog(SlidingWindowLogState),
    SlidingWindowCounter(SlidingWindowCounterState),
}

/// A limit's state as it stands at a moment: converted, repaired and rolled forward.
pub(super) trait Standing {
    /// Whether law 8 took its time back to now.
    fn repaired(&self) -> bool;
    /// Whether a cost that is not impossible passes.
    fn fits(&self, cost: u128) -> bool;
    /// The wait of a hit of any cost before its turn.
    fn delay_us(&self) -> u128 {
        0
    }
    /// The time until a cost that does not fit passes.
    fn retry_after_us(&self, cost: u128) -> u128;
    fn remaining(&self) -> u128;
    fn reset_after_us(&self) -> u128;
    /// The time until this state means nothing.
    fn need_us(&self) -> u128;
    fn charge(&mut self, cost: u128);
    /// Remembers a denied hit, and says whether this limit does such a thing.
    fn count_denied(&mut self, _cost: u128) -> bool {
        false
    }
    fn store(&self) -> State;
}

/// Reads a state for the limit as it is now; one of another algorithm counts for nothing.
pub(super) fn stand(spec: &Spec, stored: Option<&State>, now_us: u64) -> Box<dyn Standing> {
    let moment = Moment::new(spec, now_us);
    match (*spec, stored) {
        (
            Spec::TokenBucket {
                capacity, refill, ..
            },
            Some(State::TokenBucket(state)),
        ) => Box::new(Bucket::read(moment, capacity, refill, Some(state)).token()),
        (
            Spec::TokenBucket {
                capacity, refill, ..
            },
            _,
        ) => Box::new(Bucket::read(moment, capacity, refill, None).token()),
        (
            Spec::LeakyBucket {
                capacity,
                refill,
                police,
                ..
            },
            Some(State::LeakyBucket(state)),
        ) => Box::new(Bucket::read(moment, capacity, refill, Some(state)).leaky(police)),
        (
            Spec::LeakyBucket {
                capacity,
                refill,
                police,
                ..
            },
            _,
        ) => Box::new(Bucket::read(moment, capacity, refill, None).leaky(police)),
        (Spec::FixedWindow { limit, .. }, Some(State::FixedWindow(state))) => {
            Box::new(FixedWindow::read(moment, limit, Some(state)))
        }
        (Spec::FixedWindow { limit, .. }, _) => Box::new(FixedWindow::read(moment, limit, None)),
        (
            Spec::SlidingWindowLog {
                limit,
                count_denied,
                ..
            },
            Some(State::SlidingWindowLog(state)),
        ) => Box::new(SlidingWindowLog::read(
            moment,
            limit,
            count_denied,
            Some(state),
        )),
        (
            Spec::SlidingWindowLog {
                limit,
                count_denied,
                ..
            },
            _,
        ) => Box::new(SlidingWindowLog::read(moment, limit, count_denied, None)),
        (Spec::SlidingWindowCounter { limit, .. }, Some(State::SlidingWindowCounter(state))) => {
            Box::new(SlidingWindowCounter::read(moment, limit, Some(state)))
        }
        (Spec::SlidingWindowCounter { limit, .. }, _) => {
            Box::new(SlidingWindowCounter::read(moment, limit, None))
        }
    }
}
