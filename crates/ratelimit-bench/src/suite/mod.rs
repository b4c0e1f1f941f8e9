//! The measurements, one file for each family of rows.

mod drive;
mod flood;
mod http;
mod memory;
mod plan;
mod redis_bytes;
mod redis_cost;
mod scale_instances;
mod scale_keys;
mod scale_limits;
mod scale_log;
mod scale_shards;
mod sibling;
mod throughput;

pub use self::plan::Plan;
use crate::report::Report;

/// Measures something, and adds it to the report.
pub type Family = fn(Plan, &mut Report);

/// All families, by the words that `--only` takes.
pub const FAMILIES: [(&str, Family); 11] = [
    ("redis-cost", redis_cost::run),
    ("throughput", throughput::run),
    ("memory", memory::run),
    ("http", http::run),
    ("flood", flood::run),
    ("redis-bytes", redis_bytes::run),
    ("scale-keys", scale_keys::run),
    ("scale-limits", scale_limits::run),
    ("scale-log", scale_log::run),
    ("scale-instances", scale_instances::run),
    ("scale-shards", scale_shards::run),
];
