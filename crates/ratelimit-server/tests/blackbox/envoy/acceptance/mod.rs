//! The long runs of `cargo xtask acceptance`: they take minutes, and print figures that depend on the machine.

mod rlqs;
mod rls;

use std::{collections::BTreeMap, time::Duration};

use super::{EnvoyServer, process::Envoy};

const MIB: u64 = 1 << 20;

impl EnvoyServer {
    /// The resident memory of the server in bytes.
    async fn resident_bytes(&self) -> u64 {
        let bytes = self.metric("process_resident_memory_bytes", "").await;
        assert!(bytes > 0, "the server reports its memory");
        bytes
    }
}

/// Prints the median, two high percentiles and the maximum of some times.
fn print_times(label: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |per_mille: usize| times[(times.len() - 1) * per_mille / 1_000];
    println!(
        "{label}: {} times, p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}",
        times.len(),
        at(500),
        at(990),
        at(999),
        at(1_000)
    );
}

/// Prints the warnings and errors of an Envoy, each once with its number.
fn print_log(label: &str, envoy: &Envoy) {
    let log = envoy.whole_log();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in log.lines() {
        let is_loud = ["[warning]", "[error]", "[critical]"]
            .iter()
            .any(|level| line.contains(level));
        // The time and the thread differ from line to line.
        if is_loud
            && let Some((_, text)) = line
                .split_once("][")
                .and_then(|(_, rest)| rest.split_once("]["))
        {
            *counts.entry(text.to_owned()).or_default() += 1;
        }
    }
    println!("{label}: {} lines in the log", log.lines().count());
    for (text, count) in counts {
        println!("  {count} x [{text}");
    }
}
