//! The programs that are built beside this one.

use std::{env, process::Command};

/// Bytes per key of a contender with `keys` keys, counted in a separate process.
pub(super) fn bytes_a_key(contender: &str, keys: usize) -> f64 {
    memory_usage(&["keys", contender, &keys.to_string()])
}

/// The bytes that our memory store takes for one full log.
pub(super) fn bytes_of_log(stamps: usize) -> f64 {
    memory_usage(&["log", &stamps.to_string()])
}

fn memory_usage(args: &[&str]) -> f64 {
    let program = env::current_exe()
        .expect("our own path")
        .with_file_name("memory_usage");
    let output = Command::new(program)
        .args(args)
        .output()
        .expect("it is built beside us");
    assert!(output.status.success(), "memory_usage {args:?} failed");
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.trim().parse().expect("a number")
}
