//! Faults that every layer can be put through, ours and the plain ones.

mod network;
mod process;
mod replies;
mod scenario_run;
mod server;

use std::{future::Future, pin::Pin};

pub use self::{
    network::{half_open, refused},
    process::{killed, paused, stopped},
    replies::{late_replies, lost_replies, lost_requests, torn_replies},
    scenario_run::ScenarioRun,
    server::{demoted, flushed_scripts, killed_connections, wrong_password},
};
use super::{fixture::Kind, report::Report};

/// Puts a layer through a fault.
pub type Scenario = fn(Kind) -> Pin<Box<dyn Future<Output = Report>>>;

/// All of them, by their row in the list of faults.
pub const ALL: [(u32, Scenario); 13] = [
    (1, |kind| Box::pin(killed(kind))),
    (3, |kind| Box::pin(stopped(kind))),
    (4, |kind| Box::pin(paused(kind))),
    (5, |kind| Box::pin(half_open(kind))),
    (6, |kind| Box::pin(torn_replies(kind))),
    (7, |kind| Box::pin(lost_replies(kind))),
    (8, |kind| Box::pin(lost_requests(kind))),
    (9, |kind| Box::pin(late_replies(kind))),
    (10, |kind| Box::pin(flushed_scripts(kind))),
    (14, |kind| Box::pin(demoted(kind))),
    (18, |kind| Box::pin(wrong_password(kind))),
    (19, |kind| Box::pin(killed_connections(kind))),
    (22, |kind| Box::pin(refused(kind))),
];
