//! The JSON of the events.

use std::{cmp::Reverse, collections::BTreeMap};

use ratelimit_core::Policy;
use serde::Serialize;

use crate::{
    app::App,
    sampler::{FALLBACK_MODES, History, NamedRates, Sample, SecondRates, StoreHealth},
};

/// The most policies of `top` and of `watched`.
const MAX_POLICIES: usize = 20;

/// The first event: the server, and the last 300 seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hello {
    server: &'static str,
    application: String,
    listen: String,
    started_at: u64,
    trusted: Vec<String>,
    /// `None` for the memory store, which needs no time.
    time_budget_micros: Option<u64>,
    history: HistoryColumns,
}

/// The history by column. A second without a sample is `None` in each.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct HistoryColumns {
    t: Vec<u64>,
    checks: Vec<Option<f64>>,
    allowed: Vec<Option<f64>>,
    over: Vec<Option<f64>>,
    denied: Vec<Option<f64>>,
    unchecked: Vec<Option<f64>>,
    would_deny: Vec<Option<f64>>,
    p50_micros: Vec<Option<u64>>,
    p99_micros: Vec<Option<u64>>,
}

impl Hello {
    pub(super) fn new(app: &App, history: &History) -> Hello {
        let budget = (app.store() == "redis").then(|| app.bounds().decision);
        Hello {
            server: concat!("ratelimit-server ", env!("CARGO_PKG_VERSION")),
            application: app.application().to_owned(),
            listen: app.listen().to_string(),
            started_at: app.live().started_at,
            trusted: app.rules().trusted.clone(),
            time_budget_micros: budget.map(|budget| micros(budget.as_micros())),
            history: HistoryColumns::new(history),
        }
    }

    pub(super) fn to_json(&self) -> String {
        write(self)
    }
}

impl HistoryColumns {
    fn new(history: &History) -> HistoryColumns {
        let mut columns = HistoryColumns::default();
        for point in history.points() {
            let total = point.rates.map(|rates| rates.total);
            columns.t.push(point.at);
            columns.checks.push(total.map(|rates| rates.checks));
            columns.allowed.push(total.map(|rates| rates.allowed));
            columns.over.push(total.map(|rates| rates.over));
            columns.denied.push(total.map(|rates| rates.denied));
            columns.unchecked.push(total.map(|rates| rates.unchecked));
            columns.would_deny.push(total.map(|rates| rates.would_deny));
            let latency =
                |micros: fn(&SecondRates) -> Option<u64>| point.rates.as_ref().and_then(micros);
            columns.p50_micros.push(latency(|rates| rates.p50_micros));
            columns.p99_micros.push(latency(|rates| rates.p99_micros));
        }
        columns
    }
}

/// The event of one second.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tick {
    t: u64,
    /// The true span. A rate times it is a number of checks.
    elapsed_micros: u64,
    checks: f64,
    allowed: f64,
    over: f64,
    denied: f64,
    unchecked: f64,
    would_deny: f64,
    deny_cached: f64,
    prefetched: f64,
    p50_micros: Option<u64>,
    p99_micros: Option<u64>,
    round_trip_micros: Option<u64>,
    store: StoreState,
    reload: Option<Reload>,
    top: Vec<TopPolicy>,
    watched: Vec<WatchedPolicy>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StoreState {
    kind: &'static str,
    up: bool,
    down_micros: u64,
    server: Option<String>,
    version: Option<String>,
    reconnects: u64,
    ambiguous: u64,
    evicted: u64,
}

#[derive(Serialize)]
struct Reload {
    result: &'static str,
    at: u64,
}

/// A busy policy. Its checks are `store + fallback + denyCached + prefetched`, by who decided.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TopPolicy {
    policy: String,
    limits: Option<String>,
    checks: f64,
    denied: f64,
    would_deny: f64,
    store: f64,
    fallback: f64,
    /// `fallback` by failure mode, as the label `mode` of `rate_limiter_unchecked_total`; without modes that decided nothing.
    fallback_modes: BTreeMap<&'static str, f64>,
    deny_cached: f64,
    prefetched: f64,
}

/// A policy in shadow mode, for all keys or for some.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchedPolicy {
    policy: String,
    /// Percent of the keys that are enforced.
    enforced: u8,
    checks: f64,
    would_deny: f64,
}

impl WatchedPolicy {
    /// Orders policies by what they would deny, then by their checks, the busiest first.
    fn rank(&self) -> (Reverse<u64>, Reverse<u64>, &str) {
        // Rates are whole in units of 1/1024, so their bits order them.
        let [would_deny, checks] =
            [self.would_deny, self.checks].map(|rate| Reverse(rate.to_bits()));
        (would_deny, checks, &self.policy)
    }
}

impl Tick {
    pub(super) fn new(app: &App) -> Tick {
        let Sample {
            at,
            elapsed,
            rates,
            round_trip,
            store,
            reload,
        } = app.sampler().last();
        let total = rates.total;
        Tick {
            t: at,
            elapsed_micros: micros(elapsed.as_micros()),
            checks: total.checks,
            allowed: total.allowed,
            over: total.over,
            denied: total.denied,
            unchecked: total.unchecked,
            would_deny: total.would_deny,
            deny_cached: total.deny_cached,
            prefetched: total.prefetched,
            p50_micros: rates.p50_micros,
            p99_micros: rates.p99_micros,
            round_trip_micros: round_trip.map(|span| micros(span.as_nanos().div_ceil(1_000))),
            store: StoreState::new(app.store(), store),
            reload: reload.map(|reload| Reload {
                result: if reload.is_ok { "ok" } else { "rejected" },
                at: reload.at,
            }),
            top: top(app),
            watched: watched(app),
        }
    }

    pub(super) fn to_json(&self) -> String {
        write(self)
    }
}

impl StoreState {
    /// The memory store is up, and has no server.
    fn new(kind: &'static str, health: StoreHealth) -> StoreState {
        let is_memory = kind == "memory";
        let server = health.servers.join(", ");
        StoreState {
            kind,
            up: is_memory || health.is_up,
            down_micros: if is_memory {
                0
            } else {
                micros(health.down.as_micros())
            },
            server: (!server.is_empty()).then_some(server),
            version: health.version,
            reconnects: health.reconnects,
            ambiguous: health.ambiguous,
            evicted: health.evicted,
        }
    }
}

fn top(app: &App) -> Vec<TopPolicy> {
    let rules = app.rules();
    let is_current = |name: &str| rules.policies.named(name).is_some();
    let busiest = app.sampler().busiest(MAX_POLICIES, is_current);
    let entry = |NamedRates { name, rates }| TopPolicy {
        limits: rules.policies.named(&name).map(Policy::to_string),
        policy: name,
        checks: rates.checks,
        denied: rates.denied,
        would_deny: rates.would_deny,
        store: rates.store,
        fallback: rates.unchecked,
        fallback_modes: FALLBACK_MODES
            .into_iter()
            .zip(rates.fallback)
            .filter(|(_, rate)| *rate > 0.0)
            .collect(),
        deny_cached: rates.deny_cached,
        prefetched: rates.prefetched,
    };
    busiest.into_iter().map(entry).collect()
}

/// The policies in shadow mode with the most checks that they would deny.
///
/// Those of Envoy rules are known by their checks, and enforce no key.
fn watched(app: &App) -> Vec<WatchedPolicy> {
    let rules = app.rules();
    let is_watched = |policy: &&Policy| policy.enforcement_percent() < 100;
    let watched: Vec<&Policy> = rules.policies.iter().filter(is_watched).collect();
    let names = watched.iter().map(|policy| policy.name());
    let rates = app.sampler().rates_of(names);
    let configured = watched
        .into_iter()
        .zip(rates)
        .map(|(policy, rates)| WatchedPolicy {
            policy: policy.name().to_owned(),
            enforced: policy.enforcement_percent(),
            checks: rates.checks,
            would_deny: rates.would_deny,
        });
    let others = app.sampler().watched().into_iter();
    let others = others
        .filter(|policy| rules.policies.named(&policy.name).is_none() && policy.rates.checks > 0.0);
    let others = others.map(|NamedRates { name, rates }| WatchedPolicy {
        policy: name,
        enforced: 0,
        checks: rates.checks,
        would_deny: rates.would_deny,
    });
    let mut watched: Vec<WatchedPolicy> = configured.chain(others).collect();
    watched.sort_unstable_by(|one, other| one.rank().cmp(&other.rank()));
    watched.truncate(MAX_POLICIES);
    watched
}

fn micros(micros: u128) -> u64 {
    u64::try_from(micros).unwrap_or(u64::MAX)
}

fn write(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("numbers and text can be written")
}
