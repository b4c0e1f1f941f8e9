//! What limits remember of a key.

use super::{
    bucket::{Debt, RefundedDebt},
    concurrency::Slots,
    fixed_window::Count,
    penalty_box::Denials,
    sliding_window_counter::Counts,
    sliding_window_log::Log,
};

/// What one limit remembers of one key; the larger ones are boxed, so that a bucket takes 24 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    TokenBucket(Debt),
    LeakyBucket(Debt),
    /// A bucket of either kind of which something was refunded.
    RefundedBucket(Box<RefundedDebt>),
    FixedWindow(Count),
    SlidingWindowLog(Box<Log>),
    SlidingWindowCounter(Box<Counts>),
    Concurrency(Box<Slots>),
    PenaltyBox(Denials),
}

impl State {
    /// How many stamps of a log, or slots, it keeps.
    #[inline]
    pub(crate) fn stamps(&self) -> usize {
        match self {
            State::SlidingWindowLog(log) => log.len(),
            State::Concurrency(slots) => slots.len(),
            _ => 0,
        }
    }

    #[inline]
    pub(crate) fn holds_slots(&self) -> bool {
        matches!(self, State::Concurrency(slots) if slots.len() > 0)
    }
}

/// How the states of one algorithm are found among all states, for its `impl Step`.
macro_rules! own_state {
    ($variant:ident($state:ty)) => {
        #[inline]
        fn of<'a>(&self, state: &'a State) -> Option<&'a $state> {
            match state {
                State::$variant(own) => {
                    let own: &$state = own;
                    Some(own)
                }
                _ => None,
            }
        }

        fn of_mut<'a>(&self, state: &'a mut State) -> Option<&'a mut $state> {
            match state {
                State::$variant(own) => {
                    let own: &mut $state = own;
                    Some(own)
                }
                _ => None,
            }
        }
    };
}
pub(super) use own_state;
