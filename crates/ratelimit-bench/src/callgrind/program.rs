//! Programs of ours under callgrind.

use std::{
    env, hint,
    io::{self, Write as _},
    process::Command,
};

use tempfile::TempDir;

use super::{dump, exact};
use crate::workload::Work;

// Callgrind accepts one option per function, so there are two functions.
const COLLECTED: &str = "*collected_by_callgrind*";
const DUMPED: &str = "*dumped_by_callgrind*";

/// Before the count begins: tables grow, caches fill, the first hit makes its key known.
const WARM_UP: u32 = 2_000;

/// Runs `work` `times` times; callgrind dumps its counts afterwards.
#[inline(never)]
fn dumped_by_callgrind(times: u32, work: &mut dyn FnMut()) {
    collected_by_callgrind(times, work);
    // A call that comes last could become a jump, and would not be seen to return.
    hint::black_box(times);
}

/// Callgrind collects what happens in here, and nothing else.
#[inline(never)]
fn collected_by_callgrind(times: u32, work: &mut dyn FnMut()) {
    for _ in 0..times {
        work();
    }
    hint::black_box(times);
}

/// Runs each work under callgrind, and prints the names for [`count`].
///
/// # Panics
///
/// Panics if standard output is closed.
pub fn tell_counts(works: impl IntoIterator<Item = Work>, times: u32) {
    let mut out = io::stdout().lock();
    for mut work in works {
        (0..WARM_UP).for_each(|_| (work.once)());
        dumped_by_callgrind(times, &mut work.once);
        writeln!(out, "{} {times}", work.name).expect("somebody reads the names");
    }
}

/// Runs a program beside this one, which calls [`tell_counts`], and answers the instructions of each
/// of its works, once done.
///
/// # Panics
///
/// When there is no valgrind, or the program fails under it.
pub fn count(program: &str) -> Vec<(String, f64)> {
    let dir = TempDir::new().expect("a directory for what callgrind writes");
    let beside_us = env::current_exe()
        .expect("our own path")
        .with_file_name(program);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "-q", "--collect-atstart=no"])
        .arg(format!("--toggle-collect={COLLECTED}"))
        .arg(format!("--dump-after={DUMPED}"))
        .arg(format!(
            "--callgrind-out-file={}",
            dir.path().join("out").display()
        ))
        .arg(beside_us)
        .output()
        .expect("valgrind starts: `cargo xtask bench` and `cargo xtask gate` install it");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} under valgrind: {errors}"
    );

    let each = printed.lines().zip(1..).map(|(line, number)| {
        let (name, times) = line.rsplit_once(' ').expect("a name and a number");
        let times: f64 = times.parse().expect("how often it was done");
        let file = dir.path().join(format!("out.{number}"));
        (name.to_owned(), exact(dump::instructions(&file)) / times)
    });
    each.collect()
}
