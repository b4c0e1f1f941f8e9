//! The processor time of another process.

use std::{fs, time::Duration};

/// Clock ticks a second in `/proc`, on every Linux of these days.
const TICKS_PER_SECOND: u64 = 100;

/// The processor time of all threads of a process so far.
///
/// # Panics
///
/// When there is no such process.
pub(super) fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process runs");
    // The name of the program is in parentheses, and utime and stime are the 12th and 13th field behind it.
    let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
    let ticks = fields
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().expect("a number"));
    Duration::from_millis(ticks.sum::<u64>() * 1_000 / TICKS_PER_SECOND)
}
