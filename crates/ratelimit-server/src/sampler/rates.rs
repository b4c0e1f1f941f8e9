//! Rates a second.

use super::counts::{CheckCounts, FALLBACK_MODES, in_seconds};

/// The rates of one policy in the last second. `checks = allowed + over + denied` holds exactly.
///
/// - `would_deny` is a part of `allowed`: checks that the policy would deny if it were not in shadow mode.
/// - `checks = store + unchecked + deny_cached + prefetched`, by who decided, but for rounding to 1/1024.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PolicyRates {
    pub(crate) checks: f64,
    pub(crate) allowed: f64,
    pub(crate) over: f64,
    pub(crate) denied: f64,
    /// Checks that the failure mode decided, because the store did not.
    pub(crate) unchecked: f64,
    pub(crate) would_deny: f64,
    pub(crate) deny_cached: f64,
    pub(crate) prefetched: f64,
    /// Checks that the store decided when they were made.
    pub(crate) store: f64,
    /// `unchecked` by failure mode, in the order of [`FALLBACK_MODES`].
    pub(crate) fallback: [f64; FALLBACK_MODES.len()],
    /// Of the checks of the last 30 to 60 seconds that were timed.
    pub(crate) p99_micros: Option<u64>,
}

impl PolicyRates {
    /// Rates in units of 1/1024 a second, as numbers of a second.
    pub(super) fn new(units: &CheckCounts, p99_micros: Option<u64>) -> PolicyRates {
        PolicyRates {
            checks: in_seconds(units.checks()),
            allowed: in_seconds(units.allowed),
            over: in_seconds(units.over),
            denied: in_seconds(units.denied),
            unchecked: in_seconds(units.unchecked()),
            would_deny: in_seconds(units.would_deny),
            deny_cached: in_seconds(units.deny_cached),
            prefetched: in_seconds(units.prefetched),
            store: in_seconds(units.by_store()),
            fallback: units.fallback.map(in_seconds),
            p99_micros,
        }
    }
}

/// The rates of all policies in one second, and the latency of the decisions that were timed in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SecondRates {
    /// Without `p99_micros`.
    pub(crate) total: PolicyRates,
    pub(crate) p50_micros: Option<u64>,
    pub(crate) p99_micros: Option<u64>,
}
