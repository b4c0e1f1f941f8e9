//! The measurements, one file per suite.

mod binaries;
mod busy_host;
mod cpu_time;
mod denied_flood;
mod duration;
mod envoy;
mod far;
mod fleet;
mod http;
mod load;
mod local_budgets;
mod memory;
mod prefetch;
mod redis_bytes;
mod redis_cost;
mod rest;
mod scale_instances;
mod scale_keys;
mod scale_limits;
mod scale_log;
mod scale_shards;
mod throughput;

pub use self::duration::Plan;
use crate::report::Report;

/// Measures something, and adds it to the report.
pub type Suite = fn(Plan, &mut Report);

/// All suites by the names that `--only` takes.
pub const SUITES: [(&str, Suite); 18] = [
    ("redis-cost", redis_cost::run),
    ("throughput", throughput::run),
    ("far", far::run),
    ("memory", memory::run),
    ("http", http::run),
    ("flood", denied_flood::run),
    ("redis-bytes", redis_bytes::run),
    ("scale-keys", scale_keys::run),
    ("scale-limits", scale_limits::run),
    ("scale-log", scale_log::run),
    ("scale-instances", scale_instances::run),
    ("scale-shards", scale_shards::run),
    ("prefetch", prefetch::run),
    ("local-budgets", local_budgets::run),
    ("fleet", fleet::run),
    ("busy-host", busy_host::run),
    ("envoy", envoy::run),
    ("rest", rest::run),
];

/// Suites that `--quick` leaves out unless `--only` names them.
pub const SLOW_SUITES: [&str; 6] = [
    "prefetch",
    "local-budgets",
    "fleet",
    "busy-host",
    "envoy",
    "rest",
];
