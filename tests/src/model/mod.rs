//! The algorithms in exact arithmetic, written from the design alone.
//!
//! A [`Model`] is the value of one policy and key. It says what every store must answer, in the most
//! obvious words and without care for speed:
//!
//! ```
//! use ratelimit_tests::model::{Answer, Model, Spec};
//!
//! let limits = [Spec::FixedWindow { limit: 1, period_us: 60_000_000 }];
//! let mut model = Model::new();
//!
//! assert_eq!(model.hit(&limits, 0, 1).overall.answer, Answer::Allowed { delay_us: 0 });
//! let denied = Answer::Denied { retry_after_us: 60_000_000 };
//! assert_eq!(model.hit(&limits, 0, 1).overall.answer, denied);
//! ```

mod bucket;
mod concurrency;
mod decision;
mod fixed_window;
mod hit;
mod joint;
mod penalty_box;
pub mod prefetch;
mod settle;
mod sliding_window_counter;
mod sliding_window_log;
mod spec;
mod state;
mod stored_value;
mod tick;

#[cfg(test)]
mod tests;

pub use self::{
    decision::{Answer, ModelDecision, ModelMark, Numbers},
    hit::ModelHit,
    joint::{ModelMember, ModelRole, hit_joint},
    settle::{Change, ModelReceipt, Settled},
    spec::Spec,
    stored_value::Model,
};
