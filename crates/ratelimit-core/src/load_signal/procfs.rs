//! What Linux counts in `/proc`.
//!
//! A process's time and the machine's come in the same ticks, so that a share needs neither the length
//! of a tick nor the number of cores.

use std::fs;

use crate::load_signal::cpu::Ticks;

/// What this process used, of the ticks of all cores.
pub(super) fn of_process() -> Option<Ticks> {
    let used = process_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let all = machine_ticks(&fs::read_to_string("/proc/stat").ok()?)?.all;
    Some(Ticks { used, all })
}

/// What was used of the ticks of all cores.
pub(super) fn of_machine() -> Option<Ticks> {
    machine_ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// The user and system time in `/proc/self/stat`.
pub(super) fn process_ticks(stat: &str) -> Option<u64> {
    // The name stands in brackets and may hold spaces and brackets itself.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// The sums over all cores in `/proc/stat`.
pub(super) fn machine_ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // User, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen. The time of guests
    // stands after these and is counted in the first two.
    let mut spent = [0u64; 8];
    let mut fields = line.split_ascii_whitespace();
    for ticks in &mut spent[..4] {
        *ticks = fields.next()?.parse().ok()?;
    }
    for (ticks, field) in spent[4..].iter_mut().zip(fields) {
        *ticks = field.parse().ok()?;
    }
    let all = spent
        .iter()
        .try_fold(0u64, |sum, ticks| sum.checked_add(*ticks))?;
    let idle = spent[3] + spent[4];
    Some(Ticks {
        used: all - idle,
        all,
    })
}
