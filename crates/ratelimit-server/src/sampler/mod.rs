//! Rates a second, from the differences of counters.
//!
//! One sampler serves all readers. It reads the values of the metrics, not their text: an atomic load for each counter of a policy,
//! and for each bucket of its histogram. `docs/operations.md` has the measured cost.
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
//! - `store_health.rs`: the state of the store.

mod counts;
mod history;
mod latency;
mod rates;
mod store_health;

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use ratelimit_core::metrics::{
    CHECK_SECONDS, DENY_CACHED, OVER, PREFETCH_HITS, REQUESTS, ROUND_TRIP_SECONDS, UNCHECKED,
};
use ratelimit_http::metrics::POLICY_RELOADS;

pub(crate) use self::{
    counts::FALLBACK_MODES,
    history::History,
    rates::{PolicyRates, SecondRates},
    store_health::StoreHealth,
};
use self::{
    counts::{CheckCounts, Part, PartCounts},
    latency::{Durations, RecentDurations},
    store_health::StoreSeries,
};
use crate::metrics::{BucketHistogram, MetricsHandle, SampledSeries, SampledValue, SharedValue};

/// The number of samples after which the latencies of policies forget the samples before them.
const SAMPLES_PER_ROTATION: u64 = 30;

/// Turns the metrics of the process into rates, once a second.
///
/// The owner calls [`sample`](Self::sample); readers see the last sample. Without a call all rates are 0.
pub(crate) struct Sampler {
    metrics: MetricsHandle,
    state: Mutex<SamplerState>,
}

/// All policies together in the last second, and the store.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    /// Unix seconds; 0 before the first sample.
    pub(crate) at: u64,
    pub(crate) elapsed: Duration,
    pub(crate) rates: SecondRates,
    /// The mean duration of the calls to Redis that ended in this second.
    pub(crate) round_trip: Option<Duration>,
    pub(crate) store: StoreHealth,
    pub(crate) reload: Option<LastReload>,
}

/// The last reload of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastReload {
    pub(crate) is_ok: bool,
    /// Unix seconds of the sample that found it.
    pub(crate) at: u64,
}

/// The rates of a policy by its name.
pub(crate) struct NamedRates {
    pub(crate) name: String,
    pub(crate) rates: PolicyRates,
}

#[derive(Default)]
struct SamplerState {
    /// The number of series that were taken over.
    seen: usize,
    places: HashMap<String, usize>,
    policies: Vec<SampledPolicy>,
    counters: Vec<(usize, Part, SharedValue)>,
    timers: Vec<(usize, Arc<BucketHistogram>)>,
    round_trips: Option<RoundTrips>,
    store: StoreSeries,
    /// Reloads that succeeded and that were rejected, and the counts of the last sample.
    reloads: Vec<(bool, SharedValue, u64)>,
    samples: u64,
    last: Sample,
    history: History,
}

/// The counters of one policy, and its rates in the last second.
#[derive(Default)]
struct SampledPolicy {
    name: String,
    now: PartCounts,
    before: PartCounts,
    carry: PartCounts,
    /// In units of 1/1024 a second.
    units: CheckCounts,
    latency: RecentDurations,
    /// Whether a check was in shadow mode.
    is_watched: bool,
}

/// The durations of calls to Redis, and their count and sum at the last sample.
struct RoundTrips {
    histogram: Arc<BucketHistogram>,
    count: u64,
    seconds: f64,
}

impl Sampler {
    /// A sampler whose first second starts now: earlier checks are in no rate.
    pub(crate) fn new(metrics: MetricsHandle) -> Sampler {
        let mut state = SamplerState::default();
        state.take_over(&metrics.sampled_after(0));
        state.read_counters();
        for policy in &mut state.policies {
            policy.before = policy.now;
        }
        for (place, histogram) in &state.timers {
            let seen = Durations::read(histogram);
            state.policies[*place].latency = RecentDurations::since(seen);
        }
        if let Some(round_trips) = &mut state.round_trips {
            round_trips.mean();
        }
        for (_, counter, count) in &mut state.reloads {
            *count = counter.load(Ordering::Relaxed);
        }
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
        let state = self.state();
        let policy = state.places.get(name).map(|place| &state.policies[*place]);
        policy.map_or_else(PolicyRates::default, SampledPolicy::rates)
    }

    /// The policies with the most checks in the last second, at most `max`.
    ///
    /// Policies without a check in it follow by their checks so far, if `is_current` knows them.
    pub(crate) fn busiest(&self, max: usize, is_current: impl Fn(&str) -> bool) -> Vec<NamedRates> {
        let state = self.state();
        let mut found: Vec<&SampledPolicy> = state.policies.iter().collect();
        found.retain(|policy| {
            policy.units.checks() > 0 || (policy.now.checks() > 0 && is_current(&policy.name))
        });
        let rank = |policy: &&SampledPolicy| {
            (
                Reverse(policy.units.checks()),
                Reverse(policy.now.checks()),
                policy.name.clone(),
            )
        };
        found.sort_by_cached_key(rank);
        found.truncate(max);
        found.into_iter().map(SampledPolicy::named_rates).collect()
    }

    /// The policies that were checked in shadow mode.
    pub(crate) fn watched(&self) -> Vec<NamedRates> {
        let state = self.state();
        let watched = state.policies.iter().filter(|policy| policy.is_watched);
        watched.map(SampledPolicy::named_rates).collect()
    }

    fn state(&self) -> MutexGuard<'_, SamplerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SamplerState {
    /// Takes over series that were registered since the last sample. Their counts so far belong to this second.
    fn take_over(&mut self, new: &[SampledSeries]) {
        self.seen += new.len();
        for series in new {
            self.store.add(series);
            match &series.value {
                SampledValue::Counter(counter) if series.name() == POLICY_RELOADS => {
                    let is_ok = series.label("result") == Some("ok");
                    self.reloads.push((is_ok, Arc::clone(counter), 0));
                }
                SampledValue::Counter(counter) => {
                    if let Some(part) = part_of(series) {
                        let place = self.place(series);
                        self.policies[place].is_watched |= series.label("shadow").is_some();
                        self.counters.push((place, part, Arc::clone(counter)));
                    }
                }
                SampledValue::Histogram(histogram) if series.name() == CHECK_SECONDS => {
                    let place = self.place(series);
                    self.timers.push((place, Arc::clone(histogram)));
                }
                SampledValue::Histogram(histogram) if series.name() == ROUND_TRIP_SECONDS => {
                    self.round_trips = Some(RoundTrips {
                        histogram: Arc::clone(histogram),
                        count: 0,
                        seconds: 0.0,
                    });
                }
                _ => {}
            }
        }
    }

    /// The place of the policy of a series.
    fn place(&mut self, series: &SampledSeries) -> usize {
        let name = series.label("policy").unwrap_or_default();
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.policies.len();
        self.places.insert(name.to_owned(), place);
        self.policies.push(SampledPolicy {
            name: name.to_owned(),
            ..SampledPolicy::default()
        });
        place
    }

    fn read_counters(&mut self) {
        for policy in &mut self.policies {
            policy.now = PartCounts::default();
        }
        for (place, part, counter) in &self.counters {
            self.policies[*place].now[*part] += counter.load(Ordering::Relaxed);
        }
    }

    fn sample(&mut self, at: u64, elapsed: Duration) {
        self.read_counters();
        let mut total = CheckCounts::default();
        for policy in &mut self.policies {
            let counts = policy.advance();
            policy.units = counts.per_second(elapsed);
            total.add(&counts);
        }
        self.samples += 1;
        let durations = self.advance_timers();
        let rates = SecondRates {
            total: PolicyRates::new(&total.per_second(elapsed), None),
            p50_micros: durations.quantile_micros(50),
            p99_micros: durations.quantile_micros(99),
        };
        self.history.push(at, elapsed, rates);
        self.last = Sample {
            at,
            elapsed,
            rates,
            round_trip: self.round_trips.as_mut().and_then(RoundTrips::mean),
            store: self.store.sample(elapsed),
            reload: self.find_reload(at).or(self.last.reload),
        };
    }

    /// The durations of the checks that were timed since the last sample.
    fn advance_timers(&mut self) -> Durations {
        let mut all = Durations::default();
        for (place, histogram) in &self.timers {
            let latency = &mut self.policies[*place].latency;
            all.add(&latency.advance(&Durations::read(histogram)));
            if self.samples.is_multiple_of(SAMPLES_PER_ROTATION) {
                latency.rotate();
            }
        }
        all
    }

    /// The reload since the last sample. A rejected one wins over one that succeeded within the same second.
    fn find_reload(&mut self, at: u64) -> Option<LastReload> {
        let mut found: Option<LastReload> = None;
        for (is_ok, counter, before) in &mut self.reloads {
            let count = counter.load(Ordering::Relaxed);
            if count > *before && found.is_none_or(|reload| reload.is_ok) {
                let is_ok = *is_ok;
                found = Some(LastReload { is_ok, at });
            }
            *before = count;
        }
        found
    }
}

impl SampledPolicy {
    /// The checks since the last call.
    fn advance(&mut self) -> CheckCounts {
        if self.now == self.before && self.carry == PartCounts::default() {
            return CheckCounts::default();
        }
        let increase = self.now.since(&self.before);
        self.before = self.now;
        CheckCounts::settle(&increase, &mut self.carry)
    }

    fn rates(&self) -> PolicyRates {
        PolicyRates::new(&self.units, self.latency.quantile_micros(99))
    }

    fn named_rates(&self) -> NamedRates {
        NamedRates {
            name: self.name.clone(),
            rates: self.rates(),
        }
    }
}

impl RoundTrips {
    /// The mean of the calls since the last sample.
    #[expect(clippy::float_arithmetic, reason = "the sum of a histogram is a float")]
    fn mean(&mut self) -> Option<Duration> {
        let (count, seconds) = (self.histogram.counts().sum(), self.histogram.sum());
        let calls = u32::try_from(count - self.count.min(count)).unwrap_or(u32::MAX);
        let spent = seconds - self.seconds;
        (self.count, self.seconds) = (count, seconds);
        if calls == 0 {
            return None;
        }
        Duration::try_from_secs_f64(spent / f64::from(calls)).ok()
    }
}

/// The part that a counter of a policy adds to.
fn part_of(series: &SampledSeries) -> Option<Part> {
    let is = |label: &str, value: &str| series.label(label) == Some(value);
    match series.name() {
        REQUESTS if is("allowed", "true") => Some(Part::Fitting),
        REQUESTS if is("shadow", "true") => Some(Part::WouldDeny),
        REQUESTS => Some(Part::Denied),
        OVER => Some(Part::Over),
        DENY_CACHED => Some(Part::DenyCached),
        PREFETCH_HITS => Some(Part::Prefetched),
        UNCHECKED => {
            let mode = FALLBACK_MODES.iter().position(|mode| is("mode", mode));
            mode.map(Part::Fallback)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
