//! Benchmarks beside other limiters, and a gate for instruction and allocation counts.
//!
//! `cargo xtask bench` runs the measurements and writes `docs/bench`; `cargo xtask gate` compares
//! instruction counts and allocations with `budget.toml`. Neither judges by time where instructions
//! can be counted.
//!
//! ```text
//!     bin/bench ---- bin/instructions_peers, bin/instructions_local   under callgrind
//!         |    \---- bin/memory_usage         with an allocator that counts
//!         |     \--- redis-server             as it is, or under callgrind
//!      bench.json, charts, the tables of docs/explain/performance.md
//!         |
//!     bin/redraw --- charts and tables again, from bench.json
//!
//!     bin/gate ----- bin/instructions, redis-server   under callgrind
//!         |
//!      budget.toml
//! ```
//!
//! The feature `peers` adds the other limiters. The gate does without, so that it builds fast.

#![allow(
    clippy::float_arithmetic,
    reason = "measurements are divided and drawn; no decision depends on them"
)]

mod budget;
mod callgrind;
#[cfg(feature = "peers")]
mod far_link;
mod gate;
#[cfg(feature = "peers")]
pub mod peer;
mod report;
mod rest;
mod server;
#[cfg(feature = "peers")]
pub mod suite;
#[path = "../../ratelimit-server/src/svg.rs"]
mod svg;
mod workload;

pub use crate::{
    budget::{Budget, Finding, InvalidBudget},
    callgrind::{CountedServer, count, tell_counts},
    gate::{Measured, measure_gate},
    report::{
        Chart, Circumstances, FOLDER, Goal, InvalidReport, MissingMarkers, PAGE, Peer, Report, Row,
        Scale, Series, Spread, fill, in_turn,
    },
    server::RedisServer,
    workload::{Work, fallback, layer, memory, poll_now, prefetch},
};
