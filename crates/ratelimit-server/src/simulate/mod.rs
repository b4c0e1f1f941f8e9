//! `simulate`: the decisions of a policy on a trace.

mod budget_line;
mod chart;
mod command;
mod decimal;
mod fleet;
mod frames;
mod hit_outcome;
mod lines;
mod policies;
mod progress;
mod replay;
mod scene;
mod summary;
mod time_span;
mod trace;
mod traffic;

pub use self::command::Simulate;
#[cfg(feature = "console")]
pub(crate) use self::{
    budget_line::{BudgetLine, BudgetPoint},
    command::capacity_for,
    hit_outcome::HitOutcome,
    policies::{check_key_names, parse_throttle},
    replay::{Replay, ReplayOutput, Run},
    scene::{Bin, bins, departures, window_edges},
    summary::Summary,
    time_span::TimeSpan,
    trace::{TraceHit, TraceReader},
    traffic::Traffic,
};
