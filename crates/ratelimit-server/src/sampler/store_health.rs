//! The state of the store, as its metrics tell it.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ratelimit_core::metrics::{AMBIGUOUS, CONNECTS, EVICTED, SERVER_INFO, STORE_UP};

use crate::metrics::{SampledSeries, SampledValue, SharedValue};

/// The version of a server that does not tell it.
const UNKNOWN_VERSION: &str = "unknown";

/// The state of the Redis servers in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreHealth {
    /// Whether each server in use decides. False before the first connection.
    pub(crate) is_up: bool,
    /// The time since the first second in which a server did not decide.
    pub(crate) down: Duration,
    /// The servers in use, as `host:port`, ordered by name.
    pub(crate) servers: Vec<String>,
    /// The version that was registered last.
    pub(crate) version: Option<String>,
    pub(crate) reconnects: u64,
    pub(crate) ambiguous: u64,
    pub(crate) evicted: u64,
}

/// The series of the Redis store.
#[derive(Debug, Default)]
pub(super) struct StoreSeries {
    up: Vec<(String, SharedValue)>,
    version: Option<String>,
    reconnects: Vec<SharedValue>,
    ambiguous: Vec<SharedValue>,
    evicted: Vec<SharedValue>,
    /// `None` while the store is up.
    down: Option<Duration>,
}

impl StoreSeries {
    /// Adds a series, if it is one of the store.
    pub(super) fn add(&mut self, series: &SampledSeries) {
        let (SampledValue::Counter(value) | SampledValue::Gauge(value)) = &series.value else {
            return;
        };
        let value = Arc::clone(value);
        match series.name() {
            STORE_UP => {
                let server = series.label("server").unwrap_or_default().to_owned();
                self.up.push((server, value));
                self.up.sort_by(|(one, _), (other, _)| one.cmp(other));
            }
            SERVER_INFO => {
                let version = series.label("version").map(str::to_owned);
                self.version = version.filter(|version| version != UNKNOWN_VERSION);
            }
            CONNECTS => self.reconnects.push(value),
            AMBIGUOUS => self.ambiguous.push(value),
            EVICTED => self.evicted.push(value),
            _ => {}
        }
    }

    /// The state now, `elapsed` after the last call.
    pub(super) fn sample(&mut self, elapsed: Duration) -> StoreHealth {
        let gauges = self.up.iter().map(|(server, up)| {
            let up = f64::from_bits(up.load(Ordering::Relaxed));
            (server, up)
        });
        // The gauge of a server that is no longer used is NaN.
        let used: Vec<_> = gauges.filter(|(_, up)| !up.is_nan()).collect();
        let is_up = !used.is_empty() && used.iter().all(|(_, up)| *up > 0.0);
        let servers = used.into_iter().map(|(server, _)| server.clone()).collect();
        self.down = match self.down {
            _ if is_up => None,
            Some(down) => Some(down + elapsed),
            None => Some(Duration::ZERO),
        };
        StoreHealth {
            is_up,
            down: self.down.unwrap_or_default(),
            servers,
            version: self.version.clone(),
            reconnects: sum(&self.reconnects),
            ambiguous: sum(&self.ambiguous),
            evicted: sum(&self.evicted),
        }
    }
}

fn sum(counters: &[SharedValue]) -> u64 {
    let values = counters.iter();
    values.map(|value| value.load(Ordering::Relaxed)).sum()
}
