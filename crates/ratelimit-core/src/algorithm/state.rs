//! What limits remember of a key.

use crate::algorithm::{
    bucket::{BucketState, RefundedBucketState},
    concurrency::ConcurrencyState,
    fixed_window::WindowState,
    penalty_box::PenaltyState,
    sliding_window_counter::CounterState,
    sliding_window_log::LogState,
};

/// A boxed state takes 40 bytes or less.
const BOX_UNITS: usize = 5;

/// What one limit remembers of one key; the larger ones are boxed, so that a bucket takes 24 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    TokenBucket(BucketState),
    LeakyBucket(BucketState),
    /// A bucket of either kind of which something was refunded.
    RefundedBucket(Box<RefundedBucketState>),
    FixedWindow(WindowState),
    SlidingWindowLog(Box<LogState>),
    SlidingWindowCounter(Box<CounterState>),
    Concurrency(Box<ConcurrencyState>),
    PenaltyBox(PenaltyState),
}

impl State {
    /// The memory that it has allocated, in units of 8 bytes: a box, and the buffer of stamps or slots.
    #[inline]
    pub(crate) fn stored_entries(&self) -> usize {
        match self {
            State::SlidingWindowLog(log) => BOX_UNITS + log.capacity(),
            State::Concurrency(slots) => BOX_UNITS + 2 * slots.capacity(),
            State::RefundedBucket(_) | State::SlidingWindowCounter(_) => BOX_UNITS,
            _ => 0,
        }
    }

    #[inline]
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self, State::Concurrency(slots) if slots.len() > 0)
    }
}

/// Whether a buffer of `capacity` entries is to be shrunk to twice its length. A small one is kept.
#[inline]
pub(super) fn is_oversized(capacity: usize, len: usize) -> bool {
    capacity > 4 * len.max(16)
}

/// How the states of one algorithm are found among all states, for its `impl Step`.
macro_rules! own_state {
    ($variant:ident($state:ty)) => {
        #[inline]
        fn state_of<'a>(&self, state: &'a State) -> Option<&'a $state> {
            match state {
                State::$variant(own) => {
                    let own: &$state = own;
                    Some(own)
                }
                _ => None,
            }
        }

        fn state_of_mut<'a>(&self, state: &'a mut State) -> Option<&'a mut $state> {
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
