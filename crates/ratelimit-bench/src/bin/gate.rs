//! Compares counts with their budgets: `cargo xtask gate`.

use std::{env, fs, process::ExitCode};

use ratelimit_bench::{Budget, measure_gate};

const FILE: &str = "crates/ratelimit-bench/budget.toml";

/// The server whose instructions are budgeted: other versions have other counts.
const BUDGETED: &str = "7.0";

fn main() -> ExitCode {
    let measured = measure_gate(|work| allocation_counter::measure(work).count_total);
    println!(
        "instructions and allocations, redis-server {}",
        measured.server
    );
    if env::args().any(|arg| arg == "--write") {
        let budget = Budget::above(&measured.counts);
        fs::write(FILE, budget.to_string()).expect("the budget can be written");
        println!("{FILE} is written; say in its commit why a number rose");
        return ExitCode::SUCCESS;
    }

    let text = fs::read_to_string(FILE).expect("run from the top of the repository");
    let budget = Budget::parse(&text).unwrap_or_else(|invalid| panic!("{FILE}: {invalid}"));
    let findings = budget.compare(&measured.counts);
    for finding in &findings {
        println!("{finding}");
    }
    let failed = findings.iter().filter(|finding| finding.fails()).count();
    if failed == 0 {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {failed} of {} works break {FILE}", findings.len());
    if !measured.server.starts_with(BUDGETED) {
        eprintln!("  note: the budgets of redis are those of redis-server {BUDGETED}");
    }
    eprintln!(
        "  help: make them cheaper; on purpose, `cargo xtask gate --write` raises the budget"
    );
    ExitCode::FAILURE
}
