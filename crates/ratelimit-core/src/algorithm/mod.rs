//! The seven counting algorithms: one file each, with its parameters, its stored state and its
//! step.
//!
//! An algorithm is pure integer arithmetic. It reads no clock, takes no lock and uses no floating
//! point; it allocates only memory of its own state. The caller passes the present time and the
//! stored [`State`].
//!
//! - [`Step`] is the interface. `advance` brings a stored state to the present, `fits` compares it
//!   with the demand, `charge` and `write` spend. [`step_limit`] applies one hit, and [`report`]
//!   derives the numbers that users see.
//! - [`Period`] is a length of time in ticks of a [`Grain`]. Every product of a limit and its
//!   period stays below 2^53 (`docs/explain/accuracy.md`), because a Lua number is exact only up to
//!   there.
//! - [`Bucket`] is the arithmetic of the token bucket and of the leaky bucket, which differ in
//!   their delay only.
//! - `lua/<algorithm>.lua` holds the same step for Redis, with the same names. A change here
//!   changes Rust, Lua, the page `docs/algorithms/<algorithm>.md` and the model of the tests
//!   together.
//!
//! The memory store calls `step_limit`. The Redis store runs the Lua twin, which decides and
//! stores; Rust then decodes the numbers of its reply ([`Step::decode`]) and calls the same
//! `report`. So both stores return equal decisions, field by field.

mod bucket;
mod concurrency;
mod fixed_window;
mod kind;
mod leaky_bucket;
mod penalty_box;
mod period;
mod sliding_window_counter;
mod sliding_window_log;
mod step;
mod token_bucket;

pub(crate) use self::period::Grain;
#[cfg(feature = "redis")]
pub(crate) use self::step::{WireState, report};
pub(crate) use self::{
    bucket::Bucket,
    concurrency::Renewal,
    period::Period,
    step::{Demand, Effect, Fit, Refund, Step, StepResult, fit, step_limit},
};
pub use self::{
    concurrency::Concurrency, fixed_window::FixedWindow, kind::Algorithm,
    leaky_bucket::LeakyBucket, penalty_box::PenaltyBox, period::InvalidLimit,
    sliding_window_counter::SlidingWindowCounter, sliding_window_log::SlidingWindowLog,
    token_bucket::TokenBucket,
};
use crate::algorithm::{
    bucket::{BucketState, RefundedBucketState},
    concurrency::ConcurrencyState,
    fixed_window::WindowState,
    penalty_box::PenaltyState,
    sliding_window_counter::CounterState,
    sliding_window_log::LogState,
};

/// The largest limit of a log, and with it the most stamps that one key stores.
const MAX_LOG: u64 = 10_000;
/// The size of a boxed state in units of 8 bytes, for the memory accounting: no boxed state takes
/// more than 48 bytes.
const BOX_UNITS: usize = 6;

/// The state that one limit stores for one key, tagged with its algorithm.
///
/// - A state carries the grain or the period that wrote it, so that a limit with other numbers can
///   convert it (law 9).
/// - A limit that finds a state of another algorithm treats it as absent.
/// - Small states are stored inline and larger ones are boxed. A bucket takes 24 bytes with its
///   tag, and the memory store keeps millions of them.
///
/// | state | inline | on the heap |
/// |---|---|---|
/// | bucket | 23 bytes | none |
/// | bucket with refunds | a pointer | 40 bytes or less |
/// | fixed window | 17 bytes | none |
/// | log | a pointer | a box, and 8 bytes for each stamp |
/// | counter | a pointer | 40 bytes |
/// | concurrency | a pointer | a box, and 16 bytes for each slot |
/// | penalty box | 19 bytes | none |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The debt of a token bucket that has had no refund.
    TokenBucket(BucketState),
    /// The debt of a leaky bucket that has had no refund. It is a variant of its own: a policy that
    /// changes from one kind of bucket to the other starts afresh.
    LeakyBucket(BucketState),
    /// A bucket of either kind that has had a refund or a changed unit. It is boxed, because
    /// refunds are rare and their count would cost every plain bucket 8 bytes.
    RefundedBucket(Box<RefundedBucketState>),
    /// The count of one window of the clock.
    FixedWindow(WindowState),
    /// One tick for each unit spent.
    SlidingWindowLog(Box<LogState>),
    /// The counts of two windows.
    SlidingWindowCounter(Box<CounterState>),
    /// The held slots and the ends of their leases.
    Concurrency(Box<ConcurrencyState>),
    /// The denials that count, and the block in force.
    PenaltyBox(PenaltyState),
}

impl State {
    /// The algorithm that wrote it. Other algorithms treat it as absent.
    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            State::TokenBucket(_) => Algorithm::TokenBucket,
            State::LeakyBucket(_) => Algorithm::LeakyBucket,
            State::RefundedBucket(bucket) => bucket.algorithm(),
            State::FixedWindow(_) => Algorithm::FixedWindow,
            State::SlidingWindowLog(_) => Algorithm::SlidingWindowLog,
            State::SlidingWindowCounter(_) => Algorithm::SlidingWindowCounter,
            State::Concurrency(_) => Algorithm::Concurrency,
            State::PenaltyBox(_) => Algorithm::PenaltyBox,
        }
    }

    /// The heap memory of this state in units of 8 bytes: the box, and the buffer of stamps (one
    /// unit each) or slots (two units each).
    ///
    /// The buffer counts by its capacity, not its length, because unused capacity takes memory as
    /// well.
    #[inline]
    pub(crate) fn stored_entries(&self) -> usize {
        match self {
            State::SlidingWindowLog(log) => BOX_UNITS + log.capacity(),
            State::Concurrency(slots) => BOX_UNITS + 2 * slots.capacity(),
            State::RefundedBucket(_) | State::SlidingWindowCounter(_) => BOX_UNITS,
            _ => 0,
        }
    }

    /// Whether requests hold slots here. The memory store does not evict such a state before
    /// others: the slots would be handed out again while they are in use.
    #[inline]
    pub(crate) fn has_slots(&self) -> bool {
        matches!(self, State::Concurrency(slots) if slots.len() > 0)
    }
}

/// Whether a buffer of `capacity` entries for `len` of them should shrink.
///
/// A buffer shrinks to twice its length once it is larger than four times its length, so that a key
/// that alternates around one size does not reallocate each time. A buffer of 64 entries or fewer
/// never shrinks.
#[inline]
fn is_oversized(capacity: usize, len: usize) -> bool {
    capacity > 4 * len.max(16)
}
