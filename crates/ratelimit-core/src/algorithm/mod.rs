//! The seven counting algorithms: one file each, with its parameters, its stored state and its
//! step.
//!
//! An algorithm is pure integer arithmetic. It reads no clock, takes no lock and uses no floating
//! point; it allocates only memory of its own state. The caller passes the present time and the
//! stored [`State`].
//!
//! - [`Step`] is the interface. `advance` brings a stored state to the present, `fit` compares it
//!   with the demand, `write` stores the charge, `report` derives the numbers that users see.
//! - [`Period`] is a length of time in ticks of a [`Grain`]. Every product of a limit and its
//!   period stays below 2^53 (law 6 of `docs/architecture.md`), because a Lua number is exact only
//!   up to there.
//! - [`Bucket`] is the arithmetic of the token bucket and of the leaky bucket, which differ in
//!   their delay only.
//! - `lua/<algorithm>.lua` holds the same step for Redis, with the same names. A change here
//!   changes Rust, Lua, the page `docs/algorithms/<algorithm>.md` and the model of the tests
//!   together.
//!
//! The memory store calls `Step::step`. The Redis store runs the Lua twin, which decides and
//! stores; Rust then decodes the numbers of its reply ([`Step::decode_wire`]) and calls the same
//! `report`. So both stores return equal decisions, field by field (law 5).

mod bucket;
mod concurrency;
mod fixed_window;
mod kind;
mod leaky_bucket;
mod penalty_box;
mod period;
mod sliding_window_counter;
mod sliding_window_log;
mod state;
mod step;
mod token_bucket;

pub(crate) use self::period::Grain;
#[cfg(feature = "redis")]
pub(crate) use self::step::WireState;
pub(crate) use self::{
    bucket::Bucket,
    concurrency::Renewal,
    period::Period,
    state::State,
    step::{Demand, Effect, Fit, Refund, Step, StepResult},
};
pub use self::{
    concurrency::Concurrency, fixed_window::FixedWindow, kind::Algorithm,
    leaky_bucket::LeakyBucket, penalty_box::PenaltyBox, period::InvalidLimit,
    sliding_window_counter::SlidingWindowCounter, sliding_window_log::SlidingWindowLog,
    token_bucket::TokenBucket,
};
