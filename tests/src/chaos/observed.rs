//! What operators would have seen: metrics by name, and log lines.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, KeyName, Metadata, Recorder, SharedString, Unit,
};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span,
};

/// The default time-out of a call to Redis. A call that timed out took longer.
const TIMEOUT_SECONDS: f64 = 0.025;

/// All metrics and log lines of this process.
///
/// Tests of one process share it: hold increases against it, and lines by what they say.
#[derive(Debug, Default)]
pub struct Observations {
    counters: Mutex<HashMap<String, Arc<AtomicU64>>>,
    gauges: Mutex<HashMap<String, Arc<AtomicU64>>>,
    /// How many samples of each histogram were slow.
    slow: Mutex<HashMap<String, Arc<AtomicU64>>>,
    lines: Mutex<Vec<String>>,
    panics_at: Mutex<Option<&'static str>>,
}

impl Observations {
    /// Listens to everything that this process records from now on.
    pub fn listen() -> &'static Observations {
        static STORY: OnceLock<Observations> = OnceLock::new();
        let mut is_new = false;
        let observed = STORY.get_or_init(|| {
            is_new = true;
            Observations::default()
        });
        if is_new {
            // Another recorder was there first only if a test wanted it so.
            let _ = metrics::set_global_recorder(observed);
            let _ = tracing::subscriber::set_global_default(Lines(observed));
        }
        observed
    }

    /// The sum of a counter over all its labels that contain `label`.
    pub fn counter(&self, name: &str, label: &str) -> u64 {
        let counters = locked(&self.counters);
        let ours = counters
            .iter()
            .filter(|(key, _)| key.starts_with(name) && key.contains(label));
        ours.map(|(_, value)| value.load(Ordering::Relaxed)).sum()
    }

    /// The value of a gauge whose labels contain `label`, if it was ever set.
    pub fn gauge(&self, name: &str, label: &str) -> Option<f64> {
        let gauges = locked(&self.gauges);
        let mut ours = gauges
            .iter()
            .filter(|(key, _)| key.starts_with(name) && key.contains(label));
        ours.next()
            .map(|(_, value)| f64::from_bits(value.load(Ordering::Relaxed)))
    }

    /// How many samples of a histogram were more than the time-out of the suite, 25 ms.
    pub fn slow_samples(&self, name: &str) -> u64 {
        let slow = locked(&self.slow);
        let ours = slow.iter().filter(|(key, _)| key.starts_with(name));
        ours.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    /// The names and labels of everything that was recorded.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = locked(&self.counters).keys().cloned().collect();
        names.extend(locked(&self.gauges).keys().cloned());
        names.sort();
        names
    }

    /// The warnings and errors that contain `text`.
    pub fn lines(&self, text: &str) -> Vec<String> {
        let lines = locked(&self.lines);
        let matching = lines.iter().filter(|line| line.contains(text));
        matching.cloned().collect()
    }

    /// Panics once in whoever next records the metric `name`.
    pub fn panic_at(&self, name: &'static str) {
        *locked(&self.panics_at) = Some(name);
    }

    /// Whether the panic that was asked for is still to come.
    pub fn panics_are_due(&self) -> bool {
        locked(&self.panics_at).is_some()
    }

    fn value_of(
        &self,
        values: &Mutex<HashMap<String, Arc<AtomicU64>>>,
        key: &metrics::Key,
    ) -> Arc<AtomicU64> {
        let panics = locked(&self.panics_at).take_if(|name| key.name() == *name);
        assert!(panics.is_none(), "a panic that the test asked for");
        let mut name = key.name().to_owned();
        for label in key.labels() {
            let _ = write!(name, " {}={}", label.key(), label.value());
        }
        Arc::clone(locked(values).entry(name).or_default())
    }
}

impl Recorder for Observations {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &metrics::Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.value_of(&self.counters, key))
    }

    fn register_gauge(&self, key: &metrics::Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value_of(&self.gauges, key))
    }

    fn register_histogram(&self, key: &metrics::Key, _: &Metadata<'_>) -> Histogram {
        let slow = self.value_of(&self.slow, key);
        Histogram::from_arc(Arc::new(SlowSamples(slow)))
    }
}

/// Counts the samples that are slow, so that a test under load keeps none.
struct SlowSamples(Arc<AtomicU64>);

impl HistogramFn for SlowSamples {
    fn record(&self, seconds: f64) {
        if seconds > TIMEOUT_SECONDS {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Keeps warnings and errors of our crates.
struct Lines(&'static Observations);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("ratelimit")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        locked(&self.0.lines).push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
