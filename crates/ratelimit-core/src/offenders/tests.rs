use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    thread,
};

use proptest::prelude::*;

use crate::offenders::{space_saving::SpaceSaving, *};

fn key(number: u64) -> Key {
    Key::new(number.to_string()).unwrap()
}

/// A stream of a few dozen keys in which small numbers are far more frequent than large ones.
fn streams() -> impl Strategy<Value = (usize, Vec<u64>)> {
    let skewed = (0u64..40, 0u64..40).prop_map(|(one, other)| one * other / 20);
    let keys = prop_oneof![skewed, 0u64..80, Just(7)];
    (1usize..20, prop::collection::vec(keys, 0..600))
}

fn exact(stream: &[u64]) -> HashMap<u64, u64> {
    let mut counts = HashMap::new();
    for &number in stream {
        *counts.entry(number).or_default() += 1;
    }
    counts
}

proptest! {
    #[test]
    fn a_sketch_bounds_every_count_and_misses_no_frequent_key((capacity, stream) in streams()) {
        let mut sketch = SpaceSaving::new(capacity);
        for &number in &stream {
            sketch.count(&key(number));
        }

        let total = stream.len() as u64;
        for (number, count) in exact(&stream) {
            let known = sketch.get(&key(number));
            prop_assert!(known.count - known.error <= count && count <= known.count);
            let is_frequent = count * capacity as u64 > total;
            prop_assert!(!is_frequent || sketch.contains(&key(number)));
        }
        let counts: Vec<u64> = sketch.iter().map(|(_, count)| count.count).collect();
        prop_assert!(counts.is_sorted_by(|one, other| one >= other));
        prop_assert_eq!(counts.iter().sum::<u64>(), total);
        prop_assert!(counts.len() <= capacity);
    }

    #[test]
    fn two_windows_bound_every_count(
        (capacity, before) in streams(), (_, after) in streams(), most in 1usize..50
    ) {
        let mut recent = RotatingWindow::new(capacity, Duration::from_secs(10), at(0));
        for &number in &before {
            recent.denied(&key(number), at(1));
        }
        for &number in &after {
            recent.denied(&key(number), at(11));
        }

        let counts = exact(&[before, after].concat());
        let worst = recent.top(usize::MAX, at(19));
        for Offender { key: shown, denied, error } in &worst {
            let number = shown.as_str().trim_start_matches("key:").parse::<u64>().unwrap();
            let count = counts[&number];
            prop_assert!(denied - error <= count && count <= *denied);
        }
        prop_assert!(worst.is_sorted_by(|one, other| one.denied >= other.denied));
        prop_assert_eq!(&worst[..most.min(worst.len())], recent.top(most, at(19)));
    }
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_secs(secs)
}

fn numbers(worst: &[Offender]) -> Vec<(&str, u64)> {
    let shown = worst.iter();
    shown
        .map(|offender| (offender.key.as_str(), offender.denied))
        .collect()
}

fn counted_on(clock: &Clock) -> Offenders {
    Offenders::new()
        .window(Duration::from_secs(10))
        .clock(clock.clone())
}

#[test]
fn a_million_keys_take_the_memory_of_a_few() {
    let mut sketch = SpaceSaving::new(10);

    (0..1_000_000).for_each(|number| sketch.count(&key(number)));

    assert_eq!(sketch.iter().count(), 10);
    assert!(
        sketch.sizes().into_iter().all(|size| size <= 32),
        "{:?}",
        sketch.sizes()
    );
}

#[test]
fn a_key_that_calmed_down_is_gone_after_two_windows() {
    let clock = Clock::manual(at(100));
    let offenders = counted_on(&clock);
    let policy = Arc::from("login");
    offenders.denied(&policy, &key(1), true, |_| None);

    clock.set(at(115));
    offenders.denied(&policy, &key(2), true, |_| None);
    assert_eq!(
        numbers(&offenders.top("login", 9)),
        [("key:1", 1), ("key:2", 1)]
    );

    clock.set(at(120));
    assert_eq!(numbers(&offenders.top("login", 9)), [("key:2", 1)]);

    clock.set(at(130));
    assert!(offenders.top("login", 9).is_empty());
    assert!(offenders.policies().is_empty());
}

#[test]
fn a_long_silence_forgets_both_windows() {
    let clock = Clock::manual(at(100));
    let offenders = counted_on(&clock);
    offenders.denied(&Arc::from("login"), &key(1), true, |_| None);

    clock.set(at(1_000_000));

    assert!(offenders.top("login", 9).is_empty());
}

#[test]
fn a_clock_that_steps_back_does_not_keep_a_window_for_ever() {
    let clock = Clock::manual(at(5_000));
    let offenders = counted_on(&clock);
    let policy = Arc::from("login");
    offenders.denied(&policy, &key(1), true, |_| None);

    clock.set(at(100));
    assert_eq!(offenders.top("login", 9).len(), 1);
    clock.set(at(120));

    assert!(offenders.top("login", 9).is_empty());
}

#[test]
fn policies_are_counted_apart_and_forgotten_together() {
    let offenders = Offenders::new();
    offenders.denied(&Arc::from("b"), &key(1), true, |_| None);
    offenders.denied(&Arc::from("a"), &key(2), true, |_| None);

    assert_eq!(offenders.policies(), ["a", "b"]);
    assert_eq!(numbers(&offenders.top("a", 9)), [("key:2", 1)]);
    assert!(offenders.top("c", 9).is_empty());

    offenders.clear();
    assert!(offenders.policies().is_empty());
}

#[test]
fn policies_beyond_the_bound_are_not_counted() {
    let offenders = Offenders::new();

    for number in 0..=MAX_POLICIES {
        offenders.denied(
            &Arc::from(format!("policy-{number}")),
            &key(1),
            true,
            |_| None,
        );
    }

    assert_eq!(offenders.policies().len(), MAX_POLICIES);
    assert!(
        offenders
            .top(&format!("policy-{MAX_POLICIES}"), 1)
            .is_empty()
    );
}

#[test]
fn nothing_is_counted_when_it_is_off() {
    let offenders = Offenders::off();

    offenders.denied(&Arc::from("login"), &key(1), true, |_| None);

    assert!(offenders.top("login", 9).is_empty());
    assert!(offenders.policies().is_empty());
}

#[test]
fn a_digest_is_shown_instead_of_the_key() {
    let offenders = Offenders::new().key_display(KeyDisplay::Fingerprint);

    offenders.denied(&Arc::from("login"), &key(1), true, |_| None);

    assert_eq!(offenders.top("login", 9)[0].key, key(1).fingerprint());
}

#[test]
fn no_denial_is_lost_between_threads() {
    let offenders = Offenders::new();
    let policy: Arc<str> = Arc::from("login");

    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for round in 0..10_000 {
                    offenders.denied(&policy, &key(round % 50), true, |_| None);
                }
            });
        }
    });

    let worst = offenders.top("login", 99);
    assert_eq!(worst.len(), 50);
    assert!(
        worst
            .iter()
            .all(|offender| (offender.denied, offender.error) == (1_600, 0))
    );
}

/// The `offenders` field of each line that was logged.
#[derive(Clone, Default)]
struct RecordedLines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for RecordedLines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(
            &mut |field: &tracing::field::Field, value: &dyn fmt::Debug| {
                if field.name() == "offenders" {
                    self.0.lock().unwrap().push(format!("{value:?}"));
                }
            },
        );
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_line_comes_with_a_denial_once_its_time_has_come() {
    let clock = Clock::manual(at(0));
    let offenders = Offenders::new().clock(clock.clone());
    let silent = offenders.clone();
    let shown = KeyDisplay::Plain;
    let offenders = offenders
        .log_every(Duration::from_secs(60), 2)
        .log_key_display(shown);
    let policy = Arc::from("login");
    let heard = RecordedLines::default();

    tracing::subscriber::with_default(heard.clone(), || {
        for second in [0, 30, 59, 60, 61, 119, 120] {
            clock.set(at(second));
            silent.denied(&policy, &key(2), true, |_| None);
            offenders.denied(&policy, &key(1), true, |_| None);
            offenders.denied(&policy, &key(1), true, |_| None);
        }
    });

    let lines = heard.0.lock().unwrap();
    assert_eq!(*lines, ["key:1 7, key:2 4", "key:1 13, key:2 7"]);
}

#[test]
fn lines_show_digests_unless_told_otherwise() {
    let offenders = Offenders::new().log_every(Duration::ZERO, 1);
    let heard = RecordedLines::default();

    tracing::subscriber::with_default(heard.clone(), || {
        offenders.denied(&Arc::from("login"), &key(1), true, |_| None);
    });

    let digest = key(1).fingerprint();
    assert_eq!(*heard.0.lock().unwrap(), [format!("{digest} 1")]);
}

#[test]
fn a_counter_that_is_off_stays_off_with_any_setting() {
    let clock = Clock::manual(at(0));
    let off = Offenders::off()
        .capacity(5)
        .window(Duration::from_secs(1))
        .clock(clock);

    off.denied(&"p".into(), &key(1), true, |_| None);

    assert!(off.policies().is_empty());
}
