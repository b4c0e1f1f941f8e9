use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    thread,
    time::Duration,
};

use crate::load_signal::{
    cpu::Ticks,
    procfs::{machine_ticks, process_ticks},
    *,
};

/// A signal with a mark of 100, and the load that it reads.
fn driven() -> (LoadSignal, Arc<AtomicU64>) {
    let load = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&load);
    (
        LoadSignal::of(move || its.load(Ordering::Relaxed), 100),
        load,
    )
}

fn answers(signal: &LoadSignal, driver: &AtomicU64, loads: &[u64]) -> Vec<bool> {
    let ask = |load: &u64| {
        driver.store(*load, Ordering::Relaxed);
        signal.has_capacity()
    };
    loads.iter().map(ask).collect()
}

#[test]
fn a_load_that_swings_between_the_marks_changes_nothing() {
    let (signal, driver) = driven();
    let swinging = [80, 99, 85, 99, 80, 99];

    assert_eq!(answers(&signal, &driver, &swinging), [true; 6]);
    assert_eq!(answers(&signal, &driver, &[100]), [false]);
    assert_eq!(answers(&signal, &driver, &swinging), [false; 6]);
    assert_eq!(answers(&signal, &driver, &[79]), [true]);
    assert_eq!(answers(&signal, &driver, &swinging), [true; 6]);
}

#[test]
fn the_lower_mark_is_never_above_the_upper_and_never_zero() {
    let (signal, driver) = driven();
    let signal = signal.resume_below(1_000);
    assert_eq!(
        answers(&signal, &driver, &[100, 100, 99]),
        [false, false, true]
    );

    let signal = signal.resume_below(0);
    assert_eq!(
        answers(&signal, &driver, &[100, 1, 0]),
        [false, false, true]
    );

    let never = LoadSignal::of(|| 0, 0);
    assert!(!never.has_capacity());
    assert!(LoadSignal::of(|| 0, 1).has_capacity());
}

#[test]
fn requests_in_flight_are_counted_exactly_by_threads_that_panic() {
    let signal = LoadSignal::in_flight(1_000);
    let kept = signal.enter();

    thread::scope(|threads| {
        for turn in 0..8 {
            let signal = &signal;
            threads.spawn(move || {
                for round in 0..2_000 {
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        let _guard = signal.enter();
                        assert!(signal.load().unwrap() >= 2);
                        if round % 500 == turn {
                            std::panic::resume_unwind(Box::new("a handler's panic"));
                        }
                    }));
                    assert_eq!(outcome.is_err(), round % 500 == turn);
                }
            });
        }
    });

    assert_eq!(signal.load(), Some(1));
    drop(kept);
    assert_eq!(signal.load(), Some(0));
}

#[test]
fn there_is_no_room_from_the_last_request_on_until_enough_have_left() {
    let signal = LoadSignal::in_flight(5);
    let mut guards: Vec<InFlightGuard> = (0..4).map(|_| signal.enter()).collect();
    assert!(signal.has_capacity());

    guards.push(signal.enter());
    assert!(!signal.has_capacity());
    guards.pop();
    assert!(!signal.has_capacity());
    guards.pop();

    assert!(signal.has_capacity());
}

#[test]
fn a_guard_of_another_signal_counts_nothing() {
    let (signal, _) = driven();

    let _guard = signal.enter();

    assert_eq!(signal.load(), Some(0));
}

#[test]
fn clones_are_equal_and_others_are_not() {
    let signal = LoadSignal::in_flight(5);

    assert_eq!(signal, signal.clone());
    assert_ne!(signal, LoadSignal::in_flight(5));
    assert_eq!(signal.to_string(), "in_flight");
    assert_eq!(LoadSignal::machine_cpu(80).to_string(), "machine_cpu");
}

/// A meter that reads these samples in order.
fn meter(samples: impl IntoIterator<Item = Option<(u64, u64)>>) -> Cpu {
    let samples = samples.into_iter().collect::<Vec<_>>();
    let left = Mutex::new(samples.into_iter());
    Cpu::measured_by(move || {
        let (used, all) = left.lock().unwrap().next().flatten()?;
        Some(Ticks { used, all })
    })
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_percentage_is_that_of_the_last_span() {
    let cpu = meter([
        Some((1_000, 9_000)),
        Some((1_090, 9_100)),
        Some((1_091, 9_200)),
    ]);

    assert_eq!(cpu.percent_at(ms(0)), None);
    assert_eq!(cpu.percent_at(ms(249)), None);
    assert_eq!(cpu.percent_at(ms(250)), Some(90));
    assert_eq!(cpu.percent_at(ms(499)), Some(90));
    assert_eq!(cpu.percent_at(ms(500)), Some(1));
}

#[test]
fn an_unreadable_or_standing_count_is_no_percentage() {
    let cpu = meter([
        Some((1, 10)),
        None,
        Some((2, 20)),
        Some((7, 30)),
        Some((7, 30)),
        Some((0, 0)),
    ]);

    assert_eq!(cpu.percent_at(ms(250)), None);
    assert_eq!(cpu.percent_at(ms(500)), None);
    assert_eq!(cpu.percent_at(ms(750)), Some(50));
    assert_eq!(cpu.percent_at(ms(1_000)), None);
    assert_eq!(cpu.percent_at(ms(1_250)), None);
}

#[test]
fn there_is_no_room_where_the_load_is_not_known() {
    let signal = LoadSignal::from_source(LoadSource::ProcessCpu(meter([])), 100);

    assert_eq!(signal.load(), None);
    assert!(!signal.has_capacity());
}

#[test]
fn ticks_are_read_from_captured_text() {
    let itself =
        "4711 (a (b) c) R 1 4711 1 0 -1 4194304 97 0 0 0 120 34 5 6 20 0 1 0 1216831 2998272";
    let machine = "cpu  100 10 50 800 20 5 7 8 30 3\ncpu0 100 10 50 800 20 5 7 8 30 3\nintr 1\n";
    let ancient = "cpu  100 10 50 800\n";

    assert_eq!(process_ticks(itself), Some(154));
    assert_eq!(
        machine_ticks(machine),
        Some(Ticks {
            used: 180,
            all: 1_000
        })
    );
    assert_eq!(
        machine_ticks(ancient),
        Some(Ticks {
            used: 160,
            all: 960
        })
    );
}

#[test]
fn other_text_is_no_ticks() {
    for text in [
        "",
        "cpu",
        "cpu  1 2 3",
        "cpu  1 2 3 x",
        "cpu0 1 2 3 4",
        "cpu  1 2 3 -4",
    ] {
        assert_eq!(machine_ticks(text), None, "{text:?}");
    }
    for text in [
        "",
        "1 (a) R",
        "1 a R 1 1 1 0 -1 4 97 0 0 0 120 34",
        "1 (a) R 1 1 1 0 -1 4 9 0 0 0 x 3",
    ] {
        assert_eq!(process_ticks(text), None, "{text:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_busy_process_is_seen_in_its_ticks() {
    let before = procfs::of_process().unwrap();
    let mut now = before;

    // The loop terminates: it uses the CPU time that it waits for.
    while now.used < before.used + 3 {
        now = procfs::of_process().unwrap();
    }

    assert!(now.all > before.all);
    assert!(procfs::of_machine().unwrap().used >= now.used);
}
