//! Rates a second, from the differences of counters.
//!
//! One sampler serves all readers. It reads the values of the metrics, not their text: an atomic load for each counter of a policy,
//! and for each bucket of its histogram. `docs/reference/console-api.md` has the measured cost.
//!
//! How the engine counts a check, and what becomes of it here:
//!
//! | check | `requests_total` | further counters | `allowed` | `over` | `denied` | also in |
//! |---|---|---|---|---|---|---|
//! | fits | `allowed="true"` | | 1 | | | |
//! | allowed beyond a limit by a throttle | `allowed="true"` | `over_total` | | 1 | | |
//! | denied | `allowed="false"` | | | | 1 | |
//! | fits, in shadow mode | `allowed="true",shadow="true"` | | 1 | | | |
//! | does not fit, in shadow mode: passes | `allowed="false",shadow="true"` | | 1 | | | `would_deny` |
//! | denied by the deny cache | as above | `deny_cached_total` | | | 1 | `deny_cached` |
//! | decided from prefetched units | as above | `prefetch_hits_total` | as above | | | `prefetched` |
//! | decided by the failure mode | as above, without `shadow` in the modes `open` and `closed` | `unchecked_total` | as above | | | `unchecked` |
//!
//! So `checks = allowed + over + denied`, and the columns of the right are parts of the others. Requests that a rule blocks are
//! not checks. Peeks and dry runs are not counted.
//!
//! - `counts.rs`: the table as arithmetic. `latency.rs`: quantiles. `history.rs`: the last 300 seconds.
//! - `state.rs`: the series and the last sample. `store_health.rs`: the state of the store.

mod counts;
mod history;
mod latency;
mod rates;
mod state;
mod store_health;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use self::state::SamplerState;
pub(crate) use self::{
    counts::FALLBACK_MODES,
    history::History,
    rates::{NamedRates, PolicyRates, SecondRates},
    state::Sample,
    store_health::StoreHealth,
};
use crate::metrics::MetricsHandle;

/// Turns the metrics of the process into rates, once a second.
///
/// The owner calls [`sample`](Self::sample); readers see the last sample. Without a call all rates are 0.
pub(crate) struct Sampler {
    metrics: MetricsHandle,
    state: Mutex<SamplerState>,
}

impl Sampler {
    /// A sampler whose first second starts now: earlier checks are in no rate.
    pub(crate) fn new(metrics: MetricsHandle) -> Sampler {
        let state = SamplerState::starting_with(&metrics.sampled_after(0));
        Sampler {
            metrics,
            state: Mutex::new(state),
        }
    }

    /// Ends a second at the Unix second `at`, `elapsed` after the last call.
    ///
    /// Rates are those of the true span. Seconds without a call, because the process or the machine was busy, are gaps in the
    /// history.
    pub(crate) fn sample(&self, at: u64, elapsed: Duration) {
        let mut state = self.state();
        let new = self.metrics.sampled_after(state.seen);
        state.take_over(&new);
        state.sample(at, elapsed);
    }

    /// The last sample.
    pub(crate) fn last(&self) -> Sample {
        self.state().last.clone()
    }

    /// The samples of the last 300 seconds.
    pub(crate) fn history(&self) -> History {
        self.state().history.clone()
    }

    /// The rates of a policy; 0 if nothing was checked under that name.
    pub(crate) fn policy_rates(&self, name: &str) -> PolicyRates {
        self.state().policy_rates(name)
    }

    /// The rates of several policies, in their order.
    pub(crate) fn rates_of<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<PolicyRates> {
        let state = self.state();
        names.map(|name| state.policy_rates(name)).collect()
    }

    /// The policies with the most checks in the last second, at most `max`.
    ///
    /// Policies without a check in it follow by their checks so far, if `is_current` knows them.
    pub(crate) fn busiest(&self, max: usize, is_current: impl Fn(&str) -> bool) -> Vec<NamedRates> {
        self.state().busiest(max, is_current)
    }

    /// The policies that were checked in shadow mode.
    pub(crate) fn watched(&self) -> Vec<NamedRates> {
        self.state().watched()
    }

    fn state(&self) -> MutexGuard<'_, SamplerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
