//! `simulate`: what a policy would answer to a trace.

mod command;
mod decimal;
mod film;
mod replay;
mod trace;
mod traffic;

pub use self::command::Simulate;
#[cfg(test)]
pub(crate) use self::film::Point;
pub(crate) use self::{
    film::{Budget, Scene},
    replay::{Fate, Replayed, Shown},
};
