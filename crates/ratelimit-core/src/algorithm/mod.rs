//! How counting works: one file for each algorithm, with its parameters, its state and its step.

mod bucket;
mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod name;
mod penalty_box;
mod period;
mod sliding_window_counter;
mod sliding_window_log;
mod state;
mod step;
mod token_bucket;

#[cfg(any(feature = "toml", feature = "yaml"))]
pub(crate) use self::period::Grain;
#[cfg(feature = "redis")]
pub(crate) use self::step::Words;
pub(crate) use self::{
    bucket::Bucket,
    concurrency::Renewed,
    period::Period,
    state::State,
    step::{Ask, Fit, Refund, Spend, Step, Stepped},
};
pub use self::{
    concurrency::Concurrency, fixed_window::FixedWindow, leaky_bucket::LeakyBucket,
    name::Algorithm, penalty_box::PenaltyBox, period::InvalidLimit,
    sliding_window_counter::SlidingWindowCounter, sliding_window_log::SlidingWindowLog,
    token_bucket::TokenBucket,
};
