//! Dumps of callgrind.

use std::{fs, path::Path};

/// The instructions of one dump.
pub(super) fn instructions(file: &Path) -> u64 {
    let text = fs::read_to_string(file)
        .unwrap_or_else(|error| panic!("callgrind wrote no {}: {error}", file.display()));
    total(&text).expect("a dump that tells its total")
}

fn total(dump: &str) -> Option<u64> {
    let line = dump
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_stands_at_the_end() {
        let dump = "version: 1\nevents: Ir\nsummary: 41\n\nfn=(1) main\n12 5\n\ntotals: 42\n";

        assert_eq!(total(dump), Some(42));
        assert_eq!(total("events: Ir\n"), None);
    }
}
