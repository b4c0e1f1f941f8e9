//! Instances that prefetch, on a virtual clock.

use std::process::Output;

use super::{lines, simulate};

/// A steady trace of `count` hits, one each 100 us.
fn steady(count: u64) -> String {
    let line = |place: u64| format!("{{\"t\":{}.{:06}}}\n", place / 10_000, place % 10_000 * 100);
    (0..count).map(line).collect()
}

/// The second line of the summary: its numbers, in their order.
fn fleet_numbers(output: &Output) -> Vec<f64> {
    let text = str::from_utf8(&output.stderr).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("calls to the store"));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let (_, numbers) = line.split_once(": ").unwrap();
    let words = numbers.split([' ', '(', ')', ',', ';']);
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn prefetching_saves_calls_and_lets_no_more_pass() {
    let trace = steady(20_000);
    let limits = ["--limit", "fixed_window 5000/s", "--prefetch", "5%"];
    let fleet = ["--instances", "4", "--round-trip", "2ms"];

    let output = simulate(&[&limits[..], &fleet].concat(), &trace);

    let numbers = fleet_numbers(&output);
    let [
        calls,
        prefetch_calls,
        sent,
        per_call,
        from_memory,
        hits,
        passed_from_memory,
        passed,
        deny_cached,
        exact,
    ] = numbers[..]
    else {
        panic!("{numbers:?}");
    };
    assert_eq!(
        (calls, hits, exact),
        (prefetch_calls + sent, 20_000.0, 10_000.0)
    );
    assert!((20.0..100.0).contains(&per_call), "{numbers:?}");
    assert!(
        (from_memory + sent + deny_cached - hits).abs() < 0.5 && from_memory < 1.01 * passed,
        "{numbers:?}"
    );
    assert!(passed_from_memory > 0.9 * passed, "{numbers:?}");
    assert!(passed <= exact && passed >= 0.98 * exact, "{numbers:?}");
    let allowed = lines(&output)
        .iter()
        .filter(|line| line["allowed"] == true)
        .count();
    assert!((passed - f64::from(u32::try_from(allowed).unwrap())).abs() < 0.5);
    let again = simulate(&[&limits[..], &fleet].concat(), &trace);
    assert_eq!(again.stdout, output.stdout, "a simulation can be repeated");
}

#[test]
fn a_burst_does_not_end_prefetching_for_good() {
    let hit = |micros: u64| {
        let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
        format!("{{\"t\":{seconds}.{rest:06},\"key\":\"k\"}}\n")
    };
    let burst = (0..3_000).map(|number| hit(number * 66));
    let moderate = (0..12_000).map(|number| hit(200_000 + number * 500));
    let trace: String = burst.chain(moderate).collect();
    let limits = ["--limit", "fixed_window 4000/s", "--prefetch", "5%"];

    let output = simulate(&[&limits[..], &["--round-trip", "10ms"]].concat(), &trace);

    let numbers = fleet_numbers(&output);
    let [calls, .., from_memory, hits, _, _, _, _] = numbers[..] else {
        panic!("{numbers:?}");
    };
    assert!(
        calls < hits / 3.0 && from_memory > hits / 2.0,
        "{numbers:?}"
    );
}

#[test]
fn a_longer_round_trip_and_cold_keys_are_simulated_as_they_are() {
    let limits = ["--limit", "10000/s", "--prefetch", "5%", "--round-trip"];

    let far = fleet_numbers(&simulate(
        &[&limits[..], &["80ms"]].concat(),
        &steady(5_000),
    ));
    let near = fleet_numbers(&simulate(&[&limits[..], &["1ms"]].concat(), &steady(5_000)));
    let cold = fleet_numbers(&simulate(
        &[&limits[..], &["1ms"]].concat(),
        "{\"t\":1}\n{\"t\":2}\n",
    ));

    // A full bucket refills a block within 50 ms, before it arrives.
    assert!((1_500.0..2_000.0).contains(&far[4]), "{far:?}");
    assert!(near[4] > 4_900.0, "{near:?}");
    assert_eq!((cold[0], cold[2], cold[9]), (2.0, 2.0, 2.0), "{cold:?}");
}

#[test]
fn a_prefetch_that_cannot_be_simulated_is_an_error() {
    for (args, reason) in [
        (
            &["--limit", "concurrency 5", "--prefetch", "5%"][..],
            "slots",
        ),
        (&["--limit", "5/s", "--prefetch", "5"], "percentage"),
        (&["--limit", "5/s", "--prefetch", "60%"], "50"),
        (&["--limit", "5/s", "--instances", "4"], "--prefetch"),
        (&["--limit", "5/s", "--round-trip", "4ms"], "--prefetch"),
        (
            &["--limit", "5/s", "--prefetch", "5%", "--instances", "0"],
            "1..=64",
        ),
        (
            &["--limit", "5/s", "--prefetch", "5%", "--chart", "a.svg"],
            "--chart",
        ),
        (
            &[
                "--limit",
                "5/s",
                "--prefetch",
                "5%",
                "--store",
                "redis://127.0.0.1:1",
            ],
            "--store",
        ),
    ] {
        let output = simulate(args, "{\"t\":1}\n");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?}");
        assert!(errors.contains(reason), "{args:?}: {errors}");
    }
}

#[test]
fn denials_of_the_deny_cache_are_counted() {
    // A share of less than four units is not prefetched.
    let limits = ["--limit", "fixed_window 10/h", "--prefetch", "5%"];

    let numbers = fleet_numbers(&simulate(&limits, &steady(5_000)));

    let [
        _,
        _,
        sent,
        _,
        from_memory,
        hits,
        _,
        passed,
        deny_cached,
        exact,
    ] = numbers[..]
    else {
        panic!("{numbers:?}");
    };
    assert_eq!((hits, passed, exact), (5_000.0, 10.0, 10.0));
    assert!(
        (sent + from_memory + deny_cached - hits).abs() < 0.5 && deny_cached > 4_000.0,
        "{numbers:?}"
    );
}
