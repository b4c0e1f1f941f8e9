//! Measurements, and their JSON, tables and charts.

mod chart;
mod json;
mod page;
mod row;
mod spread;
mod table;

pub use self::{
    chart::{Chart, Scale, Series},
    page::{MissingMarkers, fill},
    row::{Goal, Peer, Row},
    spread::{Spread, in_turn},
};

/// Where and how a run was made.
#[derive(Clone, Debug)]
pub struct Circumstances {
    /// The processors that it had.
    pub cores: usize,
    /// The version of the redis-server.
    pub redis: String,
    /// The command that repeats it.
    pub command: String,
}

/// All that one run measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where and how.
    pub circumstances: Circumstances,
    /// One number of ours each, with a peer's or a goal beside it.
    pub rows: Vec<Row>,
    /// How numbers grow.
    pub charts: Vec<Chart>,
}
