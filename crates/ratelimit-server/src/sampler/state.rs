//! The series that are sampled, and the last sample.

use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ratelimit_core::metrics::{
    CHECK_SECONDS, DENY_CACHED, OVER, PREFETCH_HITS, REQUESTS, ROUND_TRIP_SECONDS, UNCHECKED,
};
use ratelimit_http::metrics::POLICY_RELOADS;

use super::{
    counts::{CheckCounts, FALLBACK_MODES, Part, PartCounts},
    history::History,
    latency::{Durations, RecentDurations},
    rates::{NamedRates, PolicyRates, SecondRates},
    store_health::{StoreHealth, StoreSeries},
};
use crate::metrics::{BucketHistogram, SampledSeries, SampledValue, SharedValue};

/// The number of samples after which the latencies of policies forget the samples before them.
const SAMPLES_PER_ROTATION: u64 = 30;

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

/// The series of all policies and of the store, their counts at the last sample, and that sample.
#[derive(Default)]
pub(super) struct SamplerState {
    /// The number of series that were taken over.
    pub(super) seen: usize,
    places: HashMap<String, usize>,
    policies: Vec<SampledPolicy>,
    counters: Vec<(usize, Part, SharedValue)>,
    timers: Vec<CheckTimer>,
    round_trips: Option<RoundTrips>,
    store: StoreSeries,
    /// Reloads that succeeded and that were rejected, and the counts of the last sample.
    reloads: Vec<(bool, SharedValue, u64)>,
    samples: u64,
    pub(super) last: Sample,
    pub(super) history: History,
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

/// The durations of the checks of one policy.
struct CheckTimer {
    place: usize,
    histogram: Arc<BucketHistogram>,
    /// The sum of the last sample that read the buckets. Reading 17 buckets of each idle policy would cost more than all else.
    seconds: f64,
}

/// The durations of calls to Redis, and their count and sum at the last sample.
struct RoundTrips {
    histogram: Arc<BucketHistogram>,
    count: u64,
    seconds: f64,
}

impl SamplerState {
    /// The state at the start: the counts of these series so far are in no rate.
    pub(super) fn starting_with(series: &[SampledSeries]) -> SamplerState {
        let mut state = SamplerState::default();
        state.take_over(series);
        state.read_counters();
        for policy in &mut state.policies {
            policy.before = policy.now;
        }
        for timer in &mut state.timers {
            timer.seconds = timer.histogram.sum();
            let seen = Durations::read(&timer.histogram);
            state.policies[timer.place].latency = RecentDurations::since(seen);
        }
        if let Some(round_trips) = &mut state.round_trips {
            round_trips.mean();
        }
        for (_, counter, count) in &mut state.reloads {
            *count = counter.load(Ordering::Relaxed);
        }
        state
    }

    pub(super) fn policy_rates(&self, name: &str) -> PolicyRates {
        let policy = self.places.get(name).map(|place| &self.policies[*place]);
        policy.map_or_else(PolicyRates::default, SampledPolicy::rates)
    }

    pub(super) fn busiest(&self, max: usize, is_current: impl Fn(&str) -> bool) -> Vec<NamedRates> {
        let mut busiest: Vec<&SampledPolicy> = Vec::with_capacity(max + 1);
        for policy in self.policies.iter().filter(|policy| policy.has_checks()) {
            let place = busiest.partition_point(|other| other.rank() <= policy.rank());
            let is_idle = policy.units.checks() == 0;
            if place < max && (!is_idle || is_current(&policy.name)) {
                busiest.insert(place, policy);
                busiest.truncate(max);
            }
        }
        let busiest = busiest.into_iter();
        busiest.map(SampledPolicy::named_rates).collect()
    }

    pub(super) fn watched(&self) -> Vec<NamedRates> {
        let watched = self.policies.iter().filter(|policy| policy.is_watched);
        watched.map(SampledPolicy::named_rates).collect()
    }

    /// Takes over series that were registered since the last sample. Their counts so far belong to this second.
    pub(super) fn take_over(&mut self, new: &[SampledSeries]) {
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
                    let timer = CheckTimer {
                        place: self.place(series),
                        histogram: Arc::clone(histogram),
                        seconds: 0.0,
                    };
                    self.timers.push(timer);
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

    pub(super) fn sample(&mut self, at: u64, elapsed: Duration) {
        self.read_counters();
        let mut total = CheckCounts::default();
        for policy in &mut self.policies {
            let counts = policy.advance();
            // Most policies are idle, and the divisions cost more than all else.
            if counts == CheckCounts::default() {
                policy.units = counts;
                continue;
            }
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
        for timer in &mut self.timers {
            let seconds = timer.histogram.sum();
            if seconds.to_bits() != timer.seconds.to_bits() {
                timer.seconds = seconds;
                let latency = &mut self.policies[timer.place].latency;
                all.add(&latency.advance(&Durations::read(&timer.histogram)));
            }
        }
        if self.samples.is_multiple_of(SAMPLES_PER_ROTATION) {
            for policy in &mut self.policies {
                policy.latency.rotate();
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

    fn has_checks(&self) -> bool {
        self.now.checks() > 0
    }

    /// Orders policies by their checks of the last second, then by those so far, the busiest first.
    fn rank(&self) -> (Reverse<u64>, Reverse<u64>, &str) {
        let so_far = Reverse(self.now.checks());
        (Reverse(self.units.checks()), so_far, &self.name)
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
