//! Dumps of callgrind.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// How long a busy machine takes to write a dump.
const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// The program and its options that come before a server whose instructions are counted. It writes to its directory.
pub(crate) const LAUNCHER: [&str; 4] = [
    "valgrind",
    "--tool=callgrind",
    "-q",
    "--callgrind-out-file=out",
];

/// The dumps of one server under [`LAUNCHER`].
#[derive(Debug, Default)]
pub(crate) struct Dumps(u32);

impl Dumps {
    /// The instructions since the last dump.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub(crate) fn take(&mut self, pid: u32, dir: &Path) -> u64 {
        self.0 += 1;
        let control = Command::new("callgrind_control")
            .args(["-d", &pid.to_string()])
            .output()
            .expect("callgrind_control comes with valgrind");
        assert!(control.status.success(), "callgrind_control failed");
        instructions(&dir.join(format!("out.{}", self.0)))
    }
}

/// The instructions of one dump. `callgrind_control` may return before its server has written all of it.
pub(super) fn instructions(file: &Path) -> u64 {
    let started = Instant::now();
    loop {
        let text = fs::read_to_string(file).unwrap_or_default();
        if let Some(total) = total(&text) {
            return total;
        }
        assert!(
            started.elapsed() < WRITTEN_WITHIN,
            "callgrind wrote no total to {}",
            file.display()
        );
        thread::sleep(Duration::from_millis(10));
    }
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
