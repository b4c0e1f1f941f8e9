//! `simulate`: what a policy would answer to a trace.

mod command;
mod decimal;
mod memory;
mod replay;
mod trace;
mod traffic;

pub use self::command::Simulate;
pub(crate) use self::replay::{Fate, Shown};
