//! CPU time from `/proc` on Linux.
//!
//! The times of a process and of the machine are in the same clock ticks, so that a share needs
//! neither the length of a tick nor the number of cores.

use std::fs;

use crate::load_signal::cpu::Ticks;

/// The ticks that this process used, and those of all cores; `None` without a readable `/proc`.
///
/// The two files are read one after the other. The process advances a little in between, which a
/// quarter of a second between samples makes negligible.
pub(super) fn of_process() -> Option<Ticks> {
    let used = process_ticks(&fs::read_to_string("/proc/self/stat").ok()?)?;
    let all = machine_ticks(&fs::read_to_string("/proc/stat").ok()?)?.all;
    Some(Ticks { used, all })
}

/// The ticks in use and those of all cores; `None` without a readable `/proc`.
pub(super) fn of_machine() -> Option<Ticks> {
    machine_ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// User and system time from the text of `/proc/self/stat`: its fields 14 and 15.
pub(super) fn process_ticks(stat: &str) -> Option<u64> {
    // The process name is in parentheses and may itself contain spaces and parentheses, so the last
    // one ends it.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// The sums over all cores from the first line of `/proc/stat`:
///
/// ```text
/// cpu  10132153 290696 3084719 46828483 16683 0 25195 0 0 0
/// ```
///
/// Old kernels have only the first four numbers; missing ones count as 0.
pub(super) fn machine_ticks(stat: &str) -> Option<Ticks> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // The fields are user, nice, system, idle, iowait, irq, softirq and steal. The time of guests
    // follows, and is part of user and nice already.
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
