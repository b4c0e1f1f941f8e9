//! What the memory stores of a process tell operators: gauges, counters and one warning.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{
    Counter, Gauge, Histogram, Key as Name, KeyName, Metadata, Recorder, SharedString, Unit,
};
use ratelimit_core::{
    Clock, Key, Limiter, MemoryStore, Policy, Timestamp, metrics as names,
    store::{Hit, Store as _},
};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span,
};

/// The numbers by name and labels.
#[derive(Clone, Debug, Default)]
struct Numbers(Arc<Mutex<HashMap<String, Arc<AtomicU64>>>>);

impl Numbers {
    fn number(&self, name: &Name) -> Arc<AtomicU64> {
        let labels = name.labels().map(|label| format!(" {}", label.value()));
        let name = format!("{}{}", name.name(), labels.collect::<String>());
        Arc::clone(
            self.0
                .lock()
                .expect("no test panicked")
                .entry(name)
                .or_default(),
        )
    }

    fn count(&self, name: &str) -> u64 {
        let known = self.0.lock().expect("no test panicked");
        known
            .get(name)
            .map_or(0, |number| number.load(Ordering::Relaxed))
    }

    fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.count(name))
    }
}

impl Recorder for Numbers {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, name: &Name, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(name))
    }

    fn register_gauge(&self, name: &Name, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.number(name))
    }

    fn register_histogram(&self, _: &Name, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// The warnings, as text.
#[derive(Clone, Debug, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).expect("a string takes all");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, about: &tracing::Metadata<'_>) -> bool {
        *about.level() == Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut Text(&mut text));
        self.0.lock().expect("no test panicked").push(text);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

async fn hit(store: &MemoryStore, policy: &Policy, names: std::ops::Range<u32>) {
    for name in names {
        let key = Key::new(name.to_string()).expect("a key");
        let charged = store
            .hit(Hit::new(policy, &key))
            .await
            .expect("memory answers");
        assert!(charged.decision.is_allowed());
    }
}

/// One test, because the numbers are those of the whole process.
#[tokio::test]
#[allow(clippy::float_cmp, reason = "gauges hold whole numbers")]
async fn operators_see_the_keys_of_all_stores_and_what_was_evicted() {
    let (numbers, warnings) = (Numbers::default(), Warnings::default());
    let _log = tracing::subscriber::set_default(warnings.clone());
    let _numbers = metrics::set_default_local_recorder(&numbers);
    let evicted = |kind: &str| numbers.count(&format!("{} {kind}", names::MEMORY_EVICTIONS));
    let warned = || warnings.0.lock().unwrap().clone();
    let clock = Clock::manual(Timestamp::from_secs(1_000_000));
    let store = MemoryStore::new().capacity(100).clock(clock.clone());
    let (day, plenty) = (
        Policy::parse("day", "1/d").unwrap(),
        Policy::parse("plenty", "1000/d").unwrap(),
    );

    hit(&store, &plenty, 0..128).await;
    clock.advance(Duration::from_secs(1));
    hit(&store, &plenty, 128..129).await;
    assert_eq!(numbers.gauge(names::MEMORY_KEYS), 100.0);
    assert!(numbers.gauge(names::MEMORY_BYTES) > 8_000.0);
    assert_eq!((evicted("with_budget"), evicted("exhausted")), (29, 0));
    assert!(warned().is_empty());

    hit(&store, &day, 0..192).await;
    clock.advance(Duration::from_secs(1));
    hit(&store, &day, 192..193).await;
    // The last 24 of 100 keys with budget leave a shard three quarters of which are exhausted.
    let by_kind = ["with_budget", "crowded_out", "exhausted"].map(evicted);
    assert_eq!(by_kind, [105, 24, 93]);
    let told = warned();
    assert!(
        told.len() == 1 && told[0].contains("raise the capacity"),
        "{told:?}"
    );

    clock.advance(Duration::from_secs(61));
    hit(&store, &day, 193..257).await;
    let told = warned();
    assert!(told.len() == 2 && told[1].contains("keys="), "{told:?}");

    // Exhausted keys leave room for none of the others, and none of them is evicted.
    let crowded = MemoryStore::new().capacity(100).clock(clock.clone());
    hit(&crowded, &day, 0..99).await;
    hit(&crowded, &plenty, 0..64).await;
    clock.advance(Duration::from_secs(1));
    hit(&crowded, &plenty, 64..65).await;
    let told = warned();
    assert!(told.len() == 3 && told[2].contains("keys="), "{told:?}");
    drop(crowded);

    let other = MemoryStore::new().clock(clock.clone());
    hit(&other, &plenty, 0..63).await;
    clock.advance(Duration::from_secs(1));
    hit(&other, &plenty, 63..64).await;
    assert_eq!(numbers.gauge(names::MEMORY_KEYS), 164.0);
    drop(store);
    assert_eq!(numbers.gauge(names::MEMORY_KEYS), 64.0);

    // A store that is not hit shows what it holds when its metrics are read.
    let bytes = numbers.gauge(names::MEMORY_BYTES);
    hit(&other, &plenty, 64..66).await;
    MemoryStore::update_metrics();
    assert_eq!(numbers.gauge(names::MEMORY_KEYS), 66.0);
    assert!(numbers.gauge(names::MEMORY_BYTES) > bytes);
    clock.advance(Duration::from_secs(86_400));
    MemoryStore::update_metrics();
    assert_eq!(numbers.gauge(names::MEMORY_KEYS), 0.0);
    assert_eq!(numbers.gauge(names::MEMORY_BYTES), 0.0);

    // Settled receipts count until they expire. A store that forgets some says so.
    let small = MemoryStore::new().capacity(5).clock(clock.clone());
    let limiter = Limiter::new(small);
    let key = Key::new("alice").unwrap();
    for _ in 0..7 {
        clock.advance(Duration::from_millis(1));
        let (_, charge) = limiter.reserve(Hit::new(&plenty, &key)).await;
        let receipt = charge.expect("it passed").into_receipt();
        limiter
            .settle(&receipt, 0)
            .await
            .expect("it is the first settlement");
    }
    MemoryStore::update_metrics();
    assert_eq!(numbers.gauge(names::MEMORY_KEYS), 6.0);
    assert_eq!(evicted("receipt"), 2);
    let told = warned();
    assert!(
        told.len() == 4 && told[3].contains("settled receipts"),
        "{told:?}"
    );
}
