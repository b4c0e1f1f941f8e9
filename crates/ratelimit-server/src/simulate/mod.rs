//! `simulate`: the decisions of a policy on a trace.

mod chart;
mod command;
mod decimal;
mod fleet;
mod frames;
mod replay;
mod report;
mod trace;
mod traffic;

pub use self::command::Simulate;
