//! Hits at random, and what becomes of them, aimed at the edges where limiters err.

mod aim;
mod build;
mod joint;
mod receipts;
mod specs;
mod step;
mod trace;

pub use self::{
    aim::{ALGORITHMS, Aim},
    build::{to_limit, to_policy, to_soft_policy},
    joint::JointTrace,
    step::{Step, TracedHit, TracedSettle},
    trace::Trace,
};
