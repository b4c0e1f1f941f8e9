//! Rates a second, until the sampler is there.

use crate::app::App;

/// The rates of one policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PolicyRates {
    pub(crate) checks: f64,
    pub(crate) denied: f64,
    pub(crate) unchecked: f64,
    pub(crate) would_deny: f64,
    pub(crate) deny_cached: f64,
    pub(crate) prefetched: f64,
    pub(crate) store: f64,
    pub(crate) p99_micros: Option<u64>,
}

impl App {
    #[expect(clippy::unused_self, reason = "a stub")]
    pub(crate) fn policy_rates(&self, _: &str) -> PolicyRates {
        PolicyRates::default()
    }
}
