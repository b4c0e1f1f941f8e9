//! How counting works: one file for each algorithm, with its parameters, its state and its step.

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
